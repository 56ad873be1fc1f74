"""Who vouches for a ledger, hospitals and auditors, up to which entry, and what that tells who was not there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from accounting.budget.ledger import Entry
from client_sdk.errors import LedgerForked
from client_sdk.protocol.study.messages import RosterEntry, WitnessedHead
from client_sdk.protocol.study.outside_witness import OutsideWitness
from client_sdk.protocol.study.witness import require_witnessed
from client_sdk.protocol.wire.signing import SigningError


@dataclass(frozen=True)
class Voucher:
    """What one hospital of the roster, or one outside witness, has signed.

    entries  up to which entry; 0: nothing that counts, and `why` says why
    """

    client: str
    entries: int
    why: str = ""


@dataclass(frozen=True)
class Agreement:
    """needed: so many signatures make a ledger the one that the hospitals saw;  entries: up to here it has them."""

    needed: int
    entries: int


def vouchers(
    entries: Sequence[Entry], roster: Sequence[RosterEntry], witnesses: Sequence[WitnessedHead]
) -> list[Voucher]:
    """What each active member has signed of this ledger, by name.

    roster  whose fingerprint a person compared: without that, the keys may be the coordinator's own

    Raises:
        LedgerForked: a member has signed another ledger.
    """
    shown = {witness.client: witness for witness in witnesses}
    active = sorted((m for m in roster if m.state == "active"), key=lambda member: member.client)
    return [_voucher(entries, one.client, one.public_key, shown.get(one.client), "the roster's") for one in active]


def outside_vouchers(
    entries: Sequence[Entry], outside: Sequence[OutsideWitness], witnesses: Sequence[WitnessedHead]
) -> list[Voucher]:
    """What each outside witness of the settings in the first entry has signed; raises as `vouchers`.

    They are no members: none of them counts for `agreement`.
    """
    shown = {witness.client: witness for witness in witnesses}
    return [_voucher(entries, one.name, one.public_key, shown.get(one.name), "the settings'") for one in outside]


def _voucher(entries: Sequence[Entry], name: str, key: str, witness: WitnessedHead | None, whose: str) -> Voucher:
    if witness is None:
        return Voucher(name, 0, "no signature")
    # An old key may be in other hands now: who changed it signs anew in the next round.
    if witness.public_key != key:
        return Voucher(name, 0, f"signed with a key that is not {whose}")
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


def agreement(found: Sequence[Voucher], colluders: int) -> Agreement:
    """Up to where more than (n + c)/2 of n members vouch, c of whom may sign whatever the coordinator wants.

    Two heads that are not on one chain cannot both have so many: together they would have more than n + c signatures,
    and only c members sign twice.
    """
    needed = (len(found) + colluders) // 2 + 1
    signed = sorted((voucher.entries for voucher in found), reverse=True)
    return Agreement(needed, signed[needed - 1] if needed <= len(signed) else 0)
