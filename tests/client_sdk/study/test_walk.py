"""A walk over the coordinator's ledger: what continues it, what forks it, and the proof."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from accounting.budget.ledger import Entry, append
from client_sdk.errors import BadAssignment, LedgerForked, LedgerNotExtended
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.seen_ledger import LedgerStep, SeenHead, SeenLedger
from client_sdk.study.walk import HeadWalk, Signed
from study_protocol.study.messages import LedgerEntry, LedgerHead, LedgerPage, SignedLedgerHead, WitnessedHead
from study_protocol.study.witness import sign_head

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
SIGNED = Signed("label", {"head": "as it was signed"}, "signature")


def chain(count: int, note: str = "", start: Sequence[Entry] = ()) -> list[Entry]:
    """Reservations of rounds 1, 2, ..."""
    entries = list(start)
    while len(entries) < count:
        last = entries[-1] if entries else None
        entries.append(append(last, "reserved", len(entries) + 1, {"note": note}))
    return entries


def head_of(entries: Sequence[Entry]) -> LedgerHead:
    return LedgerHead(study="sepsis", entries=len(entries), sha256=entries[-1].sha256)


def page(entries: Sequence[Entry], *witnesses: WitnessedHead) -> LedgerPage:
    return LedgerPage(
        entries=[LedgerEntry.model_validate(entry.to_dict()) for entry in entries],
        head=SignedLedgerHead(head=LedgerHead(study="sepsis", entries=1, sha256="0" * 64), signature="A" * 86),
        witnesses=list(witnesses),
    )


def witness(entries: Sequence[Entry], name: str = "grace") -> WitnessedHead:
    return sign_head(KEY, name, head_of(entries))


LEDGER = chain(6)


@pytest.fixture
def seen(tmp_path: Path) -> Iterator[SeenLedger]:
    """The first two entries were seen before."""
    with HospitalLedger.open(tmp_path / "icu.db") as ledger:
        seen_ledger = ledger.seen_ledger("sepsis")
        head = SeenHead(2, LEDGER[1].sha256, 2)
        seen_ledger.extend(LedgerStep(LEDGER[:2], head, {"label": "before"}, {}, ()))
        yield seen_ledger


def walk_to(seen: SeenLedger, entries: Sequence[Entry]) -> HeadWalk:
    return HeadWalk(seen, head_of(entries), SIGNED)


def test_pages_lead_from_what_was_seen_to_the_head(seen: SeenLedger) -> None:
    walk = walk_to(seen, LEDGER[:5])
    assert (walk.position, walk.reserved, walk.paged, walk.witnesses) == (2, 2, False, [])
    assert walk.take(page(LEDGER[2:4])) == LEDGER[2:4]
    # What lies beyond the head is not taken.
    assert walk.take(page(LEDGER[4:], witness(LEDGER))) == LEDGER[4:5]
    walk.require_reached()
    assert (walk.position, walk.reserved, walk.paged) == (5, 5, True)
    assert list(walk.past()) == LEDGER[:5]
    assert walk.witnesses == [witness(LEDGER)]
    step = walk.step({"n": 1}, [])
    assert step is not None
    assert (step.entries, step.head) == (LEDGER[2:5], SeenHead(5, LEDGER[4].sha256, 5))
    assert step.signed == {"label": "label", "document": {"head": "as it was signed"}, "signature": "signature"}


def test_a_walk_over_nothing_new_keeps_nothing(seen: SeenLedger) -> None:
    walk = walk_to(seen, LEDGER[:2])
    walk.require_not_shorter()
    walk.require_reached()
    assert walk.step({}, []) is None
    ahead = witness(LEDGER)
    step = walk.step({}, [ahead])
    assert step is not None
    # The document that named the head before still does.
    assert (step.signed, list(step.heads_ahead)) == ({"label": "before"}, [ahead])


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (chain(6, "other", LEDGER[:1])[2:], "was rewritten"),
        (LEDGER[3:], "was rewritten"),
        ([LEDGER[2], LEDGER[2]], "was rewritten"),
        ([], "does not show entry 3"),
    ],
    ids=["another past", "a gap", "twice", "nothing"],
)
def test_entries_that_do_not_hang_on_what_was_seen_are_refused(
    seen: SeenLedger, entries: list[Entry], words: str
) -> None:
    with pytest.raises(LedgerNotExtended, match=words):
        walk_to(seen, LEDGER).take(page(entries))


def test_a_rewritten_ledger_is_proven_by_what_was_signed_before_and_now(seen: SeenLedger) -> None:
    other = chain(6, "other", LEDGER[:1])
    with pytest.raises(LedgerNotExtended) as refused:
        walk_to(seen, other).take(page(other[2:]))
    proof = refused.value.proof
    assert proof is not None
    assert proof["seen"] == {"signed": {"label": "before"}, "entries": [entry.to_dict() for entry in LEDGER[:2]]}
    assert proof["shown"]["signed"]["document"] == {"head": "as it was signed"}
    assert [entry["sha256"] for entry in proof["shown"]["pages"][0]["entries"]] == [entry.sha256 for entry in other[2:]]


def test_a_ledger_as_long_with_another_past_does_not_end_at_its_head(seen: SeenLedger) -> None:
    walk = HeadWalk(seen, LedgerHead(study="sepsis", entries=2, sha256="ab" * 32), SIGNED)
    with pytest.raises(LedgerNotExtended, match="its head is not the one it names"):
        walk.require_reached()


def test_a_backup_that_was_put_back_is_no_proof_and_another_past_is(seen: SeenLedger) -> None:
    with pytest.raises(LedgerNotExtended, match=r"has 1 entries. this hospital has seen 2") as restored:
        walk_to(seen, LEDGER[:1]).require_not_shorter()
    assert restored.value.proof is None
    with pytest.raises(LedgerNotExtended, match="was rewritten") as rewritten:
        walk_to(seen, chain(1, "other")).require_not_shorter()
    assert rewritten.value.proof is not None
    walk_to(seen, LEDGER[:3]).require_not_shorter()


def test_heads_of_other_hospitals_lie_on_the_ledger_or_ahead_of_it(seen: SeenLedger) -> None:
    walk = walk_to(seen, LEDGER[:4])
    walk.take(page(LEDGER[2:4]))
    ahead = witness(LEDGER[:5], "hope")
    assert walk.compare([witness(LEDGER[:1]), witness(LEDGER[:4]), ahead]) == [ahead]


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_head_of_another_ledger_is_a_fork(seen: SeenLedger, number: int) -> None:
    walk = walk_to(seen, LEDGER[:4])
    walk.take(page(LEDGER[2:4]))
    other = witness(chain(number, "other"))
    with pytest.raises(LedgerForked, match=f"grace has signed one whose entry {number} is another") as forked:
        walk.compare([witness(LEDGER[:2], "hope"), other])
    assert forked.value.proof is not None
    assert forked.value.proof["witness"]["client"] == "grace"


def test_a_head_that_lay_ahead_before_is_looked_up_when_the_walk_comes_to_it(seen: SeenLedger) -> None:
    seen.keep_ahead(witness(chain(4, "other")))
    walk = walk_to(seen, LEDGER[:3])
    walk.take(page(LEDGER[2:3]))
    assert len(walk.compare([])) == 1
    walk = walk_to(seen, LEDGER[:4])
    walk.take(page(LEDGER[2:4]))
    with pytest.raises(LedgerForked, match="entry 4"):
        walk.compare([])


def test_what_is_not_trusted_within_carries_what_was_shown(seen: SeenLedger) -> None:
    walk = walk_to(seen, LEDGER[:3])
    walk.take(page(LEDGER[2:3]))
    with pytest.raises(BadAssignment) as refused, walk.proving():
        raise BadAssignment("another study")
    assert refused.value.proof is not None
    assert len(refused.value.proof["shown"]["pages"]) == 1
