"""What a hospital is told of columns that its table lacks and that the study lets it lack."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from client_sdk.guard.policy import QueryRules, SitePolicy
from client_sdk.study.lacking import LackingColumn, lacking_columns
from client_sdk.study.preparation import check_data
from private_learning.records import DataError, Examples, Table
from private_learning.tasks import load
from tests.factories.settings import settings

PARAMETERS = {
    "label": "ill",
    "column.age": "18..90; missing=50",
    "column.glucose": "50..400; missing=100; site-may-lack",
    "column.glucose_max": "50..400; missing=100; site-may-lack",
    "column.ward": "a|b; missing; site-may-lack",
}
TASK = load("logistic-regression", PARAMETERS)


def lacking(*names: str) -> dict[str, str | None]:
    table = Table.of({name: [1.0, 0.0] for name in ("ill", "age", *names)})
    return {column.name: column.near for column in lacking_columns(TASK, table)}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("glucose", "glucose_max", "ward"), {}),
        ((), {"glucose": None, "glucose_max": None, "ward": None}),
        # Names that a person takes for the study's: a space, capitals, another form of a letter, a sign that is unseen.
        (("Glucose\u00a0", "glucose_max", "ｗａｒｄ"), {"glucose": "Glucose", "ward": "ｗａｒｄ"}),
        (("glu\u200bcose", "glucose_max", "WARD"), {"glucose": "glu\u200bcose", "ward": "WARD"}),
        (("glucos", "glucose_max", "wards"), {"glucose": "glucos", "ward": "wards"}),
        # What the study uses is meant for itself.
        (("glucose_max", "ward"), {"glucose": None}),
        (("glucose", "unlike", "zzz"), {"glucose_max": None, "ward": None}),
    ],
)
def test_lacking_columns_are_named_each_with_the_name_that_may_be_meant(
    names: tuple[str, ...], expected: dict[str, str | None]
) -> None:
    found = lacking(*names)
    assert {name: None if near is None else near.strip() for name, near in found.items()} == expected


def test_the_words_say_what_becomes_of_the_column_and_what_to_do() -> None:
    assert LackingColumn("lab", None).in_words.endswith("The study allows this (site-may-lack)")
    near = LackingColumn("glucose", "Glucose ").in_words
    assert "The table has 'Glucose ': is it meant? Then map it in columns.toml" in near
    assert "missing for all patients here" in near


def test_other_records_and_tasks_lack_nothing() -> None:
    examples = Examples.of(np.zeros((2, 3)), [0, 1])
    assert lacking_columns(TASK, examples) == ()


def test_the_check_names_them_and_counts_their_cells_as_missing() -> None:
    study = settings(training={"task": "logistic-regression", "task_parameters": PARAMETERS})
    table = Table.of({"ill": [0, 1] * 10, "age": range(30, 50), "glucose": [90.0] * 20, "Ward": ["a", "b"] * 10})
    found = check_data(table, SitePolicy(), study)
    assert found.lacking == (LackingColumn("glucose_max", None), LackingColumn("ward", "Ward"))
    assert {counts.column: counts.missing for counts in found.counts} == {
        "age": 0,
        "glucose": 0,
        "glucose_max": 20,
        "ward": 20,
    }
    assert found.unused == ("Ward",)


def test_a_column_that_lacks_without_the_option_is_refused_as_before() -> None:
    study = settings(training={"task": "logistic-regression", "task_parameters": PARAMETERS})
    table = Table.of({"ill": [0, 1] * 10, "Age": range(30, 50)})
    with pytest.raises(DataError, match=r"lacks 1 of the study's columns: 'age' \(did you mean 'Age'\?\)"):
        check_data(table, SitePolicy(), study)


def test_a_column_that_the_policy_does_not_allow_counts_as_lacking(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    study = settings(training={"task": "logistic-regression", "task_parameters": PARAMETERS})
    rules = SitePolicy(statistics=QueryRules(allowed_columns=frozenset({"ill", "age", "glucose", "ward"})))
    columns = {"ill": [0, 1] * 10, "age": range(30, 50), "ward": ["a", "b"] * 10}
    table = Table.of(columns | {"glucose": [90.0] * 20, "glucose_max": [99.0] * 20})
    found = check_data(table, rules, study)
    assert [column.name for column in found.lacking] == ["glucose_max"]
    assert {use.name: use.missing for use in found.inputs}["glucose_max"] == 20
