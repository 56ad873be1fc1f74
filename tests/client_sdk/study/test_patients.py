"""A hospital's patients as questions see them."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from client_sdk.study.patients import AskedPatients
from private_learning.records import DataError, Examples, Table
from study_protocol.queries.variables import UnreadableColumn
from tests.factories.hospitals import plain_policy
from tests.factories.questions import question

RECORDS = Table.of({"age": [30.0, 70.0, 50.0, 40.0], "who": ["b", "a", "b", "c"]}, patient_column="who")
MEAN = question({"kind": "moments", "numbers": [{"column": "age", "low": 0, "high": 100}], "rows": "mean"})


def test_every_patient_is_one_row_in_the_order_of_the_first_rows() -> None:
    asked = AskedPatients.of_remaining(RECORDS)
    assert asked.identifiers == ("b", "a", "c")
    assert np.asarray(asked.columns(MEAN)["age"]).tolist() == [40, 70, 40]


def test_only_patients_with_room_are_kept() -> None:
    asked = AskedPatients.of_remaining(RECORDS)
    kept = asked.columns(MEAN, np.array([True, False, True]))
    assert np.asarray(kept["age"]).tolist() == [40, 40]


def test_who_is_on_the_policy_s_list_is_not_asked_about() -> None:
    asked = AskedPatients.of(RECORDS, plain_policy(excluded_patients=["b"]))
    assert asked.identifiers == ("a", "c")


def test_a_column_that_lacks_is_named() -> None:
    other = question({"kind": "table", "variables": [{"column": "weight", "edges": [60]}]})
    with pytest.raises(UnreadableColumn, match="'weight'"):
        AskedPatients.of_remaining(RECORDS).columns(other)


def test_images_have_no_columns_to_ask_about() -> None:
    images: Any = Examples.of(np.zeros((3, 2, 2)), [0, 1, 0])
    with pytest.raises(DataError, match="images and arrays have none"):
        AskedPatients.of_remaining(images)


def test_rows_without_a_patient_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    assert len(AskedPatients.of_remaining(Table.of({"age": [1.0, 2.0]})).identifiers) == 2
    assert "every row counts as a patient of its own" in caplog.text
    caplog.clear()
    AskedPatients.of_remaining(RECORDS)
    assert caplog.text == ""
