"""Checks of a certificate by its signature, a ledger's export and a model's file, each with its result in words."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from accounting.budget.history import CHARGED
from accounting.budget.ledger import Entry, LedgerError
from accounting.errors import InvalidArgument
from study_protocol.documents.by_hospital import DistanceBlocks
from study_protocol.documents.certify import CertificateAccount, Facts, compute_account, issue_certificate, model_info
from study_protocol.documents.compare import difference, in_form_of, tolerance_of
from study_protocol.study.certificate import Certificate, CertifiedLimit, SignedCertificate
from study_protocol.study.limit_statement import LimitStatement
from study_protocol.study.limit_words import limit_in_words
from study_protocol.study.messages import LedgerHead
from study_protocol.study.plan_of import PlanDiffers
from study_protocol.wire.documents import load_json, read_document
from study_protocol.wire.signing import (
    CERTIFICATE,
    LEDGER_HEAD,
    SigningError,
    decode_public_key,
    fingerprint,
    verify_document,
)

Result = Literal["good", "bad", "not known"]
# Sentences that the software writes: another version may put them otherwise.
_SENTENCES = frozenset({"summary", "who_sees_what", "under_masks", "nist", "verify"})


class NoCertificate(ValueError):
    """The file holds none. The text says what it lacks."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at, what came of it, and what that means."""

    subject: str
    result: Result
    words: str


@dataclass(frozen=True)
class OpenedCertificate:
    """A certificate's file: as it was signed, value by value, and as it is read."""

    raw: dict[str, Any]
    signed: SignedCertificate

    @property
    def certificate(self) -> Certificate:
        return self.signed.certificate


def open_certificate(body: bytes) -> OpenedCertificate:
    """Return a file's certificate, whose content is not trusted yet.

    Raises:
        NoCertificate: the file holds none that this version can read.
    """
    if body.startswith(b"%PDF-"):
        raise NoCertificate("it is a PDF: save the JSON that is attached to it, and name that file")
    try:
        value = load_json(body)
        signed = read_document(SignedCertificate, body)
    except ValueError as error:
        raise NoCertificate("it is no certificate that this version can read, or it was changed") from error
    return OpenedCertificate(cast("dict[str, Any]", value), signed)


def check_signature(document: OpenedCertificate, key: str, key_name: str, *, is_confirmed: bool) -> Check:
    """Return the check that `key` signed exactly this document.

    Args:
        is_confirmed: whether a source other than the document says whose key it is.
    """
    stated = document.certificate
    try:
        trusted = decode_public_key(key)
        # The content of the file is verified, not its parsed form: two texts of one time are two documents.
        verify_document(trusted, CERTIFICATE, document.raw["certificate"], document.signed.signature)
    except SigningError:
        return Check("signature", "bad", f"not made with {key_name}, or something was changed afterwards")
    if (stated.coordinator_key, stated.coordinator_fingerprint) != (key, fingerprint(trusted)):
        return Check("signature", "bad", f"made with {key_name}, but the document names another key")
    if is_confirmed:
        return Check(
            "signature", "good", f"made with {key_name}; nothing was changed since {stated.issued_at:%Y-%m-%d}"
        )
    return Check(
        "signature",
        "not known",
        f"made with {key_name}, which proves nothing about who made it: name the fingerprint that a hospital's "
        "`wardround doctor` prints with --coordinator-key",
    )


def beyond(stated: Certificate) -> str | None:
    """Return why the model is beyond the numbers, or None.

    A model knows of every round up to its own, so that all of them must be counted.
    """
    if stated.model is None or stated.model.version <= stated.round:
        return None
    return f"round {stated.model.version} released it, and the numbers end with round {stated.round}"


def check_ledger(stated: Certificate, entries: Sequence[Entry]) -> list[Check]:
    """Return the checks that every number follows from these entries of a ledger.

    The caller has checked the ledger's signed head.
    """
    stated_ledger = stated.ledger
    if (flaw := _other_ledger(stated, entries)) is not None:
        return [flaw]
    whole = stated_ledger.counted == stated_ledger.entries
    try:
        account = compute_account(entries[: stated_ledger.entries], None if whole else stated.round)
    except (LedgerError, PlanDiffers, InvalidArgument, ValueError) as error:
        return [Check("ledger", "bad", f"no such certificate can be made from it: {error}")]
    if account.counted_entry != stated_ledger.counted:
        mismatch = "certificate.round and certificate.ledger.counted do not belong together"
        return [
            Check("ledger", "bad", f"{mismatch}: round {stated.round} was charged by entry {account.counted_entry}")
        ]
    since = _charged_since(stated, entries)
    lead = f"entries 1 to {stated_ledger.entries} lead to the head that the certificate names{since}"
    good = Check("ledger", "good", lead)
    if len(stated.limits) != len(account.limits):
        return [good, Check("ε", "bad", f"the ledger has {len(account.limits)} limits, not {len(stated.limits)}")]
    limits = [_limit(stated, at, limit) for at, limit in enumerate(account.limits)]
    # Sentences hold rounded numbers: they are written again from those that are stated, if they are the ledger's.
    if all(limit.result == "good" for limit in limits):
        account = dataclasses.replace(account, limits=tuple(map(_statement, stated.limits)))
    try:
        remade = issue_certificate(account, _facts(stated))
    except ValueError:
        # The ledger holds a value that no message can hold, such as an end for an unknown reason.
        return [Check("ledger", "bad", "no such certificate can be made from it: it says what no certificate can say")]
    return [good, *limits, _released(stated, account), *_rest(stated, remade)]


