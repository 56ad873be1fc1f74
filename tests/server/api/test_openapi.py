"""The description itself; that the API keeps it is checked in tests/contract/test_openapi.py."""

from __future__ import annotations

from typing import Any

import pytest

from server.api.openapi import OPEN
from tests.factories.live_coordinator import Live


@pytest.fixture(scope="module")
def document(here: Live) -> dict[str, Any]:
    found: dict[str, Any] = here.http.get("/openapi.json").json()
    return found


def test_every_operation_answers_errors_in_one_form(document: dict[str, Any]) -> None:
    for operations in document["paths"].values():
        for operation in operations.values():
            (content,) = operation["responses"]["default"]["content"].items()
            assert content == ("application/problem+json", {"schema": {"$ref": "#/components/schemas/Problem"}})
            assert "422" not in operation["responses"]
    assert {"HTTPValidationError", "ValidationError"}.isdisjoint(document["components"]["schemas"])


def test_what_is_open_to_anybody_is_listed(document: dict[str, Any]) -> None:
    paths = document["paths"].items()
    found = {path for path, operations in paths for one in operations.values() if "security" not in one}
    assert found == OPEN & set(document["paths"])


def test_operations_have_names_of_their_own(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for operations in document["paths"].values() for operation in operations.values()]
    assert len(names) == len(set(names)) > 30
