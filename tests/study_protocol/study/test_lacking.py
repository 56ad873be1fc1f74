"""Columns that a study lets a site lack, as its settings name them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from private_learning.tasks.columns import read_columns
from study_protocol.study.lacking import LackingColumns, columns_that_may_lack
from study_protocol.versions import LACKING_COLUMNS, min_protocol, needed_for
from tests.factories.settings import settings, statistics_settings

COLUMNS = {
    "column.age": "18..90",
    "column.chol": "100..400; missing=240;site-may-lack ; missing-values=0",
    "column.site-may-lack": "0..1; missing=0",
    "column.Gro\u0308ße": "a|b; site-may-lack; missing",
    "column.odd": "site-may-lack|b; missing",
}


def of(columns: dict[str, str]) -> dict[str, Any]:
    training = {"task": "logistic-regression", "task_parameters": {"label": "ill", **columns}}
    return settings(training=training).as_json()


def test_the_columns_are_those_that_a_hospital_reads_with_the_option() -> None:
    assert columns_that_may_lack(of(COLUMNS)) == ("Größe", "chol")
    assert {column.name for column in read_columns(COLUMNS) if column.may_lack} == {"Größe", "chol"}


def test_studies_without_the_option_have_none_and_need_no_newer_program() -> None:
    for values in (of({"column.age": "18..90; missing=40"}), statistics_settings(masked=False).as_json()):
        assert columns_that_may_lack(values) == ()
        assert not any("site-may-lack" in feature for feature in needed_for(values, 1))
    assert min_protocol(of(COLUMNS)) == LACKING_COLUMNS


@pytest.mark.parametrize(
    "columns", [["a", "a"], [""], ["a\n"], [1], "a", [f"c{k}" for k in range(10_001)]], ids=range(6)
)
def test_other_words_are_refused(columns: object) -> None:
    with pytest.raises(ValidationError):
        LackingColumns.model_validate({"columns": columns})


def test_every_name_of_a_study_can_be_told() -> None:
    names = columns_that_may_lack(of({f"column.{'long ' * 40}": "0..1; missing=0; site-may-lack"}))
    assert LackingColumns(columns=names).columns == names == ("long " * 40,)


def test_to_leave_the_columns_out_is_no_word() -> None:
    with pytest.raises(ValidationError):
        LackingColumns.model_validate({})
    assert LackingColumns(columns=None).columns is None
