"""Elements read of each kind of resource: the domain, and plain paths to the patient, the code and the date."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from record_sources.fhir import elements
from record_sources.fhir.elements import Codes, PartialDateError, UnreadableDateError
from record_sources.fhir.systems import GENDERS, NO, YES
from study_protocol.cells.identity import IdentifierError, patient_identity


class PatientRow(NamedTuple):
    """One patient, in the columns of the staging table `person`."""

    patient: str
    sex: int
    birth_year: int | None
    birth_month: int | None
    birth_day: int | None
    died: date | None
    dead: bool

    def __repr__(self) -> str:
        """Show no cell."""
        return "PatientRow"


class CodedEvent(NamedTuple):
    """One event whose codes are not yet concepts. `medication` is the id of a resource that has the codes."""

    domain: str
    patient: str
    codes: Codes
    medication: str | None
    day: date
    time: datetime | None
    value: float | None = None
    value_codes: Codes | None = None
    unit_codes: Codes | None = None

    def __repr__(self) -> str:
        """Show no cell."""
        return "CodedEvent"


class LeftOutError(ValueError):
    """A resource is not an event of a patient. The text is the reason, without any value of it."""


@dataclass(frozen=True)
class _EventKind:
    domain: str
    dates: tuple[str, ...]
    left_out: frozenset[str]
    """States of resources that tell of no event."""
    subject: str = "subject"
    code: str = "code"


_MEDICATION_DATES = ("effectiveDateTime", "effectivePeriod.start")
_KINDS = {
    "Encounter": _EventKind("visit", ("period.start",), frozenset({"entered-in-error", "cancelled", "planned"})),
    "Condition": _EventKind(
        "condition",
        ("onsetDateTime", "onsetPeriod.start", "recordedDate"),
        frozenset({"entered-in-error", "refuted"}),
    ),
    # Two intents, too: a proposal and an option ask for no drug.
    "MedicationRequest": _EventKind(
        "drug", ("authoredOn",), frozenset({"entered-in-error", "cancelled", "draft", "proposal", "option"})
    ),
    "MedicationAdministration": _EventKind("drug", _MEDICATION_DATES, frozenset({"entered-in-error", "not-done"})),
    "MedicationStatement": _EventKind(
        "drug", (*_MEDICATION_DATES, "dateAsserted"), frozenset({"entered-in-error", "not-taken", "intended"})
    ),
    "Immunization": _EventKind(
        "drug", ("occurrenceDateTime",), frozenset({"entered-in-error", "not-done"}), "patient", "vaccineCode"
    ),
    "Observation": _EventKind(
        "observation",
        ("effectiveDateTime", "effectivePeriod.start", "effectiveInstant"),
        frozenset({"entered-in-error", "cancelled", "registered"}),
    ),
}
EVENT_KINDS = frozenset(_KINDS)


def patient_row(resource: dict[str, Any]) -> PatientRow:
    """Return the row of a Patient resource.

    Raises:
        LeftOutError: it has no id, or says that another resource is the patient.
    """
    patient = _identity(elements.text(resource, "id"))
    if not patient:
        raise LeftOutError("no id")
    # Otherwise one person would be two patients.
    if any(elements.text(link, "type") == "replaced-by" for link in elements.items(resource, "link")):
        raise LeftOutError("replaced by another Patient")
    try:
        year, month, day = elements.birth(resource)
    except UnreadableDateError:
        # Unlike a birth that is not there. The cohort counts both.
        year, month, day = 0, None, None
    died = None
    try:
        death = elements.moment(resource, ("deceasedDateTime",))
        died = None if death is None else death[0]
    except ValueError:
        pass
    # A date may have extensions in its place, such as why it is not known.
    dated = any(resource.get(name) is not None for name in ("deceasedDateTime", "_deceasedDateTime"))
    dead = dated or resource.get("deceasedBoolean") is True
    sex = GENDERS.get(elements.text(resource, "gender") or "", 0)
    return PatientRow(patient, sex, year, month, day, died, dead)


def event_rows(kind: str, resource: dict[str, Any], counts: Counter[str]) -> Iterator[CodedEvent]:
    """Yield the events of a resource of `EVENT_KINDS`, and count values that are left out and visits within visits.

    Raises:
        LeftOutError: the resource tells of no event, or its patient or date is missing.
    """
    event_kind = _KINDS[kind]
    if _is_left_out(kind, event_kind, resource):
        raise LeftOutError("its status says that it did not happen")
    patient = _identity(elements.referred_id(resource, event_kind.subject, "Patient"))
    if not patient:
        raise LeftOutError("no reference to a patient")
    day, time = _moment(resource, event_kind.dates)
    if kind == "Observation":
        for component in elements.components(resource):
            yield _observation(CodedEvent(event_kind.domain, patient, (), None, day, time), component, counts)
    elif kind == "Encounter":
        kinds_of_visit = [coding for coded in elements.items(resource, "type") for coding in _codings(coded)]
        codes = elements.codes([*kinds_of_visit, resource.get("class")])
        counts["part of another, and count as visits of their own"] += resource.get("partOf") is not None
        yield CodedEvent(event_kind.domain, patient, codes, None, day, time)
    elif kind.startswith("Medication"):
        yield _drug(CodedEvent(event_kind.domain, patient, (), None, day, time), resource)
    else:
        codes = elements.codes(_codings(resource.get(event_kind.code)))
        yield CodedEvent(event_kind.domain, patient, codes, None, day, time)


@lru_cache(1 << 16)
def _identity(identifier: str | None) -> str:
    try:
        return patient_identity(identifier)
    except IdentifierError:
        raise LeftOutError("the id of its patient is no identifier, such as a number in scientific notation") from None


def medication_codes(resource: dict[str, Any]) -> Codes:
    """Return the codes of a Medication resource."""
    return elements.codes(_codings(resource.get("code")))


def _codings(concept: Any) -> list[Any]:
    return elements.items(concept, "coding")


def _is_left_out(kind: str, event_kind: _EventKind, resource: dict[str, Any]) -> bool:
    if kind == "Condition":
        statuses = [elements.text(coding, "code") for coding in _codings(resource.get("verificationStatus"))]
    else:
        statuses = [elements.text(resource, "status")]
    if kind == "MedicationRequest":
        statuses.append(elements.text(resource, "intent"))
    return not event_kind.left_out.isdisjoint(statuses) or resource.get("doNotPerform") is True


def _moment(resource: dict[str, Any], paths: tuple[str, ...]) -> tuple[date, datetime | None]:
    try:
        start = elements.moment(resource, paths)
    except PartialDateError:
        raise LeftOutError("its date has no day") from None
    except UnreadableDateError:
        raise LeftOutError("its date is no date") from None
    if start is None:
        raise LeftOutError("no date")
    return start


def _drug(row: CodedEvent, resource: dict[str, Any]) -> CodedEvent:
    reference = elements.text(resource, "medicationReference.reference")
    if reference is None:
        return row._replace(codes=elements.codes(_codings(resource.get("medicationCodeableConcept"))))
    if reference.startswith("#"):
        contained = [
            each for each in elements.items(resource, "contained") if f"#{elements.text(each, 'id')}" == reference
        ]
        return row._replace(codes=medication_codes(contained[0]) if contained else ())
    return row._replace(medication=elements.referred_id(resource, "medicationReference", "Medication"))


def _observation(row: CodedEvent, component: Any, counts: Counter[str]) -> CodedEvent:
    row = row._replace(codes=elements.codes(_codings(elements.element(component, "code"))))
    quantity = elements.element(component, "valueQuantity")
    if quantity is not None:
        return _quantity(row, quantity, counts)
    answer = elements.element(component, "valueCodeableConcept")
    if answer is not None:
        return row._replace(value_codes=elements.codes(_codings(answer)))
    truth = elements.element(component, "valueBoolean")
    if isinstance(truth, bool):
        return row._replace(value_codes=(YES if truth else NO,))
    return row._replace(value=elements.number(elements.element(component, "valueInteger")))


def _quantity(row: CodedEvent, quantity: Any, counts: Counter[str]) -> CodedEvent:
    if elements.text(quantity, "comparator"):
        counts["values below or above a limit (such as <5), left out"] += 1
        return row
    value = elements.number(elements.element(quantity, "value"))
    if value is None:
        counts["quantities without a number, left out"] += 1
        return row
    has_unit = bool(elements.text(quantity, "code") or elements.text(quantity, "unit"))
    return row._replace(value=value, unit_codes=elements.codes([quantity]) if has_unit else None)
