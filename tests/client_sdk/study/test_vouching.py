"""Who vouches for a ledger, and from when on that says something to somebody who was not there."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from accounting.budget.ledger import Entry, append
from client_sdk.errors import LedgerForked
from client_sdk.study.vouching import Voucher, agreement, outside_vouchers, vouchers
from study_protocol.study.messages import LedgerHead, RosterEntry, WitnessedHead
from study_protocol.study.outside_witness import OutsideWitness
from study_protocol.study.witness import sign_head
from study_protocol.wire.signing import encode_public_key

KEYS = {name: Ed25519PrivateKey.generate() for name in ("grace", "hope", "mercy", "state")}


def chain(count: int, note: str = "") -> list[Entry]:
    made: list[Entry] = []
    for _ in range(count):
        made.append(append(made[-1] if made else None, "roster", None, {"note": note}))
    return made


def signed(name: str, entries: list[Entry], key: Ed25519PrivateKey | None = None) -> WitnessedHead:
    head = LedgerHead(study="sepsis", entries=len(entries), sha256=entries[-1].sha256)
    return sign_head(key or KEYS[name], name, head)


def member(name: str, state: str = "active") -> RosterEntry:
    key = encode_public_key(KEYS[name].public_key())
    return RosterEntry.model_validate({"client": name, "public_key": key, "state": state})


ROSTER = [member(name) for name in KEYS]


def test_what_counts_and_why_the_rest_does_not() -> None:
    ledger = chain(5)
    bent = signed("hope", ledger[:3]).model_copy(update={"signature": signed("mercy", ledger).signature})
    found = vouchers(ledger, ROSTER, [signed("mercy", ledger[:4]), bent, signed("state", chain(9))])
    assert found == [
        Voucher("grace", 0, "no signature"),
        Voucher("hope", 0, "the signature is not valid"),
        Voucher("mercy", 4),
        Voucher("state", 0, "signed entry 9, which is not shown"),
    ]


def test_a_key_that_was_changed_since_counts_no_more() -> None:
    ledger, old = chain(3), Ed25519PrivateKey.generate()
    assert vouchers(ledger, [member("mercy")], [signed("mercy", ledger, old)])[0].reason == (
        "signed with a key that is not the roster's"
    )
    assert vouchers(ledger, [member("mercy")], [signed("mercy", ledger)]) == [Voucher("mercy", 3)]


def test_who_has_left_or_was_put_out_is_not_counted() -> None:
    ledger = chain(3)
    gone = [member("mercy", "withdrawn"), member("hope", "revoked"), member("grace")]
    assert vouchers(ledger, gone, [signed(n, ledger) for n in ("mercy", "hope", "grace")]) == [Voucher("grace", 3)]


def test_a_hospital_that_signed_another_ledger_is_a_fork() -> None:
    with pytest.raises(LedgerForked, match="mercy has signed another ledger than this one, at entry 3"):
        vouchers(chain(5), ROSTER, [signed("mercy", chain(3, "other"))])


def test_an_auditor_is_listed_apart_and_finds_a_fork_as_hospitals_do() -> None:
    ledger, auditor = chain(5), OutsideWitness(name="state", public_key=member("state").public_key)
    assert outside_vouchers(ledger, [auditor], []) == [Voucher("state", 0, "no signature")]
    assert outside_vouchers(ledger, [auditor], [signed("state", ledger[:4])]) == [Voucher("state", 4)]
    stranger = signed("state", ledger, KEYS["mercy"])
    assert outside_vouchers(ledger, [auditor], [stranger])[0].reason == "signed with a key that is not the settings'"
    # No member: it does not count among the hospitals.
    assert vouchers(ledger, [member("mercy")], [signed("state", ledger)]) == [Voucher("mercy", 0, "no signature")]
    with pytest.raises(LedgerForked, match="state has signed another ledger than this one, at entry 3"):
        outside_vouchers(ledger, [auditor], [signed("state", chain(3, "other"))])


@pytest.mark.parametrize(
    ("signed_up_to", "colluders", "needed", "vouched"),
    [
        ([5, 5, 5, 5], 1, 3, 5),
        ([9, 5, 4, 0], 1, 3, 4),
        ([9, 9, 0, 0], 1, 3, 0),
        ([9, 8, 7, 6], 2, 4, 6),
        ([7], 0, 1, 7),
        ([7], 1, 2, 0),
        ([], 1, 1, 0),
    ],
)
def test_so_many_signatures_that_two_ledgers_cannot_both_have_them(
    signed_up_to: list[int], colluders: int, needed: int, vouched: int
) -> None:
    found = agreement([Voucher(f"h{i}", entries) for i, entries in enumerate(signed_up_to)], colluders)
    assert (found.needed, found.entries) == (needed, vouched)
    # Two ledgers with so many signatures each would take more than every member once and the colluders twice.
    assert 2 * found.needed > len(signed_up_to) + colluders


def test_outside_witnesses_are_held_against_the_ledger_with_the_keys_of_the_settings() -> None:
    ledger, other = chain(5), Ed25519PrivateKey.generate()
    auditors = [
        OutsideWitness(name=name, public_key=encode_public_key(KEYS[name].public_key())) for name in ("state", "grace")
    ]
    assert outside_vouchers(ledger, auditors, [signed("grace", ledger[:4]), signed("state", ledger, other)]) == [
        Voucher("grace", 4),
        Voucher("state", 0, "signed with a key that is not the settings'"),
    ]
    with pytest.raises(LedgerForked, match="grace has signed another ledger"):
        outside_vouchers(ledger, auditors, [signed("grace", chain(4, "other"))])
