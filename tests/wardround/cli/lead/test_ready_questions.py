"""Ready questions about declared columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from client_sdk.errors import ConfigurationError
from study_protocol.queries.variables import Range, Variable
from tests.factories.settings import settings, statistics_settings
from wardround.cli.lead.ready_questions import declared, ready_question

AGE = Range(column="age", low=18, high=90)
SEX = Variable(column="sex", categories=("f", "m"))


def test_a_ready_question_is_about_the_columns_with_the_noise_that_is_named() -> None:
    asked = ready_question("missingness", (AGE, SEX), 20.0).question
    assert (asked.kind, asked.noise_multiplier, asked.columns) == ("tables", 20.0, ("age", "sex"))
    # Present or missing, of two columns.
    assert asked.cells == 4
    about = ready_question("evaluation", (SEX,), 4.0, 12).question
    assert (about.kind, about.model_number) == ("evaluation", 12)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("nothing", (AGE,), 3.0),
            "no ready question 'nothing': there are table-one, missingness, sites, typical, survival, regression, "
            "evaluation",
        ),
        (("table-one", (AGE,), 3.0, 1), "--model goes with --ready evaluation, which needs it"),
        (("evaluation", (AGE,), 3.0), "--model goes with --ready evaluation"),
        (("survival", (SEX, AGE), 3.0), "these columns do not make a question survival: "),
        (("table-one", (AGE,), -3.0), "Input should be greater than or equal to"),
        (("table-one", (AGE, AGE), 3.0), "one stands twice"),
    ],
)
def test_what_makes_no_question_is_named(arguments: Any, words: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        ready_question(*arguments)
    assert words in str(error.value)


def test_columns_are_those_of_the_file_or_those_that_the_study_trains_on(tmp_path: Path) -> None:
    path = tmp_path / "columns.toml"
    path.write_text('[[columns]]\ncolumn = "sex"\ncategories = ["f", "m"]\n')
    assert declared(path, None) == (SEX,)
    parameters = {
        "label": "ill",
        "column.age": "18..90",
        "column.sex": "f|m; missing; missing-values=u",
        # Questions read no dates.
        "column.admitted": "2020-01-01..2023-12-31",
    }
    study = settings(training={"task_parameters": parameters})
    assert declared(None, study) == (AGE, SEX.model_copy(update={"missing_values": ("u",)}))


@pytest.mark.parametrize("name", ["table-one", "missingness", "sites", "typical"])
def test_categories_that_questions_have_cells_for_are_counted_there(name: str) -> None:
    parameters = {
        "label": "ill",
        "column.ward": "medicine|other|surgery",
        "column.smoker": "yes|no|missing; missing; missing-values=-1",
        "column.only": "missing|other",
        "column.age": "18..90",
    }
    columns = declared(None, settings(training={"task_parameters": parameters}))
    assert {column.column: column for column in columns} == {
        "ward": Variable(column="ward", categories=("medicine", "surgery")),
        "smoker": Variable(column="smoker", categories=("yes", "no"), missing_values=("-1", "missing")),
        "only": Variable(column="only", presence=True, missing_values=("missing",)),
        "age": AGE,
    }
    assert ready_question(name, columns, 6.0).question.columns


def test_a_column_that_no_question_can_read_is_named() -> None:
    parameters = {"label": "ill", "column.ward": "|".join(f"ward {number}" for number in range(80))}
    with pytest.raises(ConfigurationError, match=r"no question can be about all of the study's columns: .*--columns"):
        declared(None, settings(training={"task_parameters": parameters}))


@pytest.mark.parametrize("study", [None, statistics_settings(), settings(training={"task_parameters": {"label": "x"}})])
def test_a_study_without_columns_needs_a_file(study: Any) -> None:
    with pytest.raises(ConfigurationError, match="this study declares no columns: pass --columns"):
        declared(None, study)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("columns = ", "is no TOML: line 1"),
        ("", "columns: is missing"),
        ('[[columns]]\ncolumn = "x"\nlow = 3.0\n', "is no file of columns"),
        ("columns = []", "must have at least 1 entry"),
    ],
)
def test_what_is_no_file_of_columns_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "columns.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as error:
        declared(path, None)
    assert words in str(error.value)
