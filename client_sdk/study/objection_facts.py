"""From a hospital's own ledgers to the letter on an objection. Works without a network."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from accounting.budget.ledger import Entry
from client_sdk.errors import ConfigurationError, LedgerDamaged, LedgerNotExtended
from client_sdk.guard.charges import Charge, epsilon_spent
from client_sdk.guard.exclusion import ExclusionEntry, ExclusionList
from client_sdk.guard.individual import certificate
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.objections import Objection
from client_sdk.guard.policy import SitePolicy
from client_sdk.guard.policy_limits import LimitSection
from client_sdk.study.audit import audited
from client_sdk.study.objecting import ledger_files
from private_learning.records import Histories, Records
from study_protocol.documents.check import OpenedCertificate, check_signature
from study_protocol.documents.objection_letter import LetterRound, LetterStudy, ObjectionLetter, RoundKind
from study_protocol.documents.patient_bound import PatientBound, own_bound, patient_bounds
from study_protocol.study.limit_statement import LimitStatement
from study_protocol.wire.rounded import exact, number, significant

_OF_STUDIES = ("opened", "reserved", "charged-in-full")
NOT_LOOKED_UP = (
    "Whether this hospital's records hold the patient was not looked up for this letter. The objection holds in any "
    "case."
)


def letter_of(
    home: Path,
    objection: Objection,
    policy: SitePolicy,
    certificates: Sequence[OpenedCertificate],
    presence: str,
    issued: datetime,
) -> ObjectionLetter:
    """Return the letter on an objection.

    Args:
        certificates: of studies, whose bounds are then taken from them. Of another study, from the hospital's copy of
            the coordinator's ledger, which it has checked entry by entry.
        presence: a sentence, such as that of `presence_in`.
        issued: now.

    Raises:
        LedgerNotExtended: a certificate is not signed with the key that this hospital joined the study under.
        ConfigurationError: a certificate is of a study that is not in these ledgers, or ends before the newest round.
        LedgerDamaged: a ledger is not what was written.
    """
    by_study = {document.certificate.study: document for document in certificates}
    studies: list[LetterStudy] = []
    local_limits: list[str] = []
    for path in ledger_files(home):
        with HospitalLedger.open(path, read_only=True) as ledger:
            # A data set that came after the objection has never read the patient's records.
            last = objection.ledgers.get(path.stem, 0)
            ledger_studies = list(_studies(ledger, path.stem, _until(ledger, last), by_study, policy))
            studies += ledger_studies
            if any(study.rounds or study.lost for study in ledger_studies):
                local_limits += _local_limits(ledger, path.stem, policy)
    _require_known(by_study.keys() - {study.study for study in studies})
    unread = tuple(dataset for dataset, last in objection.ledgers.items() if last is None)
    by = str(objection.person)
    facts = (tuple(studies), tuple(local_limits), unread, issued)
    renewed = objection.at if objection.renewed else ""
    return ObjectionLetter(objection.number, objection.since, by, presence, *facts, renewed)


def _require_known(unknown: Collection[str]) -> None:
    if unknown:
        raise ConfigurationError(f"certificate of {min(unknown)}: this hospital has no ledger of that study")


def presence_in(records: Records, identity: str, name: str) -> str:
    """Return a sentence on whether records hold a patient, by the rule of exclusion.

    Raises:
        ConfigurationError: the records name no patients.
    """
    if not records.named:
        raise ConfigurationError("these records name no patients: say which column does (--patient-column)")
    tables = records.events.values() if isinstance(records, Histories) else ()
    patients = (*records.patients, *(patient for table in tables for patient in table.patients))
    entry = ExclusionEntry("the objection", 1, identity)
    if ExclusionList((entry,)).match(patients).rows.any():
        return f"The records ({name}), as they are now, hold this patient."
    return (
        f"The records ({name}), as they are now, hold no patient with this identifier. The objection is recorded "
        "nevertheless, and holds for records that come later. Compare how the records write the identifier."
    )


def _studies(
    ledger: HospitalLedger,
    dataset: str,
    before: Sequence[Entry],
    certificates: Mapping[str, OpenedCertificate],
    policy: SitePolicy,
) -> Iterator[LetterStudy]:
    # A lost ledger may have known studies that were not joined again: their charges name them.
    for study in dict.fromkeys(entry.body["study"] for entry in before if entry.kind in _OF_STUDIES):
        rounds = tuple(_rounds(ledger, study, before))
        losses = [entry for entry in before if entry.kind == "charged-in-full" and entry.body["study"] == study]
        lost = max((int(entry.body["rounds_lost"]) for entry in losses), default=0)
        newest = max([lost, *(each.number for each in rounds)])
        bounds, source = _bounds(ledger, study, certificates.get(study), newest, policy)
        yield LetterStudy(study, dataset, rounds, lost, tuple(bounds), source)


def _until(ledger: HospitalLedger, last: int | None) -> list[Entry]:
    """Return the entries up to number `last`, or all where it is not known."""
    # A loss that was accepted later is one of rounds before it, and numbers have begun anew with that ledger.
    return [
        entry for entry in ledger.entries if last is None or entry.sequence <= last or entry.kind == "charged-in-full"
    ]


def _rounds(ledger: HospitalLedger, study: str, before: Sequence[Entry]) -> Iterator[LetterRound]:
    """Yield the rounds of a study that were paid for, with the days on which something of them could leave."""
    days = {each.round: each.ready_at[:10] for each in ledger.departures(study) if each.what == "update"}
    for entry in before:
        if entry.kind == "reserved" and entry.body["study"] == study and entry.round is not None:
            yield LetterRound(entry.round, _kind(entry), days.get(entry.round, ""))


def _kind(entry: Entry) -> RoundKind:
    if not entry.body.get("asks"):
        return "training"
    return "evaluation" if entry.body["bears"] in ("evaluated", "monitored") else "question"


def _bounds(
    ledger: HospitalLedger, study: str, document: OpenedCertificate | None, newest: int, policy: SitePolicy
) -> tuple[list[PatientBound], str]:
    """Return the bounds of a study and their source."""
    if document is not None:
        return _certified(ledger, study, document, newest)
    # The hospital has followed this copy entry by entry before each round, with its own count of the budget.
    entries = ledger.seen_ledger(study).entries()
    if not entries and (ledger.opened(study) or {}).get("framework") is not None:
        bounds = _counted_here(ledger, study, policy)
        return bounds, "the charges in this hospital's own ledger" if bounds else "Its framework has no certificate."
    if not entries:
        return [], "Write this letter again with the study's certificate (--certificate)."
    try:
        statements = audited(study, entries).budget.statements()
    except LedgerNotExtended as error:
        raise LedgerDamaged(
            f"this hospital's copy of the ledger of {study} is not what was written: {error}"
        ) from error
    limits = [LimitStatement.model_validate(statement) for statement in statements]
    return patient_bounds(limits), f"the coordinator's ledger up to entry {len(entries)}, as this hospital checked it"


def _certified(
    ledger: HospitalLedger, study: str, document: OpenedCertificate, newest: int
) -> tuple[list[PatientBound], str]:
    stated = document.certificate
    # Not the key that the document names: the one that this hospital has joined under.
    key = str((ledger.opened(study) or {}).get("coordinator_key", ""))
    if check_signature(document, key, "the key of the coordinator", is_confirmed=True).result != "good":
        raise LedgerNotExtended(
            f"the certificate of {study} is not signed with the key that this hospital joined the study under"
        )
    # Numbers that end earlier are too small for this patient.
    if stated.round < newest:
        raise ConfigurationError(
            f"the certificate of {study} ends with round {stated.round}, and the patient may have been in round "
            f"{newest}: get it again with `wardround certificate show`"
        )
    return patient_bounds(stated.limits), f"the certificate up to round {stated.round}, whose signature was checked"


def _counted_here(ledger: HospitalLedger, study: str, policy: SitePolicy) -> list[PatientBound]:
    """Return what runs of another framework cost by the hospital's own charges, which no coordinator signs."""
    bodies = [entry.body for entry in ledger.entries if entry.kind == "reserved" and entry.body["study"] == study]
    charges = [Charge.from_body(body) for body in bodies]
    # The losses of a patient and of the hospital have no common sum here.
    if len({charge.level for charge in charges}) != 1:
        return []
    level = charges[0].level
    default = LimitSection(epsilon=policy.largest_epsilon, delta=policy.largest_delta)
    limit = policy.limits.by_level().get(level, default).at(level, ledger.terms(policy.limits))
    spent = epsilon_spent(charges, limit)
    return [own_bound(level, spent, limit.delta)] if math.isfinite(spent) else []


