"""The signatures that vouch for a ledger, up to which entry, and their value for a reader who was not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from accounting.budget.ledger import Entry
from client_sdk.errors import LedgerForked
from study_protocol.study.messages import RosterEntry, WitnessedHead
from study_protocol.study.outside_witness import OutsideWitness
from study_protocol.study.witness import require_witnessed
from study_protocol.wire.signing import SigningError


@dataclass(frozen=True)
class Voucher:
    """The signature of one hospital of the roster, or of one outside witness of the settings.

    entries  up to which entry. 0: no signature that counts, and `reason` says why
    """

    client: str
    entries: int
    reason: str = ""


@dataclass(frozen=True)
class HeadAgreement:
    """needed: so many signatures make a ledger the one that the hospitals saw. entries: up to here it has them."""

    needed: int
    entries: int


def vouchers(
    entries: Sequence[Entry], roster: Sequence[RosterEntry], witnesses: Sequence[WitnessedHead]
) -> list[Voucher]:
    """Return what each active member has signed of this ledger, by name.

    roster  whose fingerprint a person compared: without that, the keys may be the coordinator's own

    Raises:
        LedgerForked: a member has signed another ledger.
    """
    active = {member.client: member.public_key for member in roster if member.state == "active"}
    return _vouchers(entries, active, witnesses, "the roster's")


def outside_vouchers(
    entries: Sequence[Entry], outside: Sequence[OutsideWitness], witnesses: Sequence[WitnessedHead]
) -> list[Voucher]:
    """Return what each outside witness has signed of this ledger, by name.

    outside  as the study's settings name them, which hang on the ledger's first entry

    Raises:
        LedgerForked: one of them has signed another ledger.
    """
    return _vouchers(entries, {witness.name: witness.public_key for witness in outside}, witnesses, "the settings'")


def _vouchers(
    entries: Sequence[Entry], keys: Mapping[str, str], witnesses: Sequence[WitnessedHead], owner: str
) -> list[Voucher]:
    witness_of = {witness.client: witness for witness in witnesses}
    return [_voucher(entries, name, key, witness_of.get(name), owner) for name, key in sorted(keys.items())]


def _voucher(entries: Sequence[Entry], name: str, key: str, witness: WitnessedHead | None, owner: str) -> Voucher:
    if witness is None:
        return Voucher(name, 0, "no signature")
    # An old key may be in other hands now: who changed it signs anew in the next round.
    if witness.public_key != key:
        return Voucher(name, 0, f"signed with a key that is not {owner}")
    try:
        require_witnessed(witness)
    except SigningError:
        return Voucher(name, 0, "the signature is not valid")
    number = witness.head.entries
    if number > len(entries):
        return Voucher(name, 0, f"signed entry {number}, which is not shown")
    if number < 1 or entries[number - 1].sha256 != witness.head.sha256:
        raise LedgerForked(
            f"{name} has signed another ledger than this one, at entry {number}: it was shown something else"
        )
    return Voucher(name, number)


def agreement(members: Sequence[Voucher], colluders: int) -> HeadAgreement:
    """Up to where more than (n + c)/2 of n members vouch, c of whom may sign anything that the coordinator wants.

    Two heads that are not on one chain cannot both have so many: together they would have more than n + c signatures,
    and only c members sign twice.
    """
    needed = (len(members) + colluders) // 2 + 1
    signed = sorted((voucher.entries for voucher in members), reverse=True)
    return HeadAgreement(needed, signed[needed - 1] if needed <= len(signed) else 0)
