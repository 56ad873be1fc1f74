"""Signed heads that go from hand to hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from accounting.budget.ledger import Entry
from client_sdk.errors import ConfigurationError, LedgerForked
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.seen_ledger import LedgerStep, SeenHead
from client_sdk.identity import Identity, Membership
from client_sdk.study.heads import HeadFile, SignedByCoordinator, compare_heads, exported, read_head_file
from study_protocol.study.messages import LedgerHead, RosterEntry
from study_protocol.study.plan_of import plan_of
from study_protocol.study.witness import require_witnessed, sign_head
from study_protocol.wire.signing import LEDGER_HEAD, encode_public_key, sign_document
from tests.factories.ledgers import after, opened
from tests.factories.settings import settings

COORDINATOR, GRACE, STRANGER = (Ed25519PrivateKey.from_private_bytes(bytes([n] * 32)) for n in (1, 2, 3))


def public(key: Ed25519PrivateKey) -> str:
    return encode_public_key(key.public_key())


MEMBERSHIP = Membership(
    study="sepsis",
    client="mercy",
    url="https://x.example",
    origin="https://x.example",
    coordinator_key=public(COORDINATOR),
    pinned=(RosterEntry(client="grace", public_key=public(GRACE), state="active"),),
)


def chain(rounds: int, **options: Any) -> list[Entry]:
    chosen = settings(max_steps=9, **options)
    entries = opened(plan_of(chosen), chosen.as_json(), "sepsis")
    for number in range(1, rounds + 1):
        entries.append(after(entries, "reserved", number))
    return entries


def head_of(entries: Sequence[Entry]) -> LedgerHead:
    return LedgerHead(study="sepsis", entries=len(entries), sha256=entries[-1].sha256)


def signed(entries: Sequence[Entry], key: Ed25519PrivateKey = COORDINATOR) -> dict[str, Any]:
    document = head_of(entries).model_dump(mode="json")
    return {"label": LEDGER_HEAD, "document": document, "signature": sign_document(key, LEDGER_HEAD, document)}


def head_file(entries: Sequence[Entry], **shown: Any) -> HeadFile:
    """Of grace, to whom the coordinator showed these entries."""
    return HeadFile(
        witness=sign_head(GRACE, "grace", head_of(entries)),
        shown=SignedByCoordinator.model_validate(signed(entries) | shown),
    )


LEDGER = chain(5)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[HospitalLedger]:
    """Four entries were seen here."""
    with HospitalLedger.open(tmp_path / "icu.db") as kept:
        head = SeenHead(4, LEDGER[3].sha256, 3)
        kept.seen_ledger("sepsis").extend(LedgerStep(LEDGER[:4], head, signed(LEDGER[:4]), {}, ()))
        yield kept


def test_an_exported_head_is_signed_and_shows_what_the_coordinator_signed(
    tmp_path: Path, ledger: HospitalLedger
) -> None:
    identity = Identity.create(tmp_path / "mercy")
    file = exported(identity, MEMBERSHIP, ledger)
    require_witnessed(file.witness)
    assert (file.witness.client, file.witness.head) == ("mercy", head_of(LEDGER[:4]))
    assert file.shown.model_dump() == signed(LEDGER[:4])
    assert read_head_file(file.model_dump_json().encode()) == file
    other = MEMBERSHIP.model_copy(update={"study": "stroke"})
    with pytest.raises(ConfigurationError, match="nothing of the ledger of stroke was seen here yet"):
        exported(identity, other, ledger)


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b'{"witness":{},"witness":{},"shown":{}}', b"\xff"])
def test_what_is_no_exported_head_is_refused_with_what_to_do(body: bytes) -> None:
    with pytest.raises(ConfigurationError, match="wardround witness export"):
        read_head_file(body)


@pytest.mark.parametrize(("count", "position"), [(1, "same"), (4, "same"), (5, "ahead")])
def test_a_head_on_the_same_ledger_lies_on_it_or_ahead(ledger: HospitalLedger, count: int, position: str) -> None:
    assert compare_heads(MEMBERSHIP, ledger, head_file(LEDGER[:count])) == position


def test_two_ledgers_that_the_coordinator_signed_are_proven_by_both_documents(ledger: HospitalLedger) -> None:
    other = chain(2, noise_multiplier=2.0)
    with pytest.raises(LedgerForked, match="grace was shown one whose entry 3 is another") as forked:
        compare_heads(MEMBERSHIP, ledger, head_file(other))
    proof = forked.value.proof
    assert proof is not None
    assert proof["seen"]["signed"] == signed(LEDGER[:4])
    assert proof["witness"]["shown"] == signed(other)


@pytest.mark.parametrize(
    ("file", "signer"),
    [
        # A member who alone signs could have others stop for good.
        (head_file(chain(2, noise_multiplier=2.0), **signed(chain(2, noise_multiplier=2.0), STRANGER)), "grace alone"),
        (head_file(LEDGER[:2], label="another"), "grace alone"),
        (head_file(LEDGER[:2], **signed(LEDGER[:3])), "grace alone"),
        (
            head_file(LEDGER[:2], label="another").model_copy(
                update={"witness": sign_head(STRANGER, "grace", head_of(LEDGER[:2]))}
            ),
            "(nobody|no) known",
        ),
    ],
    ids=["a stranger's", "another label", "another head", "nobody's"],
)
def test_a_head_that_the_coordinator_did_not_sign_proves_nothing(
    ledger: HospitalLedger, file: HeadFile, signer: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"{signer}.* this head, and this study's coordinator did not"):
        compare_heads(MEMBERSHIP, ledger, file)


def test_who_saw_nothing_has_nothing_to_compare(tmp_path: Path) -> None:
    with (
        HospitalLedger.open(tmp_path / "new.db") as ledger,
        pytest.raises(ConfigurationError, match="take part first"),
    ):
        compare_heads(MEMBERSHIP, ledger, head_file(LEDGER))
