"""The laws notice a ledger that breaks them: otherwise the end-to-end tests could not fail."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from accounting.ledger import Entry, append
from experiments import laws
from experiments.laws import LawBroken

GOOD = [("opened", None), ("reserved", 1), ("settled", 1), ("reserved", 2), ("stood", 2), ("finished", None)]


def ledger(events: Sequence[tuple[str, int | None]]) -> list[Entry]:
    entries: list[Entry] = []
    for kind, round in events:
        entries.append(append(entries[-1] if entries else None, kind, round, {}))  # type: ignore[arg-type]
    return entries


def test_a_sound_ledger_passes():
    laws._every_round_is_reserved_once_and_ends_once(ledger(GOOD), finished=True)
    laws._every_round_is_reserved_once_and_ends_once(ledger([*GOOD[:3], ("reserved", 2)]), finished=False)


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
        ([*GOOD[:2], ("voided", 1), ("stood", 1), ("finished", None)], True, "round 1 reads"),
    ],
)
def test_a_broken_ledger_is_noticed(events: list[tuple[str, int | None]], finished: bool, law: str):
    with pytest.raises(LawBroken, match=law):
        laws._every_round_is_reserved_once_and_ends_once(ledger(events), finished=finished)
