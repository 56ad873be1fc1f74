"""Records of programs: frames, mappings, data sets, and the declared format."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from private_learning.errors import ConfigurationError
from private_learning.records import (
    DataError,
    Examples,
    Table,
    one_per_patient,
    records_of,
)
from private_learning.records.in_memory import as_declared
from private_learning.records.table_format import TableFormat
from study_protocol.cells import read_numbers


def test_a_data_frame_is_a_table():
    frame = pd.DataFrame({"who": ["a", "b"], "x": [1, 2], "t": ["u", None], "flag": [True, False]})
    table = Table.of(frame, patient_column="who")
    assert table.patients == ("a", "b")
    assert table.columns["t"].tolist() == ["u", None]
    assert table.columns["flag"].tolist() == [1.0, 0.0]


def test_one_record_per_patient_keeps_the_first():
    table = Table.of({"who": [7.0, 8.0, 7.0], "x": [1, 2, 3]}, patient_column="who")
    kept = one_per_patient(table)
    assert kept.patients == ("7", "8")
    assert kept.columns["x"].tolist() == [1.0, 2.0]
    examples = one_per_patient(Examples.of(np.eye(3), [0, 1, 2], ["a", "a", "b"]))
    assert examples.labels.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("records.csv", "name of a file. Read it with load_records"),
        (np.ones((2, 2)), "a ndarray does not name its labels. Make Examples.of"),
        ((np.ones((2, 2)), np.ones(2)), "a tuple does not name its labels"),
        (torch.ones(2, 2), "a Tensor does not name"),
        (iter([1]), "A data frame, a Table, Examples or a map-style data set"),
    ],
    ids=["path", "array", "arrays", "tensor", "iterator"],
)
def test_what_is_no_record_comes_with_what_to_pass_instead(given: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        records_of(given)


def test_data_frames_and_records_pass_as_they_are() -> None:
    frame = pd.DataFrame({"x": [1, 2], "t": ["u", None]})
    table = records_of(frame)
    assert isinstance(table, Table)
    assert table.columns["t"].tolist() == ["u", None]
    assert records_of(table) is table


FORMAT, OTHER = TableFormat("semicolon", decimal="comma"), TableFormat("comma", decimal="point")


def read_table(declared: bool) -> Table:
    return replace(Table.of({"x": [1, 2]}), format=FORMAT, declared=declared)


def test_records_of_a_declared_format_pass_and_so_do_those_of_no_text_file() -> None:
    table = read_table(declared=True)
    assert as_declared(table, FORMAT) is table
    assert as_declared(table, None) is table
    proposed = read_table(declared=False)
    assert as_declared(proposed, FORMAT) is proposed
    for records in (Table.of({"x": [1]}), Examples.of(np.ones((1, 2)), [0])):
        assert as_declared(records, OTHER) is records


def test_another_format_than_the_ledger_s_and_an_undeclared_one_are_refused_with_what_to_write() -> None:
    with pytest.raises(ConfigurationError, match="declared with comma") as refused:
        as_declared(read_table(declared=True), OTHER)
    assert repr(OTHER) in str(refused.value)
    with pytest.raises(ConfigurationError, match="is not declared") as refused:
        as_declared(read_table(declared=False), None)
    assert repr(FORMAT) in str(refused.value)


def test_texts_of_a_mapping_are_read_by_the_format_that_is_given() -> None:
    table = records_of({"x": ["1,5", "2"]}, table_format=FORMAT)
    assert isinstance(table, Table)
    assert table.format == FORMAT
    assert read_numbers(table.columns["x"]).values.tolist() == [1.5, 2.0]


def test_a_patient_column_belongs_to_tables() -> None:
    with pytest.raises(DataError, match="patient_column belongs to tables"):
        records_of(Examples.of(np.ones((1, 2)), [0]), patient_column="who")
