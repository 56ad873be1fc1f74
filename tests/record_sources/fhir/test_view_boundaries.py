"""The least and the greatest value of limited precision, as the specification of FHIRPath gives them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from record_sources.fhir.view_boundaries import boundary


@pytest.mark.parametrize(
    ("content", "kind", "low", "high"),
    [
        (Decimal("1.587"), "decimal", Decimal("1.5865"), Decimal("1.5875")),
        ("2014", "date", "2014-01-01", "2014-12-31"),
        ("2020-02", "date", "2020-02-01", "2020-02-29"),
        ("2014-05-06", "date", "2014-05-06", "2014-05-06"),
        ("10:30", "time", "10:30:00.000", "10:30:59.999"),
        ("a day", "date", None, None),
        ("x", "string", None, None),
        (True, "boolean", None, None),
    ],
)
def test_a_value_lies_between_its_boundaries(content: Any, kind: str, low: Any, high: Any) -> None:
    assert (boundary(content, kind, high=False), boundary(content, kind, high=True)) == (low, high)
