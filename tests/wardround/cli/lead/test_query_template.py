"""The files of `wardround query template`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from client_sdk.api.questions import read_question
from tests.factories.commands import Run
from tests.factories.questions import EXAMPLES, question
from wardround.cli.lead.query_template import COLUMNS, example, inline, kinds, template
from wardround.cli.lead.ready_questions import declared


@pytest.mark.quick("covariance")
@pytest.mark.parametrize("kind", sorted(kinds()))
def test_every_kind_has_a_template_that_can_be_asked_and_says_every_entry(run: Run, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "question.toml"
    run("query", "template", kind, "-o", str(path))
    question = read_question(path).question
    assert question.kind == kind
    text = path.read_text()
    # The coordinator fills these in, at later steps of a question.
    for name in type(question).model_fields.keys() - {"step", "at", "frame", "total_noise_multiplier"}:
        assert f"\n{name} = " in text or f"\n# {name}" in text
    # Written down again it is the same question.
    assert read_question(question).digest() == read_question(path).digest()


@pytest.mark.parametrize("kind", ["moments", "evaluation"])
def test_a_template_leaves_the_form_to_the_study_in_which_it_is_asked(kind: str) -> None:
    text = template(kinds()[kind])
    assert "\n# centred: left out" in text
    assert "# centred = " not in text


@pytest.mark.parametrize("kind", sorted(kinds()))
def test_the_values_of_a_question_are_written_so_that_it_is_read_back(tmp_path: Path, kind: str) -> None:
    where = [] if kind == "distances" else [{"column": "age", "low": 18.0}]
    asked = question(EXAMPLES[kind], title="Of all", where=where)
    path = tmp_path / "question.toml"
    path.write_text(template(type(asked), asked.model_dump(mode="json")))
    assert read_question(path).question == asked


def test_a_value_is_written_in_one_line_without_what_says_nothing() -> None:
    entries = {"column": "x", "low": 1.0, "edges": None, "presence": False, "missing_values": [], "kind": ("a", 2)}
    assert inline(entries) == '{ column = "x", low = 1.0, kind = ["a", 2] }'
    assert inline([{"a": 1}, "b"]) == '[{ a = 1 }, "b"]'


def test_no_column_stands_twice_in_an_example() -> None:
    for kind in kinds().values():
        columns = re.findall(r"'column': '([a-z]+)'", str(example(kind)))
        assert len(columns) == len(set(columns))


def test_the_file_of_columns_is_one_for_ready_questions(tmp_path: Path) -> None:
    path = tmp_path / "columns.toml"
    path.write_text(COLUMNS)
    assert [column.column for column in declared(path, None)] == ["age", "sex", "cholesterol"]
