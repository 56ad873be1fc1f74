"""The table of a measurement from its log."""

from __future__ import annotations

import json

import numpy as np
import pytest

from research.synthesis import judge
from research.synthesis.data import Split, variables_of

FIGURES = {"edges": 1.0, "variation": 0.02, "sampling": 0.01, "accuracy": 80.0, "AUC": 0.9, "boosting AUC": 0.8}
REAL = {f"real {key}": FIGURES[key] for key in ("accuracy", "AUC", "boosting AUC")}


def test_an_interrupted_log_has_a_row_for_each_case() -> None:
    entries = [("adult", 1.0, 0.01), ("breast cancer", 1.0, 0.3), ("adult", 1.0, 0.03)]
    lines = [
        json.dumps(
            {
                "data": name,
                "epsilon": epsilon,
                "seed": 0,
                "figures": FIGURES | REAL | {"variation": variation, "seconds": 1.0},
            }
        )
        for name, epsilon, variation in entries
    ]
    _, _, adult, cancer = judge.table_of(judge.logged(["a warning", *lines])).splitlines()
    assert adult.startswith("| adult | 1 | 1.0 | 0.0200 ± 0.0100 (0.0100) | 80.0 ± 0.0 (80.0)")
    assert (adult.endswith(" 2 |"), cancer.endswith(" 1 |")) == (True, True)


def test_every_case_of_a_seed_is_measured_before_the_next_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    split = Split(variables_of({"age": (40, 60)}), np.zeros((4, 2), np.int64), np.zeros((4, 2), np.int64))
    monkeypatch.setattr(judge, "SPLITS", dict.fromkeys(("one", "two"), lambda seed: split))
    monkeypatch.setattr(judge, "classified", lambda split, records: {"AUC": 0.5})
    monkeypatch.setattr(judge, "judged", lambda split, epsilon, seed: {"edges": seed})
    found = list(judge.runs([("one", 1.0), ("two", 0.3)], range(2), validates=False))
    assert [(name, seed) for (name, _), seed, _ in found] == [("one", 0), ("two", 0), ("one", 1), ("two", 1)]
    assert found[0][2] == {"edges": 0, "real AUC": 0.5}
