"""Dates, references and numbers of FHIR."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pytest

from record_sources.fhir import elements
from record_sources.fhir.elements import PartialDateError, UnreadableDateError


@pytest.mark.parametrize(
    ("written", "day", "time"),
    [
        ("2015-03-02", date(2015, 3, 2), None),
        ("2015-03-02T23:30:00+01:00", date(2015, 3, 2), datetime.fromisoformat("2015-03-02T23:30:00")),
        ("2015-03-02T00:30:00-05:00", date(2015, 3, 2), datetime.fromisoformat("2015-03-02T00:30:00")),
        ("2015-03-02T00:30:00Z", date(2015, 3, 2), datetime.fromisoformat("2015-03-02T00:30:00")),
        ("2015-03-02T10:20:30.5Z", date(2015, 3, 2), datetime.fromisoformat("2015-03-02T10:20:30.500000")),
        ("2015-03-02T10:20:30.1234567Z", date(2015, 3, 2), datetime.fromisoformat("2015-03-02T10:20:30.123456")),
        ("2015-03-02T10:20Z", date(2015, 3, 2), datetime.fromisoformat("2015-03-02T10:20:00")),
    ],
)
def test_day_and_time_are_local_as_written(written: str, day: date, time: datetime | None) -> None:
    assert elements.moment({"a": {"b": written}}, ("missing", "a.b")) == (day, time)


@pytest.mark.parametrize("written", ["2015", "2015-03"])
def test_a_part_of_a_date_is_not_a_day(written: str) -> None:
    with pytest.raises(PartialDateError):
        elements.moment({"a": written}, ("a",))


@pytest.mark.parametrize(
    "written",
    [
        "",
        "2015-02-30",
        "2015-3-2",
        "20150302",
        "2015-W10-1",
        "2015-03-02T25:00:00Z",
        "2015-03-02 10:00:00",
        "٢٠١٥-٠٣-٠٢",
        2015,
        True,
        {"extension": []},
        ["2015-03-02"],
        "0000-01-01",
        "1799-12-31",
        "2201-01-01",
        "9999-12-31T00:00:00Z",
        "2015-03-02\n",
    ],
)
def test_another_value_is_no_date(written: Any) -> None:
    with pytest.raises(UnreadableDateError):
        elements.moment({"a": written}, ("a",))


def test_no_element_has_no_date() -> None:
    assert elements.moment({"a": None, "b": "text"}, ("a", "b.c")) is None


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (None, (None, None, None)),
        ("1950", (1950, None, None)),
        ("1950-07", (1950, 7, None)),
        ("1950-07-09", (1950, 7, 9)),
    ],
)
def test_a_birth_is_known_in_parts(written: str | None, expected: tuple[Any, ...]) -> None:
    assert elements.birth({"birthDate": written}) == expected


def test_a_birth_in_month_13_is_no_date() -> None:
    with pytest.raises(UnreadableDateError):
        elements.birth({"birthDate": "1950-13"})


@pytest.mark.parametrize(
    ("reference", "identifier"),
    [
        ("Patient/17", "17"),
        ("Patient/17/_history/3", "17"),
        ("https://fhir.example/r4/Patient/17", "17"),
        ("urn:uuid:0e5f1a10-95d5-4b07-9a3f-aa4a4a8a4a11", "0e5f1a10-95d5-4b07-9a3f-aa4a4a8a4a11"),
        ("Group/17", None),
        ("https://fhir.example/r4/Device/17", None),
        ("Patient/", None),
        ("17", None),
        ("#contained", None),
        ("urn:uuid:", None),
        (17, None),
    ],
)
def test_a_reference_names_a_patient(reference: Any, identifier: str | None) -> None:
    assert elements.referred_id({"subject": {"reference": reference}}, "subject", "Patient") == identifier


@pytest.mark.parametrize(
    ("found", "number"),
    [
        *((1, 1.0), (1.5, 1.5), (True, None), ("1", None), (None, None), (float("inf"), None)),
        pytest.param(10**400, None, id="more than any float"),
    ],
)
def test_numbers_are_finite_floats(found: Any, number: float | None) -> None:
    assert elements.number(found) == number
