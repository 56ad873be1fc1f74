"""From the archive to a study's first round where there is no network: the tutorial with the program of a bundle."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from deploy.bundle.__main__ import main
from tests.factories.bundles import allow_signer, component_lister, new_key
from tests.factories.tutorial import PAGE, tutorial_lines

PORT = 8000
# What is started in it ends with it.
ISOLATE = ("unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
UNREACHABLE = """
import errno, socket
try:
    socket.create_connection(("192.0.2.1", 443), timeout=5)
except OSError as error:
    assert error.errno == errno.ENETUNREACH, error
else:
    raise AssertionError("there is a network")
"""
# The second round begins when the first has been released.
FIRST_ROUND = f"""
import json, pathlib, time, urllib.request
key = pathlib.Path("administrator.key").read_text().strip()
url = "http://127.0.0.1:{PORT}/v1/studies/readmission/budget"
request = urllib.request.Request(url, headers={{"Authorization": "Bearer " + key}})
while json.load(urllib.request.urlopen(request))["round"] < 2:
    time.sleep(1)
"""


def isolated_script(archive: Path, allowed: Path) -> str:
    """Return the script that runs in a network namespace. It prints the seconds since the epoch after each step."""
    lines = [
        "set -euo pipefail",
        "trap 'kill $(jobs -p) 2> /dev/null || true; wait' EXIT",
        'step() { echo "step $(date +%s) $1"; }',
        "ip link set lo up",
        f"{sys.executable} -I unreachable.py",
        "step start",
        f"tar -xf {archive}",
        "step unpacked",
        f"sh {archive.stem}/install.sh --allowed-signers {allowed} environment",
        "step installed",
        'export PATH="$PWD/environment/bin:$PATH"',
    ]
    for section in re.split(r"^(?=## \d)", PAGE, flags=re.M)[1:7]:
        lines += [*tutorial_lines(section, PORT), f"step '{section.splitlines()[0]}'"]
    # The last hospital stays in the foreground on the page.
    text = re.sub(r"(--home hill --yes)$", r"\1 > hill.log 2>\&1 &", "\n".join(lines), flags=re.M)
    return f"{text}\npython first_round.py\nstep 'first round'\n"


def refused_namespace() -> str | None:
    """Return why no network namespace can be made here."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return "unshare or ip is not here"
    done = subprocess.run([*ISOLATE, "ip", "link", "set", "lo", "up"], capture_output=True, text=True)
    return done.stderr.strip() or None


@pytest.fixture
def large_folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder for gigabytes, which pytest would keep for three runs."""
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_without_a_network_a_study_comes_to_its_first_round(
    large_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if reason := refused_namespace():
        pytest.skip(f"a machine without a network cannot be made: {reason}")
    key = new_key(large_folder / "key")
    # Real wheels and pages. What lists the components is a stand-in.
    paths = ("--key", key, "--output", large_folder / "dist", "--sbom-tool", component_lister(large_folder))
    options = [*map(str, paths), "--extras", "client,server", "--no-image"]
    if main(options) and "pip could not get all wheels" in capfd.readouterr().err:
        pytest.skip("pip's index does not have all wheels")
    (archive,) = (large_folder / "dist").glob("*.tar")
    home = large_folder / "hospital"
    home.mkdir()
    (home / "unreachable.py").write_text(UNREACHABLE)
    (home / "first_round.py").write_text(FIRST_ROUND)
    (home / "script.sh").write_text(isolated_script(archive, allow_signer(key, large_folder / "allowed")))
    done = subprocess.run(
        [*ISOLATE, "bash", "script.sh"],
        cwd=home,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    logs = "".join(f"\n== {log.name}\n{log.read_text()[-2000:]}" for log in sorted(home.glob("*.log")))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:] + logs
    steps = re.findall(r"^step (\d+) (.*)$", done.stdout, re.M)
    assert [name for _, name in steps][-1] == "first round"
    with capfd.disabled():
        for (before, _), (after, name) in pairwise(steps):
            print(f"{(int(after) - int(before)) / 60:6.1f} minutes  {name}")
