"""Tables and examples: one identifier a record, one length, numbers or text."""

from __future__ import annotations

import numpy as np
import pytest

from private_learning.records import (
    DataError,
    Examples,
    Table,
    records_of,
)


@pytest.mark.parametrize(
    ("inputs", "labels", "patients", "message"),
    [
        (np.ones(3), [0, 1, 2], None, "further axis"),
        (np.ones((0, 3)), [], None, "at least one"),
        (np.array([["a"]]), [0], None, "numbers"),
        (np.ones((2, 3)), [0], None, "one label per example"),
        (np.ones((2, 3)), [0, 1], ["a"], "1 identifiers for 2"),
        (np.ones((2, 3)), [0, 1], ["a", ""], "no patient identifier"),
    ],
)
def test_bad_examples_are_refused(inputs, labels, patients, message: str):
    with pytest.raises(DataError, match=message):
        Examples.of(inputs, labels, patients)


def test_a_table_needs_columns_of_one_length():
    for columns in ({}, {"a": []}, {"a": [1], "b": [1, 2]}, {"a": [[1, 2]]}):
        with pytest.raises(DataError):
            Table.of(columns)


def test_records_remember_whether_their_patients_have_names() -> None:
    named = Table.of({"id": ["a", "b"], "x": [1, 2]}, patient_column="id")
    assert (named.named, named.take([1]).named, records_of(named).named) == (True, True, True)
    bare = Table.of({"x": [1, 2]})
    assert (bare.named, bare.take([1]).named) == (False, False)
    images = np.zeros((2, 3))
    assert (Examples.of(images, [0, 1]).named, Examples.of(images, [0, 1], ["a", "b"]).take([0]).named) == (False, True)


def test_labels_of_examples_may_have_further_axes() -> None:
    masks = np.arange(12).reshape(3, 2, 2)
    assert Examples.of(np.eye(3), masks).take([2]).labels.tolist() == [[[8, 9], [10, 11]]]


def test_a_masked_identifier_is_none() -> None:
    masked = np.ma.array([17, 18], mask=[False, True])
    with pytest.raises(DataError, match="1 of 2 records have no patient identifier, the first in row 2"):
        Table.of({"x": [1, 2], "who": masked}, patient_column="who")
    assert Table.of({"x": [1, 2], "who": np.ma.array([17, 18])}, patient_column="who").patients == ("17", "18")
