"""The comparison of queries with rounds of training runs at its smallest, and its ratios are of its own turns."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from research.benchmarks.load.coordinators import served
from research.benchmarks.queries import COMPARED, RESULTS, hospital_ms, row, turn

SMALLEST = ("--hospitals", "5", "--cells", "16", "--rounds", "1", "--turns", "1")
ROWS = {"5 hospitals, under masks", "5 hospitals, in the clear"}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_rounds_and_queries_of_the_smallest_size_are_compared() -> None:
    # Nothing is set in this process's environment, as it would be where seconds are of interest.
    with served("sqlite", keeps_freed=False) as here:
        found = {masked: row([turn(here, 0, 5, masked, 16, 1)]) for masked in (True, False)}
    own = hospital_ms(16, 100, repeats=1)
    assert own["sum"] > 0
    recorded = json.loads(RESULTS.read_text())["rows"].values()
    for figures in found.values():
        assert all(figures[f"ratio of {what}"] > 0 for what in COMPARED)
        assert figures["query answered_seconds"] > 0
        # The record in the repository was made by the same program.
        assert all(set(figures) < set(one) for one in recorded)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_it_runs_and_writes_what_was_measured(tmp_path: Path) -> None:
    output = tmp_path / "queries.json"
    # A process of its own: it sets what coordinators find in their environment.
    command = [sys.executable, "-m", "research.benchmarks.queries", *SMALLEST, "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    found = json.loads(output.read_text())
    assert (found["cells"], found["turns"], set(found["rows"])) == (16, 1, ROWS)
    for figures in found["rows"].values():
        for what in COMPARED:
            assert figures[f"ratio of {what}"] == figures[f"query {what}"] / figures[f"training {what}"]
        assert figures["query answered_seconds"] > 0
    assert set(json.loads(RESULTS.read_text())) == set(found)


def test_ratios_are_medians_over_turns_and_not_of_medians() -> None:
    turns = [
        {"training": dict.fromkeys(COMPARED, 1.0), "query": dict.fromkeys(COMPARED, 2.0) | {"answered_seconds": 5.0}},
        {"training": dict.fromkeys(COMPARED, 4.0), "query": dict.fromkeys(COMPARED, 4.0) | {"answered_seconds": 3.0}},
        {"training": dict.fromkeys(COMPARED, 8.0), "query": dict.fromkeys(COMPARED, 24.0) | {"answered_seconds": 9.0}},
    ]
    found = row(turns)
    for what in COMPARED:
        assert found[f"ratio of {what}"] == 2.0
        assert found[f"ratios of {what}"] == [1.0, 2.0, 3.0]
        assert (found[f"training {what}"], found[f"query {what}"]) == (4.0, 4.0)
    assert found["query answered_seconds"] == 5.0
