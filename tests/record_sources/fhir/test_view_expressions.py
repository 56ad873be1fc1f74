"""FHIRPath expressions of views, and the cells that they give."""

from __future__ import annotations

import pytest

from record_sources.errors import SourceError
from record_sources.fhir.view_expressions import parse_expression
from tests.record_sources.fhir.view_cells import OBSERVATION, cells


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


def test_several_values_need_a_collection() -> None:
    assert cells("name.family", collection=True) == ["A", "D"]
    with pytest.raises(SourceError, match="column x has 2 values, but not `collection`") as refused:
        cells("name.family")
    assert "A" not in str(refused.value).split()
    with pytest.raises(SourceError, match=r"column x: the FHIRPath expression .* cannot be evaluated") as refused:
        cells("name.family & 'x'")
    assert refused.value.__suppress_context__


def test_a_variable_must_be_known_before_any_resource_is_read() -> None:
    parse_expression("id = %key", frozenset({"key"}))
    with pytest.raises(SourceError, match="%key"):
        parse_expression("id = %key", frozenset())
