"""Several tables over the same patients, and how much one patient moves them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from study_protocol.queries.answer import NoisedSum
from study_protocol.queries.kinds.tables import root_up
from tests.factories.questions import DOCUMENTS, answer_without_noise, column, patients, question


def test_tables_are_those_of_pandas() -> None:
    columns = patients(3000)
    frame = pd.DataFrame(columns)
    sexes = frame["sex"].map({"f": "f", "m": "m", "x": "other"}).fillna("missing").value_counts()
    bins = pd.cut(frame["age"], [-np.inf, 40, 60, 80, np.inf], right=False, labels=False).fillna(4).astype(int)
    there = frame["pressure"].notna().sum()
    expected = [
        *sexes.reindex(["f", "m", "other", "missing"]),
        *bins.value_counts().sort_index(),
        there,
        3000 - there,
    ]
    several = answer_without_noise(question(DOCUMENTS["tables"]), columns)
    assert column(several, "tables") == pytest.approx(np.array(expected, float), rel=1e-12)


@pytest.mark.parametrize("square", [0, 1, 2, 3, 9, 10**6 + 1, 2**53 + 1, 4**40])
def test_a_root_is_never_below_the_exact_one(square: int) -> None:
    """In fractions. It is exact for squares, and otherwise one step of a float above at most."""
    root = root_up(square)
    assert Fraction(root) ** 2 >= square
    below = math.nextafter(root, -math.inf)
    assert root == 0 or Fraction(math.nextafter(below, -math.inf)) ** 2 < square
    assert (math.isqrt(square) ** 2 == square) == (Fraction(root) ** 2 == square)


def test_the_number_of_patients_is_weighed_by_the_size_of_each_table() -> None:
    """Tables of 2 and 3 cells say 10 and 14 patients with variances 2 and 3: (10/2 + 14/3) / (1/2 + 1/3)."""
    presence, ages = {"column": "x", "presence": True}, {"column": "age", "edges": [40]}
    asked = question({"kind": "tables", "tables": [[presence], [ages]]})
    answer = asked.answer(NoisedSum(np.array([6.0, 4.0, 5.0, 5.0, 4.0]), 1.0, 1))
    patients_in_all = (10 / 2 + 14 / 3) / (1 / 2 + 1 / 3)
    assert column(answer, "patients") == pytest.approx([patients_in_all])
    assert column(answer, "patients", "dp_error") == pytest.approx([math.sqrt(1 / (1 / 2 + 1 / 3))])
    up, down = (patients_in_all - 10) / 2, (patients_in_all - 14) / 3
    assert column(answer, "tables") == pytest.approx([6 + up, 4 + up, 5 + down, 5 + down, 4 + down])
