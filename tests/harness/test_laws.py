"""The laws notice a ledger that breaks them: otherwise the end-to-end tests could not fail."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from accounting.budget.ledger import Entry, append
from client_sdk.secure_sum.store import RoundRecord
from tests.harness import laws
from tests.harness.laws import LawBroken

GOOD = [("opened", None), ("reserved", 1), ("settled", 1), ("reserved", 2), ("charged-in-full", 2), ("finished", None)]


def ledger(events: Sequence[tuple[str, int | None]]) -> list[Entry]:
    entries: list[Entry] = []
    for kind, round in events:
        entries.append(append(entries[-1] if entries else None, kind, round, {}))  # type: ignore[arg-type]
    return entries


def test_a_sound_ledger_passes():
    laws._every_round_is_reserved_once_and_ends_once(ledger(GOOD), finished=True)
    laws._every_round_is_reserved_once_and_ends_once(ledger([*GOOD[:3], ("reserved", 2)]), finished=False)
    events = [GOOD[0], ("released", None), *GOOD[1:3], ("released", 1), *GOOD[3:]]
    laws._every_round_is_reserved_once_and_ends_once(ledger(events), finished=True)


def test_a_masked_round_that_was_opened_and_given_back_is_noticed(tmp_path: Path):
    folder = tmp_path / "outbox" / "sepsis" / "secure-sum"
    folder.mkdir(parents=True)
    for number, released in ((1, True), (2, False), (3, True)):
        record = RoundRecord(study="sepsis", round=number, released=released)
        (folder / f"sepsis.{number}.json").write_bytes(record.to_bytes())
    (folder / "sepsis.opened.json").write_text("{}")
    opened = {"mercy": laws._opened(tmp_path, "sepsis")}
    assert opened == {"mercy": {1, 3}}
    rounds = [
        (kind, r) for r, end in ((1, "settled"), (2, "cancelled"), (3, "charged-in-full")) for kind in ("reserved", end)
    ]
    laws._what_was_opened_is_charged(ledger(rounds), opened)
    with pytest.raises(LawBroken, match="round 3 was given back although mercy"):
        laws._what_was_opened_is_charged(ledger([*rounds[:-1], ("cancelled", 3)]), opened)


@pytest.mark.parametrize(
    ("events", "finished", "law"),
    [
        ([*GOOD[:3], ("settled", 1), *GOOD[3:]], True, "round 1 reads"),
        ([GOOD[0], ("settled", 1), *GOOD[3:]], True, "round 1 reads"),
        ([*GOOD[:2], *GOOD[3:]], True, "round 1 reads"),
        ([*GOOD[:3], ("reserved", 2), ("finished", None)], True, "round 2 reads"),
        ([GOOD[0], *GOOD[3:]], True, "gaps"),
        (GOOD[:5], True, "finishes 0 times"),
        ([*GOOD, ("finished", None)], True, "finishes 2 times"),
        (GOOD, False, "finishes 1 times"),
        ([*GOOD[:3], ("released", 1), ("released", 1), *GOOD[3:]], True, "round 1 reads"),
        ([*GOOD[:2], ("released", 1), *GOOD[3:]], True, "round 1 reads"),
        ([*GOOD[:2], ("released", 1), *GOOD[2:]], True, "round 1 reads"),
        ([*GOOD[:5], ("released", 2), GOOD[5]], True, "round 2 reads"),
        ([GOOD[0], ("asked", 1), ("settled", 1), ("released", 1), *GOOD[3:]], True, "round 1 reads"),
        ([*GOOD[:2], ("cancelled", 1), ("charged-in-full", 1), ("finished", None)], True, "round 1 reads"),
    ],
)
def test_a_broken_ledger_is_noticed(events: list[tuple[str, int | None]], finished: bool, law: str):
    with pytest.raises(LawBroken, match=law):
        laws._every_round_is_reserved_once_and_ends_once(ledger(events), finished=finished)
