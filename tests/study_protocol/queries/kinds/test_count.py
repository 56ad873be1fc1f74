"""Counts of patients: of all of them, and of those who meet conditions."""

from __future__ import annotations

import numpy as np

from study_protocol.queries.answer import NoisedSum
from tests.factories.questions import DOCUMENTS, answer_without_noise, column, patients, question


def test_who_is_asked_about_is_who_meets_every_condition() -> None:
    columns = patients(3000)
    where = [{"column": "age", "low": 50, "high": 70}, {"column": "sex", "categories": ["m", "x"]}]
    found = answer_without_noise(question(DOCUMENTS["count"], where=where), columns)
    met = (columns["age"] >= 50) & (columns["age"] < 70) & np.isin(columns["sex"], ["m", "x"])
    assert column(found, "count").tolist() == [met.sum()]


def test_a_count_below_zero_is_shown_as_nobody_with_its_raw_value() -> None:
    asked = question(DOCUMENTS["count"])
    answer = asked.answer(NoisedSum(np.array([-3.0]), 4.0, 1))
    names = ("estimate", "raw", "dp_error", "sampling_error", "low")
    assert [column(answer, "count", name)[0] for name in names] == [0, -3, 4, 0, 0]
    assert asked.assumed(250) is not None
    assert asked.total({"x": np.zeros(7)}, 0.25).tolist() == [28]
