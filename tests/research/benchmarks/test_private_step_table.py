"""The page of private training shows the recorded figures of every model that is measured."""

from __future__ import annotations

import json
from typing import Any

import pytest

from research.benchmarks.private_step_models import WORKLOADS
from research.benchmarks.private_step_table import OURS, PAGE, RESULTS, WITH_NOISE, page_with, text_of


def _report(**methods: float) -> dict[str, Any]:
    """Every workload with the same figures."""
    times = {method: {"ratio": ratio} for method, ratio in methods.items()}
    entry = {"tuned": times, "peak_mib": {"plain SGD": {"in use": 40.0}, WITH_NOISE: {"in use": 50.0}}}
    return {f"{name}, batch {batch}": entry for name, chosen in WORKLOADS.items() for batch in chosen.batches}


def test_the_page_holds_the_recorded_table() -> None:
    page = PAGE.read_text()
    assert page_with(page, json.loads(RESULTS.read_text())) == page


def test_figures_stand_below_their_heads_and_what_was_not_measured_is_left_blank() -> None:
    lines = text_of(_report(**{OURS: 1.25, WITH_NOISE: 1.5, "Opacus per-sample": 12.34})).splitlines()
    heads, first = ([cell.strip() for cell in line.strip("|").split("|")] for line in (lines[0], lines[2]))
    found = dict(zip(heads, first, strict=True))
    assert found["model, batch"] == "TF CNN, 64"
    assert (found["clipped sum"], found["with exact noise"]) == ("1.25", "1.50")
    assert found["Opacus per-sample"] == "12.3"
    assert (found["Opacus ghost"], found["MiB of Opacus ghost"]) == ("", "")
    assert (found["MiB of plain SGD"], found["MiB with noise"]) == ("40", "50")


def test_a_model_without_figures_is_not_passed_over() -> None:
    report = _report(**{OURS: 1.0, WITH_NOISE: 1.0})
    del report["LSTM, batch 64"]
    with pytest.raises(KeyError, match="LSTM"):
        text_of(report)
