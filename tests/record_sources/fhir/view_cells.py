"""Resources, and the cells that views of them have."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from record_sources.fhir.view_definitions import parse_definition
from record_sources.fhir.views import FhirView, prepare_view

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
