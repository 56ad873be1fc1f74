"""Every process that collects the tests names them alike: workers that share a run stop at once where they do not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
COLLECT = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
LONGEST = 80


def _collected(hash_seed: str) -> list[str]:
    """The node ids of the whole suite in a process of its own, in the order of collection."""
    # What steers the run around this one (PYTEST_ADDOPTS, a worker's name) is not for the run inside it.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = kept | {"PYTHONHASHSEED": hash_seed}
    run = subprocess.run(COLLECT, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    return [line for line in run.stdout.splitlines() if line.startswith("tests/") and "::" in line]


def test_tests_have_the_same_short_names_in_every_process() -> None:
    # One after the other, so that every file is read again seconds later, however busy the machine is. Both
    # collections are in one test: two tests could be given to two workers, and each would collect twice.
    first, second = _collected("1"), _collected("2")
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
