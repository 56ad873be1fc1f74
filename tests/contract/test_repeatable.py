"""Every process that collects the tests names them alike: workers that share a run stop at once where they do not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COLLECT = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
LONGEST = 140


# A time in a name has whole seconds, or two on some file systems.
APART_SECONDS = 2.5


def _collect(hash_seed: str, output: Path) -> subprocess.Popen[bytes]:
    """Collect the whole suite in a process of its own."""
    # What steers the run around this one (PYTEST_ADDOPTS, a worker's name) is not for the run inside it.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = kept | {"PYTHONHASHSEED": hash_seed}
    # Into a file: a pipe that nobody reads yet would hold the process up.
    with output.open("wb") as file:
        return subprocess.Popen(COLLECT, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT)


def _collected(process: subprocess.Popen[bytes], output: Path) -> list[str]:
    """The node ids, in the order of collection."""
    code = process.wait()
    text = output.read_text()
    assert code == 0, text[-4000:]
    return [line for line in text.splitlines() if line.startswith("tests/") and "::" in line]


@pytest.mark.slow
def test_tests_have_the_same_short_names_in_every_process(tmp_path: Path) -> None:
    # Both read every file, the second seconds after the first, and for the rest share the machine. Both are in one
    # test: two tests could be given to two workers, and each would collect twice.
    with _collect("1", tmp_path / "first") as early:
        time.sleep(APART_SECONDS)
        with _collect("2", tmp_path / "second") as late:
            first, second = _collected(early, tmp_path / "first"), _collected(late, tmp_path / "second")
    assert len(first) > 1000
    assert len(first) == len(second)
    differing = [pair for pair in zip(first, second, strict=True) if pair[0] != pair[1]]
    assert not differing, differing[:3]

    parameters = {name: name.partition("[")[2] for name in first}
    # A backslash is how pytest writes raw bytes and control characters.
    unplain = [name for name, given in parameters.items() if "\\" in given or " at 0x" in given]
    assert not unplain, unplain
    too_long = [name for name, given in parameters.items() if len(given) > LONGEST]
    assert not too_long, too_long