def _local_limits(ledger: HospitalLedger, dataset: str, policy: SitePolicy) -> Iterator[str]:
    """Yield what this hospital's own limits say of one patient, over all studies on a data set."""
    but_whole = " but those that were admitted whole" if ledger.whole_plans() else ""
    for limit in ledger.own_limits(policy):
        spent = epsilon_spent(ledger.charges(), limit)
        if limit.level == "instance":
            used = (
                f"of which {number(spent)} is used" if math.isfinite(spent) else "of which it is not known what is used"
            )
            yield (
                f"Over all studies on data set {dataset}{but_whole}, this hospital's own limit for every patient is ε "
                f"{exact(limit.epsilon)} at δ {significant(limit.delta)}, {used}."
            )
    # Beside the limit above, which does not count them.
    for study, plan in ledger.whole_plans().items():
        if plan.level == "instance":
            yield (
                f"Study {study} was admitted whole on data set {dataset}, with ε {number(plan.epsilon)} at δ "
                f"{significant(plan.delta)} for every patient."
            )
    if (saved := ledger.individual()) is not None:
        guarantee = certificate(saved)
        yield (
            f"On data set {dataset} each patient has a limit of their own: ε {number(guarantee.epsilon)} at δ "
            f"{significant(guarantee.delta)} over all studies since it was set."
        )
