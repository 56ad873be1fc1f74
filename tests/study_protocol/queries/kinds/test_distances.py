"""How much training has cost each patient, as a share of the most it can be, in a block for every hospital."""

from __future__ import annotations

import numpy as np
import pytest

from study_protocol.queries.answer import NoisedSum
from study_protocol.queries.kinds.distances import EDGES, LOSS, Distances
from tests.factories.questions import question

ASKED = Distances(kind="distances", noise_multiplier=2.0, by="hospital", hospitals=("city", "rural"))


def test_a_patient_moves_one_count_of_one_block_by_one() -> None:
    losses = np.array([0.0, 0.01, 0.0100001, 0.3, 0.95, 1.0, 7.0, np.nan])
    counts = ASKED.total({LOSS: losses}, 1.0)
    assert counts.tolist() == [2, 1, 0, 1, 0, 0, 0, 4]
    assert (ASKED.total({LOSS: losses[1:]}, 0.25) * 0.25).tolist() == [1, 1, 0, 1, 0, 0, 0, 4]
    assert ASKED.sensitivity == 1.0
    assert ASKED.placed(counts, "rural").tolist() == [0] * len(EDGES) + counts.tolist()


def test_the_share_that_was_clipped_is_read_with_its_noise() -> None:
    total = np.zeros((2, len(EDGES)))
    total[0, 0], total[0, -1] = 900.0, 100.0
    total[1, 0], total[1, -1] = 30.0, 20.0
    answer = ASKED.answer(NoisedSum(total.ravel(), 4.0, 1))
    table = next(table for table in answer.tables if table.name == "clipped-by-hospital")
    city, rural = (dict(zip(table.columns, row, strict=True)) for row in table.rows)
    assert (city["estimate"], rural["estimate"]) == (pytest.approx(0.1), pytest.approx(0.4))
    # Variance of top - r·total under noise of variance 16 on 8 counts: 16·(1 - 2r + 8r²).
    assert city["dp_error"] == pytest.approx(4 * np.sqrt(1 - 0.2 + 0.08) / 1000, rel=1e-6)
    assert rural["low"] < 0.4 < rural["high"]  # type: ignore[operator]


def test_conditions_are_refused() -> None:
    with pytest.raises(ValueError, match="Leave it out"):
        question({"kind": "distances", "where": [{"column": "age", "low": 50}]})
