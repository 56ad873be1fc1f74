"""A second way for heads: a signed head goes from hand to hand, and forks are found without the coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError

from accounting.budget.bodies import settings_in
from client_sdk.errors import ConfigurationError, LedgerForked
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.identity import Identity, Membership
from client_sdk.study.verifier import trusted_witnesses
from study_protocol.study.any_settings import AnySettings, settings_from
from study_protocol.study.messages import LedgerHead, WitnessedHead
from study_protocol.study.witness import require_witnessed, sign_head
from study_protocol.wire.documents import read_document
from study_protocol.wire.signing import ASSIGNMENT, LEDGER_HEAD, SigningError, decode_public_key, verify_document
from study_protocol.wire.values import Message

HeadPosition = Literal["same", "ahead"]


class SignedByCoordinator(Message):
    """A document of the coordinator that names a head, with the label that it was signed under."""

    label: str
    document: dict[str, Any]
    signature: str


class HeadFile(Message):
    """One witness's newest head, and what the coordinator signed to show it."""

    witness: WitnessedHead = Field(description="under the signature of who exported it")
    shown: SignedByCoordinator = Field(description="what the coordinator had signed")


def exported(identity: Identity, membership: Membership, ledger: HospitalLedger) -> HeadFile:
    """The newest head that was seen here, signed.

    Raises:
        ConfigurationError: no entry of the study was seen here.
    """
    seen_ledger = ledger.seen_ledger(membership.study)
    if seen_ledger.signed is None:
        raise ConfigurationError(f"nothing of the ledger of {membership.study} was seen here yet: take part first")
    head = LedgerHead(study=membership.study, entries=seen_ledger.head.sequence, sha256=seen_ledger.head.sha256)
    witness = sign_head(identity.key, membership.client, head)
    return HeadFile(witness=witness, shown=SignedByCoordinator.model_validate(seen_ledger.signed))


def read_head_file(body: bytes) -> HeadFile:
    """Raises ConfigurationError: it is no exported head."""
    try:
        return read_document(HeadFile, body)
    except ValueError as error:
        raise ConfigurationError("it is no exported head: ask for it again (wardround witness export)") from error


def compare_heads(membership: Membership, ledger: HospitalLedger, head_file: HeadFile) -> HeadPosition:
    """Return whether another member's head lies on the ledger that was seen here: `same`, or `ahead` of it.

    The coordinator's signature on it is what counts: without it any member could have others stop for good.

    Raises:
        LedgerForked: it does not. The error carries the proof.
        ConfigurationError: no entry was seen here, or the coordinator did not sign the head.
    """
    head, seen_ledger = head_file.witness.head, ledger.seen_ledger(membership.study)
    entries = seen_ledger.entries()
    if not entries:
        raise ConfigurationError(f"nothing of the ledger of {membership.study} was seen here yet: take part first")
    if not _is_of_coordinator(membership, head_file):
        settings = settings_from(settings_in(entries[0]))
        name = head_file.witness.client
        is_signed = _is_of_witness(membership, settings, head_file.witness)
        signer = f"{name} alone signed" if is_signed else "no known party signed"
        raise ConfigurationError(
            f"{signer} this head, and this study's coordinator did not: it proves nothing about the coordinator. Ask "
            f"{name} to export it again (wardround witness export)"
        )
    if head.entries > seen_ledger.head.sequence:
        return "ahead"
    if seen_ledger.hash_of(head.entries) != head.sha256:
        raise LedgerForked(
            f"the coordinator shows two ledgers: {head_file.witness.client} was shown one whose entry {head.entries} "
            "is another than the one shown here",
            {
                "seen": {"signed": seen_ledger.signed, "entries": [entry.to_dict() for entry in entries]},
                "witness": head_file.model_dump(mode="json"),
            },
        )
    return "same"


def _is_of_witness(membership: Membership, settings: AnySettings, witness: WitnessedHead) -> bool:
    if (witness.client, witness.public_key) not in trusted_witnesses(membership, settings):
        return False
    try:
        require_witnessed(witness)
    except SigningError:
        return False
    return True


def _is_of_coordinator(membership: Membership, head_file: HeadFile) -> bool:
    """Whether the coordinator that was pinned here signed a document that names this very head."""
    signed_head = head_file.shown
    if signed_head.label not in (ASSIGNMENT, LEDGER_HEAD):
        return False
    try:
        verify_document(
            decode_public_key(membership.coordinator_key),
            signed_head.label,
            signed_head.document,
            signed_head.signature,
        )
        return _named_head(signed_head.label, signed_head.document) == head_file.witness.head
    except (SigningError, ValidationError):
        return False


def _named_head(label: str, document: Mapping[str, Any]) -> LedgerHead:
    if label == LEDGER_HEAD:
        return LedgerHead.model_validate(document)
    # As JSON, in which times are texts.
    return LedgerHead.model_validate(document.get("ledger"))
