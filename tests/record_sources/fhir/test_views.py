"""Views of SQL on FHIR: cases of our own, and those of the specification where its folder is named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from record_sources.errors import SourceError
from research.benchmarks.view_tests import tried_cases
from tests.record_sources.fhir.view_cells import PATIENT, column, view


def test_the_specification_s_own_tests_pass() -> None:
    folder = os.environ.get("WARDROUND_SQL_ON_FHIR")
    if folder is None:
        pytest.skip("WARDROUND_SQL_ON_FHIR does not name the folder `tests` of github.com/FHIR/sql-on-fhir-v2")
    cases = list(tried_cases(Path(folder)))
    assert cases
    assert [case for case in cases if not case.passed] == []


def test_selections_are_crossed_nested_and_united() -> None:
    names = {"forEach": "name", "column": [column("place", "%rowIndex"), column("family", "family")]}
    given = {"forEachOrNull": "given", "column": [column("given", "$this"), column("n", "%rowIndex")]}
    found = view({"column": [column("id", "id")]}, {**names, "select": [given]})
    assert found.columns == ("id", "place", "family", "given", "n")
    assert found.rows(PATIENT) == [
        ("p1", 0, "A", "B", 0),
        ("p1", 0, "A", "C", 1),
        ("p1", 1, "D", None, 0),
    ]
    assert found.rows({"resourceType": "Patient", "id": "p9"}) == []
    assert found.rows({"resourceType": "Group", "id": "g"}) == []
    united = {"unionAll": [{"column": [column("x", "id")]}, {"forEach": "name", "column": [column("x", "family")]}]}
    assert view(united).rows(PATIENT) == [("p1",), ("A",), ("D",)]


def test_a_repeat_reaches_every_depth() -> None:
    answers = {
        "resourceType": "QuestionnaireResponse",
        "item": [{"linkId": "1", "item": [{"linkId": "1.1", "answer": [{"item": [{"linkId": "1.1.1"}]}]}]}],
    }
    items = {"repeat": ["item", "answer.item"], "column": [column("link", "linkId"), column("n", "%rowIndex")]}
    found = view(items, resource="QuestionnaireResponse")
    assert found.rows(answers) == [("1", 0), ("1.1", 1), ("1.1.1", 2)]


def test_conditions_and_constants_choose_resources() -> None:
    constants = [{"name": "born", "valueDate": "1970-06"}, {"name": "use", "valueCode": "official"}]
    wheres = [{"path": "birthDate = %born"}, {"path": "name.exists(use = %use)"}]
    found = view({"column": [column("id", "id")]}, constant=constants, where=wheres)
    assert found.rows(PATIENT) == [("p1",)]
    assert found.rows({**PATIENT, "birthDate": "1970-07"}) == []
    unclear = view({"column": [column("id", "id")]}, where=[{"path": "name.family"}])
    with pytest.raises(SourceError, match=r"the condition name.family is not true or false"):
        unclear.rows(PATIENT)


@pytest.mark.parametrize(
    ("select", "words"),
    [
        (
            {"column": [column("x", "name.fold()")]},
            r"column x: .* uses the function fold, which is not known",
        ),
        (
            {"column": [column("x", "birthDate < today()")]},
            "uses the function today, which gives other rows at another",
        ),
        ({"column": [column("x", "name.trace('n')")]}, "uses the function trace, which prints values"),
        ({"column": [column("x", "%who")]}, "column x: %who uses %who, but the view has no constant of that name"),
        ({"column": [column("x", "name.where(")]}, "column x: .* is no FHIRPath expression. See its character 12"),
        ({"column": [column("x", "name family")]}, "column x: .* is no FHIRPath expression. Its end is not understood"),
        ({"column": [column("x", "id"), column("X", "id")]}, "several columns have the name"),
        ({"column": [column("1 x", "id")]}, r"select.0.column.0.name: String should match"),
        ({"foreach": "name"}, r"select.0.foreach: Extra inputs are not permitted"),
        ({"forEach": "name", "forEachOrNull": "name"}, "use one of forEach, forEachOrNull and repeat"),
        ({"unionAll": [{"column": [column("x", "id")]}, {"column": [column("y", "id")]}]}, "parts of a unionAll have"),
    ],
)
def test_a_wrong_view_is_refused_before_any_resource_is_read(select: dict[str, Any], words: str) -> None:
    with pytest.raises(SourceError, match=words):
        view(select)
