"""What is read of each kind of resource."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime
from typing import Any

import pytest

from record_sources.fhir.resources import LeftOutError, event_rows, medication_codes, patient_row
from record_sources.fhir.systems import CONCEPT_IDS
from tests.factories.fhir_exports import ACT_CODE, ICD10CM, RXNORM, UCUM, coded, observation, patient, resource

DAY = date(2020, 1, 2)


def _events(element: dict[str, Any], counts: Counter[str] | None = None) -> list[Any]:
    return list(event_rows(element["resourceType"], element, Counter() if counts is None else counts))


@pytest.mark.parametrize(
    ("elements", "expected"),
    [
        ({"gender": "male", "birthDate": "1950-07-09"}, (8507, 1950, 7, 9, None, False)),
        ({"gender": "female", "deceasedDateTime": "2020-01-02T23:00:00-05:00"}, (8532, None, None, None, DAY, True)),
        ({"gender": "other"}, (8521, None, None, None, None, False)),
        ({"gender": "unknown"}, (8551, None, None, None, None, False)),
        ({"gender": "M"}, (0, None, None, None, None, False)),
        ({"gender": ["male"]}, (0, None, None, None, None, False)),
        ({"deceasedBoolean": False}, (0, None, None, None, None, False)),
    ],
)
def test_a_patient_is_one_row(elements: dict[str, Any], expected: tuple[Any, ...]) -> None:
    assert patient_row(patient("a", **elements)) == ("a", *expected)


@pytest.mark.parametrize(
    "elements",
    [
        {"deceasedBoolean": True},
        {"deceasedDateTime": "2020"},
        {"deceasedDateTime": "yesterday"},
        {"deceasedDateTime": "9999-12-31"},
        {"_deceasedDateTime": {"extension": [{"url": "x", "valueCode": "unknown"}]}},
    ],
    ids=str,
)
def test_a_death_on_an_unknown_day_has_no_day(elements: dict[str, Any]) -> None:
    row = patient_row(patient("a", **elements))
    assert (row.died, row.dead) == (None, True)


@pytest.mark.parametrize("written", ["09.07.1950", "1950-13", "1950-02-30", "1799-12-31"])
def test_a_birth_that_is_no_date_is_not_one_that_is_missing(written: str) -> None:
    assert patient_row(patient("a", birthDate=written)).birth_year == 0


def test_a_patient_has_the_identity_of_other_sources() -> None:
    identifier = "0E5F1A10-95D5-4B07-9A3F-AA4A4A8A4A11"
    assert patient_row(patient(identifier)).patient == identifier.lower()
    [event] = _events(observation("1", "1-1", subject={"reference": f"urn:uuid:{identifier}"}))
    assert event.patient == identifier.lower()
    replaced = patient("a", active=False, link=[{"type": "replaced-by", "other": {"reference": "Patient/b"}}])
    for without in ({"resourceType": "Patient"}, patient(""), patient("1.5E+12"), replaced):
        with pytest.raises(LeftOutError):
            patient_row(without)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("Encounter", "entered-in-error"),
        ("Encounter", "cancelled"),
        ("Encounter", "planned"),
        ("MedicationRequest", "entered-in-error"),
        ("MedicationRequest", "cancelled"),
        ("MedicationRequest", "draft"),
        ("MedicationAdministration", "not-done"),
        ("MedicationStatement", "not-taken"),
        ("Immunization", "not-done"),
        ("Observation", "entered-in-error"),
        ("Observation", "cancelled"),
        ("Observation", "registered"),
    ],
)
def test_what_did_not_happen_is_left_out(kind: str, status: str) -> None:
    with pytest.raises(LeftOutError, match="its status says that it did not happen"):
        _events(resource(kind, "1", status=status))


@pytest.mark.parametrize("status", ["refuted", "entered-in-error"])
def test_a_refuted_condition_is_left_out(status: str) -> None:
    system = "http://terminology.hl7.org/CodeSystem/condition-ver-status"
    element = resource("Condition", "1", verificationStatus=coded(system, status), recordedDate="2020-01-02")
    with pytest.raises(LeftOutError, match="did not happen"):
        _events(element)
    assert _events({**element, "verificationStatus": coded(system, "provisional")})


def test_a_request_not_to_give_a_drug_is_left_out() -> None:
    with pytest.raises(LeftOutError, match="did not happen"):
        _events(resource("MedicationRequest", "1", doNotPerform=True, authoredOn="2020-01-02"))


@pytest.mark.parametrize(("intent", "events"), [("proposal", 0), ("option", 0), ("plan", 1), ("order", 1)])
def test_a_proposal_asks_for_no_drug(intent: str, events: int) -> None:
    request = resource("MedicationRequest", "1", status="active", intent=intent, authoredOn="2020-01-02")
    if events:
        assert len(_events(request)) == events
    else:
        with pytest.raises(LeftOutError, match="did not happen"):
            _events(request)


def test_visits_within_visits_are_counted() -> None:
    counts = Counter[str]()
    visit = resource("Encounter", "2", period={"start": "2020-01-02"}, partOf={"reference": "Encounter/1"})
    assert len(list(event_rows("Encounter", visit, counts))) == 1
    assert counts == {"part of another, and count as visits of their own": 1}


@pytest.mark.parametrize(
    ("elements", "reason"),
    [
        ({"subject": None}, "no reference to a patient"),
        ({"subject": "Patient/a"}, "no reference to a patient"),
        ({"subject": {"reference": "Group/a"}}, "no reference to a patient"),
        ({"subject": {"identifier": {"value": "a"}}}, "no reference to a patient"),
        ({"effectiveDateTime": None}, "no date"),
        ({"effectiveDateTime": "2020"}, "its date has no day"),
        ({"effectiveDateTime": "2020-01"}, "its date has no day"),
        ({"effectiveDateTime": "2020-13-01"}, "its date is no date"),
    ],
)
def test_a_resource_without_patient_or_day_is_left_out(elements: dict[str, Any], reason: str) -> None:
    with pytest.raises(LeftOutError, match=f"^{reason}$"):
        _events(observation("1", "1-1", **elements))


@pytest.mark.parametrize(
    ("kind", "elements"),
    [
        ("Encounter", {"period": {"start": "2020-01-02"}}),
        ("Condition", {"onsetDateTime": "2020-01-02", "recordedDate": "2020-02-02"}),
        ("Condition", {"onsetPeriod": {"start": "2020-01-02"}}),
        ("Condition", {"onsetString": "in winter", "recordedDate": "2020-01-02"}),
        ("MedicationRequest", {"authoredOn": "2020-01-02"}),
        ("MedicationAdministration", {"effectivePeriod": {"start": "2020-01-02"}}),
        ("MedicationStatement", {"dateAsserted": "2020-01-02"}),
        ("Immunization", {"occurrenceDateTime": "2020-01-02", "patient": {"reference": "Patient/a"}}),
        ("Observation", {"effectivePeriod": {"start": "2020-01-02"}}),
        ("Observation", {"effectiveInstant": "2020-01-02T08:00:00Z"}),
    ],
)
def test_each_kind_has_its_elements_of_dates(kind: str, elements: dict[str, Any]) -> None:
    [event] = _events(resource(kind, "1", **elements))
    assert event.day == DAY


def test_an_encounter_has_types_and_a_class() -> None:
    element = resource(
        "Encounter",
        "1",
        status="finished",
        type=[coded(ICD10CM, "x"), {"text": "ward"}],
        period={"start": "2020-01-02T10:00:00+01:00", "end": "2020-01-05T08:00:00+01:00"},
    )
    element["class"] = {"system": ACT_CODE, "code": "IMP"}
    [event] = _events(element)
    assert event.codes == (("ICD10CM", "x"), (CONCEPT_IDS, "9201"))
    assert event.time == datetime.fromisoformat("2020-01-02T10:00:00")


def test_a_drug_is_coded_or_referred_to() -> None:
    request = resource("MedicationRequest", "1", authoredOn="2020-01-02")
    [event] = _events({**request, "medicationCodeableConcept": coded(RXNORM, "6809")})
    assert (event.codes, event.medication) == ((("RxNorm", "6809"),), None)
    [event] = _events({**request, "medicationReference": {"reference": "https://x/Medication/5"}})
    assert (event.codes, event.medication) == ((), "5")
    medication = {"resourceType": "Medication", "id": "m", "code": coded(RXNORM, "6809")}
    [event] = _events({**request, "contained": [medication], "medicationReference": {"reference": "#m"}})
    assert event.codes == medication_codes(medication) == (("RxNorm", "6809"),)
    [event] = _events({**request, "medicationReference": {"display": "metformin"}})
    assert (event.codes, event.medication) == ((), None)


def test_components_are_events_of_the_same_time() -> None:
    element = observation(
        "1",
        "85354-9",
        component=[
            {"code": coded("http://loinc.org", "8480-6"), "valueQuantity": {"value": 120}},
            {"code": coded("http://loinc.org", "8462-4"), "valueInteger": 80},
            "no component",
        ],
    )
    events = _events(element)
    assert [(event.codes, event.value) for event in events] == [
        ((("LOINC", "85354-9"),), None),
        ((("LOINC", "8480-6"),), 120.0),
        ((("LOINC", "8462-4"),), 80.0),
        ((), None),
    ]
    assert {event.day for event in events} == {DAY}


@pytest.mark.parametrize(
    ("elements", "value", "value_codes", "unit_codes"),
    [
        ({"valueQuantity": {"value": 5.5, "system": UCUM, "code": "mg/dL"}}, 5.5, None, (("UCUM", "mg/dL"),)),
        ({"valueQuantity": {"value": 5}}, 5.0, None, None),
        # A unit without a code is not the same as no unit.
        ({"valueQuantity": {"value": 5, "unit": "mg/dL"}}, 5.0, None, ()),
        ({"valueInteger": 3}, 3.0, None, None),
        ({"valueInteger": True}, None, None, None),
        ({"valueBoolean": True}, None, (("SNOMED", "373066001"),), None),
        ({"valueBoolean": False}, None, (("SNOMED", "373067005"),), None),
        ({"valueCodeableConcept": coded("http://loinc.org", "LA1-1")}, None, (("LOINC", "LA1-1"),), None),
        ({"valueCodeableConcept": {"text": "positive"}}, None, (), None),
        ({"valueString": "5"}, None, None, None),
        ({"dataAbsentReason": {}}, None, None, None),
    ],
)
def test_values_of_observations(elements: dict[str, Any], value: Any, value_codes: Any, unit_codes: Any) -> None:
    counts: Counter[str] = Counter()
    [event] = _events(observation("1", "1-1", **elements), counts)
    assert (event.value, event.value_codes, event.unit_codes) == (value, value_codes, unit_codes)
    assert not counts.total()


@pytest.mark.parametrize(
    ("quantity", "words"),
    [
        ({"value": 5, "comparator": "<", "system": UCUM, "code": "mg/dL"}, "values below or above a limit"),
        ({"value": "5"}, "quantities without a number"),
        ({"value": 10**400}, "quantities without a number"),
        ({}, "quantities without a number"),
    ],
)
def test_values_that_are_no_number_are_counted_and_left_out(quantity: dict[str, Any], words: str) -> None:
    counts: Counter[str] = Counter()
    [event] = _events(observation("1", "1-1", valueQuantity=quantity), counts)
    assert (event.value, event.unit_codes) == (None, None)
    [(reason, count)] = counts.items()
    assert reason.startswith(words)
    assert count == 1


def test_rows_show_no_cell() -> None:
    [event] = _events(observation("1", "1-1", valueInteger=3))
    assert (repr(event), repr(patient_row(patient("secret")))) == ("CodedEvent", "PatientRow")
