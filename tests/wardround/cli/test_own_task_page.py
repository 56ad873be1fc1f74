"""docs/own-task.md: its package is built, installed and tested, its study created and joined, its errors met."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.factories.commands import Run, write_settings
from tests.factories.hospitals import lax_toml
from tests.factories.live_coordinator import Live

PAGE = (Path(__file__).parents[3] / "docs" / "own-task.md").read_text()
FILES = dict(re.findall(r"File `([^`]+)`:\n\n```\w+\n(.*?)```", PAGE, re.S))
COMMANDS = re.findall(r"^\$ (.*)", PAGE, re.M)
STUDY = tomllib.loads(re.findall(r"```toml\n(.*?)```", PAGE, re.S)[1])["training"]
MODULE = "length_of_stay"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the page's package was installed into, as pip does it."""
    folder = tmp_path_factory.mktemp("own-task")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    assert COMMANDS[0] == "pip install ./length-of-stay pytest"
    # Hatchling and pytest are here, and the network may not be.
    offline = ["--no-index", "--no-build-isolation", "--no-deps", "--target", str(folder / "site")]
    made = [sys.executable, "-m", "pip", "install", "--quiet", *offline, "./length-of-stay"]
    done = subprocess.run(made, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def importable(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(installed / "site"))
    yield installed
    sys.modules.pop(MODULE, None)
    importlib.invalidate_caches()


@pytest.mark.slow
def test_the_page_s_own_tests_pass(installed: Path) -> None:
    path = os.pathsep.join([str(installed / "site"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, *shlex.split(COMMANDS[1])[1:], "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=installed, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


def _records(folder: Path) -> None:
    rows = [f"p{i},{20 + i},{i % 10},{i % 40}" for i in range(40)]
    (folder / "records.csv").write_text("\n".join(["id,age,severity,days", *rows]) + "\n")


@pytest.mark.slow
def test_the_page_s_study_is_created_checked_and_joined(
    here: Live, run: Run, tmp_path: Path, importable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = write_settings(tmp_path / "study.json", training=STUDY)
    _records(tmp_path)
    commands = [line.replace("study.toml", settings.name) for line in COMMANDS if line.startswith("wardround ")]
    check, create, invite, join = (shlex.split(line)[1:] for line in commands)
    (tmp_path / "mercy").mkdir(mode=0o700)
    (tmp_path / "mercy" / "policy.toml").write_text(lax_toml())

    checked = json.loads(run(*check, "--json").stdout)
    assert (checked["patients"], checked["parameters"]) == (40, 3)
    # It does not say which columns it uses.
    assert checked["unused"] == []
    run(*create, operator=True)
    token = run(*invite, operator=True).stdout.strip()
    run("enrol", "-", input=f"{token}\n")
    run("study", "start", "stay", operator=True)
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(0.05):
            here.work()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        outcome = json.loads(run(*join, "--json").stdout)
    finally:
        ended.set()
        worker.join()
    assert (outcome["rounds_sent"], outcome["reason"]) == (2, "max-steps-reached")


BROKEN = {
    "cannot be imported": ("import numpy as np", "import no_such_module"),
    "cannot be made with these parameters": ('float(parameters["longest_days"])', 'float(parameters["longest"])'),
    "did not return a Task": ("class LengthOfStay(Task):", "class LengthOfStay:"),
    "could not read the records": ("inputs = np.stack", 'float("the secret of p7")\n        inputs = np.stack'),
    "could not make its model": ("return nn.Linear(2, 1)", "return nn.NoSuchLayer(2, 1)"),
    "cannot be trained privately": ('reduction="none"', 'reduction="mean"'),
}


@pytest.mark.quick("could not make its model")
@pytest.mark.parametrize("said", BROKEN)
def test_a_package_that_fails_is_named_before_anything_is_created(
    said: str, here: Live, run: Run, tmp_path: Path, importable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"`{said}`" in PAGE
    right, wrong = BROKEN[said]
    source = FILES[f"length-of-stay/{MODULE}.py"]
    assert right in source
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / f"{MODULE}.py").write_text(source.replace(right, wrong))
    monkeypatch.syspath_prepend(str(folder))
    sys.modules.pop(MODULE, None)
    _records(tmp_path)
    settings = write_settings(tmp_path / "study.json", training=STUDY)
    check = ["data", "check", str(tmp_path / "records.csv"), "--settings", str(settings), "--patient-column", "id"]
    answer = run(*check, code=1)
    assert said in answer.stderr
    assert "secret" not in answer.stderr
    if said.startswith(("cannot be imported", "cannot be made", "did not")):
        assert said in run("study", "create", "stay", "--settings", str(settings), operator=True, code=1).stderr
        assert here.operator("GET", "/v1/studies").json()["studies"] == []
