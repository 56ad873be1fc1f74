"""Views of SQL on FHIR: cases of our own, and those of the specification where its folder is named."""

from __future__ import annotations

import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from record_sources.errors import SourceError
from record_sources.fhir.view_definitions import parse_definition, read_definitions
from record_sources.fhir.views import FhirView, prepare_view
from research.benchmarks.view_tests import tried_cases

PATIENT: dict[str, Any] = {
    "resourceType": "Patient",
    "id": "p1",
    "active": True,
    "birthDate": "1970-06",
    "name": [{"use": "official", "family": "A", "given": ["B", "C"]}, {"family": "D"}],
    "communication": [
        {"preferred": False, "language": {"text": "de"}},
        {"preferred": True, "language": {"text": "fr"}},
        {"language": {"text": "it"}},
    ],
    "extension": [{"url": "u", "valueDecimal": Decimal("2.5")}, {"url": "u", "valueDecimal": Decimal("3.5")}],
    "link": [{"other": {"reference": "Patient/p2/_history/3"}}, {"other": {"reference": "#contained"}}],
}
OBSERVATION: dict[str, Any] = {
    "resourceType": "Observation",
    "id": "o1",
    "subject": {"reference": "Patient/p1"},
    "effectiveInstant": "2020-01-01T01:00:00+01:00",
    "valueQuantity": {"value": Decimal("1.50"), "unit": "mmol/L"},
}


def view(*selects: dict[str, Any], resource: str = "Patient", **more: Any) -> FhirView:
    return prepare_view(parse_definition({"resource": resource, "select": list(selects), **more}))


def column(name: str, path: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "path": path, **more}


def cells(path: str, resource: dict[str, Any] = PATIENT, **more: Any) -> Any:
    """The only cell of a view of one column."""
    ((found,),) = view({"column": [column("x", path, **more)]}, resource=resource["resourceType"]).rows(resource)
    return found


def test_the_specification_s_own_tests_pass() -> None:
    folder = os.environ.get("WARDROUND_SQL_ON_FHIR")
    if folder is None:
        pytest.skip("WARDROUND_SQL_ON_FHIR does not name the folder `tests` of github.com/FHIR/sql-on-fhir-v2")
    cases = list(tried_cases(Path(folder)))
    assert cases
    assert [case for case in cases if not case.passed] == []


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("getResourceKey()", "p1"),
        ("name.where(use = 'official').given.join(' ')", "B C"),
        ("name.given.first()", "B"),
        ("name[1].family", "D"),
        ("name.count()", 2),
        ("name.where(use = 'old').exists()", False),
        ("link.other.getReferenceKey(Patient)", "p2"),
        ("link.other.getReferenceKey(Group)", None),
        ("birthDate.lowBoundary()", "1970-06-01"),
        ("birthDate.highBoundary()", "1970-06-30"),
        ("deceased.ofType(boolean)", None),
        ("communication.where(preferred).language.text", "fr"),
        ("communication.where(preferred = false).exists(preferred)", False),
        ("communication.exists(preferred)", True),
        ("extension('u').value.ofType(decimal).sum()", 6.0),
        ("extension('u').value.ofType(decimal).avg()", 3.0),
        ("extension('u').value.ofType(decimal).max()", 3.5),
        ("extension('v').value.ofType(decimal).min()", None),
        ("name.where(given.exists($this = 'C')).family", "A"),
        (r"'\u00e9'", "é"),
        ("(nosuch = 'x') or active", True),
        ("birthDate > @1970-06-05", None),
    ],
)
def test_an_expression_gives_a_cell(path: str, expected: object) -> None:
    assert cells(path) == expected


def test_types_are_those_of_fhir() -> None:
    value = "value.ofType(Quantity).value"
    assert cells(value, OBSERVATION, type="decimal") == 1.5
    assert cells(f"{value}.lowBoundary()", OBSERVATION) == 1.495
    assert cells("value.ofType(string)", OBSERVATION) is None
    assert cells("effective.ofType(instant) = @2020-01-01T00:00:00Z", OBSERVATION) is True
    assert type(cells("1", type="decimal")) is float
    assert cells("active", type="http://hl7.org/fhir/StructureDefinition/boolean") is True
    with pytest.raises(SourceError, match=r"column x: the path gives no integer, which is the column's type"):
        cells("id", type="integer")
    with pytest.raises(SourceError, match="column x: the path ends at an element that has parts"):
        cells("name.first()")


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


def test_several_values_need_a_collection() -> None:
    assert cells("name.family", collection=True) == ["A", "D"]
    with pytest.raises(SourceError, match="column x has 2 values, but not `collection`") as refused:
        cells("name.family")
    assert "A" not in str(refused.value).split()
    with pytest.raises(SourceError, match=r"column x: the FHIRPath expression .* cannot be evaluated") as refused:
        cells("name.family & 'x'")
    assert refused.value.__suppress_context__


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


def test_definitions_are_files_with_a_name_of_their_own(tmp_path: Path) -> None:
    definition = {"resourceType": "ViewDefinition", "name": "patients", "resource": "Patient", "status": "active"}
    text = json.dumps({**definition, "select": [{"column": [column("id", "id", description="key")]}]})
    (tmp_path / "a.json").write_text(text)
    ((found, kept),) = read_definitions(tmp_path)
    assert (found.name, kept) == ("patients", text)
    for other, words in (
        (text.replace("patients", "Patients"), "b.json: another view has the name Patients too"),
        (text.replace('"name": "patients", ', ""), "b.json: the view needs a name"),
        (text.replace('"status"', '"fhirVersion": ["5.0.0"], "status"'), "fhirVersion must name a version of FHIR R4"),
        (text.replace("ViewDefinition", "Library"), r"b.json: resourceType: String should match"),
        (text[:-1], r"b.json: it is no JSON in UTF-8"),
    ):
        (tmp_path / "b.json").write_text(other)
        with pytest.raises(SourceError, match=words):
            read_definitions(tmp_path)
    with pytest.raises(SourceError, match=r"there is no ViewDefinition. Name a JSON file"):
        read_definitions(tmp_path / "gone")
