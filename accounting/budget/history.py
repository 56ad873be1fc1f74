"""What a ledger says a study had spent after each of its rounds: the whole way, computed from its entries alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from accounting.budget.bodies import Standing, event_in
from accounting.budget.budget import Budget, opened_by
from accounting.budget.ledger import Entry, verify_chain
from accounting.budget.statements import shown
from accounting.errors import InvalidArgument

CHARGED = ("settled", "charged-in-full")


@dataclass(frozen=True)
class SpentAfter:
    """ε of every limit, in the order of the plan, once this round was charged; None where no finite ε covers it."""

    round: int
    spent: tuple[float | None, ...]


@dataclass(frozen=True)
class History:
    """A study up to one of its ledger's entries.

    budget   as it stood after that entry;  counted: the entry's number
    charged  after every round that was charged, in order
    kinds    how many entries there are of each kind, up to there
    members  active members when a round was reserved: the least and the most; None before the first
    standing what that entry says besides
    """

    budget: Budget
    counted: int
    charged: tuple[SpentAfter, ...]
    kinds: Counter[str]
    members: tuple[int, int] | None
    standing: Standing


def history_of(entries: Sequence[Entry], round: int | None = None) -> History:
    """The history up to the end of `entries`, or up to the charge of `round`.

    Log-moments that the last entry shows after all are known to everybody from then on: also the statement of an
    earlier round says so.

    Raises:
        LedgerError: the entries are no ledger.
        InvalidArgument: `round` was not charged.
    """
    verify_chain(entries)
    last = _charge_of(entries, round)
    budget = opened_by(entries[0])
    charged: list[SpentAfter] = []
    members: list[int] = []
    for entry in entries[1:last]:
        budget.apply(entry)
        if entry.kind == "reserved":
            members.append(Standing.within(entry).members)
        if entry.kind in CHARGED:
            charged.append(SpentAfter(entry.round or 0, _spent(budget)))
    if last < len(entries) and entries[-1].kind == "finished" and budget.plan.disclosure == "at-end":
        # With the worst case of every round, as its readers had it; only what certificates say of others changes.
        budget.finish(str(event_in(entries[-1])["reason"]))
    kinds = Counter[str](entry.kind for entry in entries[:last])
    least_and_most = (min(members), max(members)) if members else None
    return History(budget, last, tuple(charged), kinds, least_and_most, Standing.within(entries[last - 1]))


def _charge_of(entries: Sequence[Entry], round: int | None) -> int:
    """The number of the entry that charges `round`; of the last one for None."""
    if not entries:
        raise InvalidArgument("entries", "an empty ledger opens no study")
    if round is None:
        return len(entries)
    found = [entry.sequence for entry in entries if entry.kind in CHARGED and entry.round == round]
    if not found:
        raise InvalidArgument("round", f"no entry charges round {round}")
    return found[0]


def _spent(budget: Budget) -> tuple[float | None, ...]:
    spent = [shown(budget.accounts, account) for account in budget.accounts]
    return tuple(value if math.isfinite(value) else None for value in spent)