def _other_ledger(stated: Certificate, entries: Sequence[Entry]) -> Check | None:
    count = stated.ledger.entries
    if len(entries) < count:
        words = f"the export has {len(entries)} entries, the certificate stands on {count}: export it again"
        return Check("ledger", "not known", words)
    if entries[count - 1].sha256 != stated.ledger.sha256:
        return Check("ledger", "bad", f"entry {count} is not the one that the certificate stands on")
    if not _head_is_signed(stated):
        return Check("ledger", "bad", "the head that the certificate names is not signed with the key that it names")
    return None


def _statement(limit: CertifiedLimit) -> LimitStatement:
    return LimitStatement.model_validate(limit.model_dump(exclude={"meaning"}))


def _released(stated: Certificate, account: CertificateAccount) -> Check:
    """Return the check that the ledger names the model's file."""
    if account.bound is None:
        unnamed = "this ledger names no models: which file is the model, the coordinator's word alone says"
        return Check("named model", "not known" if stated.model is not None else "good", unnamed)
    ledger_model = account.bound.model
    if stated.model != (None if ledger_model is None else model_info(ledger_model)):
        return Check("named model", "bad", "certificate.model is not the file that the ledger names")
    words = (
        "no model was released"
        if ledger_model is None
        else f"entry {ledger_model.entry} names it, of round {ledger_model.version}"
    )
    return Check("named model", "good", words)


def _head_is_signed(stated: Certificate) -> bool:
    head = LedgerHead(study=stated.study, entries=stated.ledger.entries, sha256=stated.ledger.sha256)
    try:
        key = decode_public_key(stated.coordinator_key)
        verify_document(key, LEDGER_HEAD, head.model_dump(mode="json"), stated.ledger.signature)
    except SigningError:
        return False
    return True


def _charged_since(stated: Certificate, entries: Sequence[Entry]) -> str:
    since = sum(entry.kind in CHARGED for entry in entries[stated.ledger.counted :])
    rounds = "1 later round is" if since == 1 else f"{since} later rounds are"
    return f"; {rounds} in the ledger and not in these numbers" if since else ""


def _limit(stated: Certificate, at: int, recomputed_limit: LimitStatement) -> Check:
    subject = f"ε, {recomputed_limit.level} {recomputed_limit.definition}"
    stated_limit = stated.limits[at].model_dump(exclude={"meaning"}) if at < len(stated.limits) else None
    recomputed = (
        recomputed_limit.model_dump()
        if stated_limit is None
        else in_form_of(stated_limit, recomputed_limit.model_dump())
    )
    different = difference(stated_limit, recomputed, "limit", tolerance=tolerance_of([recomputed]))
    if different is not None:
        return Check(subject, "bad", f"the ledger gives another number: {different}")
    if (rough := difference(stated_limit, recomputed, "limit", strict=True)) is not None:
        words = f"{rough} differs, which the last bits of another processor can do: everything else agrees"
        return Check(subject, "not known", words)
    if recomputed_limit.state == "unbounded":
        return Check(subject, "good", "computed again from the raw events: not protected")
    if recomputed_limit.counted is not None:
        words = f"{recomputed_limit.enforced_by}, computed again from the settings: {limit_in_words(recomputed_limit)}"
        return Check(subject, "good", words)
    words = f"computed again from the raw events: {recomputed_limit.spent} of {recomputed_limit.epsilon}"
    return Check(subject, "good", words)


def _rest(stated: Certificate, remade: Certificate) -> list[Check]:
    if (objection := beyond(stated)) is not None:
        return [Check("everything else", "bad", f"the model's numbers are not these: {objection}")]
    stated_numbers, recomputed_numbers = _numbers(stated), _numbers(remade)
    checks = [Check("everything else", "good", "mechanism, rounds, members and settings are those of the ledger")]
    if _counts_questions_as_steps(stated, remade):
        recomputed_numbers["rounds"]["steps"] = stated.rounds.steps
        words = "certificate.rounds.steps counts questions as well, as an earlier version did: everything else agrees"
        checks = [Check("everything else", "not known", words)]
    tolerance = tolerance_of(recomputed_numbers["limits"])
    numbers = difference(stated_numbers, recomputed_numbers, "certificate", tolerance=tolerance)
    if numbers is not None:
        return [Check("everything else", "bad", f"the ledger says otherwise: {numbers}")]
    words = difference(stated.model_dump(), remade.model_dump(), "certificate")
    if words is None:
        return [*checks, Check("sentences", "good", "each is what these numbers mean")]
    remark = f"{words} is not what this version writes for these numbers: believe the numbers"
    return [*checks, Check("sentences", "not known", remark)]


def _counts_questions_as_steps(stated: Certificate, remade: Certificate) -> bool:
    every = remade.rounds.charged * remade.mechanism.steps_per_round
    return stated.rounds.steps == every != remade.rounds.steps


def _numbers(stated: Certificate) -> dict[str, Any]:
    limits: dict[str, Any] = {"__all__": {"meaning"}}
    sentences: dict[str, Any] = dict.fromkeys(_SENTENCES, True)
    return stated.model_dump(exclude={**sentences, "limits": limits, "distances": {"words"}})


def _facts(stated: Certificate) -> Facts:
    return Facts(
        title=stated.title,
        state=stated.state,
        stop_reason=stated.stop_reason,
        issued_at=stated.issued_at,
        coordinator_key=stated.coordinator_key,
        head_signature=stated.ledger.signature,
        model=stated.model,
        result=stated.result,
        distances=None if stated.distances is None else DistanceBlocks.stated(stated.distances),
    )
