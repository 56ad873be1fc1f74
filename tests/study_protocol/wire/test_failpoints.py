import os
import subprocess
import sys
from pathlib import Path

import pytest

from study_protocol.wire import failpoints

PROGRAM = """
from study_protocol.wire.failpoints import failpoint, register
register("test.here", "test.there")
for i in range(3):
    failpoint("test.there")
    failpoint("test.here")
    print(i, flush=True)
"""


def run(tmp_path: Path, wanted: str | None) -> tuple[int, str, str]:
    log = tmp_path / "log"
    env = {k: v for k, v in os.environ.items() if not k.startswith("WARDROUND_")}
    env |= {"WARDROUND_FAILPOINT_LOG": str(log)} | ({} if wanted is None else {"WARDROUND_FAILPOINT": wanted})
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, log.read_text() if log.exists() else ""


@pytest.mark.parametrize(
    ("wanted", "result"),
    [
        (None, (0, "0\n1\n2\n", "")),
        ("test.elsewhere", (0, "0\n1\n2\n", "")),
        ("test.here", (86, "", "test.here\n")),
        ("test.here:3", (86, "0\n1\n", "test.here\n")),
        ("test.here:4", (0, "0\n1\n2\n", "")),
    ],
)
def test_a_process_dies_at_the_passage_that_was_named(
    tmp_path: Path, wanted: str | None, result: tuple[int, str, str]
) -> None:
    assert run(tmp_path, wanted) == result


def test_what_stands_in_for_the_environment_is_asked_at_every_passage(monkeypatch: pytest.MonkeyPatch) -> None:
    # Taken back afterwards: other tests walk through every name.
    monkeypatch.setattr(failpoints, "_names", {"test.simulated"})
    passed = list[str]()
    monkeypatch.setattr(failpoints, "passage", passed.append)
    failpoints.failpoint("test.simulated")
    failpoints.failpoint("test.simulated")
    assert passed == ["test.simulated"] * 2


def test_a_name_that_nobody_registered_is_an_error() -> None:
    with pytest.raises(ValueError, match="not registered"):
        failpoints.failpoint("test.misspelt")
