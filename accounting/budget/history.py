"""The spending of a study after each of its rounds: the whole way, computed from the ledger's entries alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accounting.budget.bodies import Standing, event_in
from accounting.budget.budget import Budget, opened_by
from accounting.budget.ledger import Entry, LedgerError, verify_chain
from accounting.budget.releases import NamedModel, named_models
from accounting.budget.statements import displayed_epsilon
from accounting.errors import InvalidArgument

CHARGED = ("settled", "charged-in-full")
# Charged rounds between two places of a walk from which it can be taken up again.
MILESTONE_ROUNDS = 25


@dataclass(frozen=True)
class SpentAfter:
    """ε of every limit, in the order of the plan, once this round was charged. None where no finite ε covers it."""

    round: int
    spent: tuple[float | None, ...]


@dataclass(frozen=True)
class History:
    """A study up to one of its ledger's entries.

    budget       as it stood after that entry
    entry_count  the entry's number
    charged  after every round that was charged, in order
    answered how many of the charged rounds were of questions
    kinds    how many entries there are of each kind, up to there
    members  active members when a round was reserved: the least and the most. None before the first
    standing what that entry says besides
    """

    budget: Budget
    entry_count: int
    charged: tuple[SpentAfter, ...]
    answered: int
    kinds: Counter[str]
    members: tuple[int, int] | None
    standing: Standing


class _Course:
    """A study as it went, entry by entry."""

    def __init__(self, opening: Entry) -> None:
        self.budget = opened_by(opening)
        self.newest = opening
        self.charged: list[SpentAfter] = []
        self.answered = 0
        self.kinds = Counter[str]([opening.kind])
        self.members: tuple[int, int] | None = None

    def take(self, entry: Entry) -> None:
        """Go one entry further. Raises LedgerError: it cannot have happened."""
        of_question = self.budget.pending_query is not None
        self.budget.apply(entry)
        self.newest = entry
        self.kinds[entry.kind] += 1
        if entry.kind == "reserved":
            active = Standing.within(entry).members
            min_members, max_members = self.members or (active, active)
            self.members = min(min_members, active), max(max_members, active)
        if entry.kind in CHARGED:
            self.charged.append(SpentAfter(entry.round or 0, _spent(self.budget)))
            self.answered += of_question

    def history(self, end: Entry) -> History:
        """Up to here. `end`: the ledger's last entry."""
        if end.sequence > self.newest.sequence and _reveals(self.budget, end):
            # With the worst case of every round, as its readers had it. Only what certificates say of others changes.
            self.budget.finish(str(event_in(end)["reason"]))
        standing = Standing.within(self.newest)
        entry_count, charged = self.newest.sequence, tuple(self.charged)
        return History(self.budget, entry_count, charged, self.answered, Counter(self.kinds), self.members, standing)


def _reveals(budget: Budget, end: Entry) -> bool:
    """Whether the study's last entry changes what is said of its earlier rounds."""
    return end.kind == "finished" and budget.plan.disclosure == "at-end"


@dataclass(frozen=True)
class _Milestone:
    """A course that can be taken up again."""

    newest: Entry
    state: Mapping[str, Any]
    charged: int
    answered: int
    kinds: Counter[str]
    members: tuple[int, int] | None


class Walk:
    """One study's ledger, walked once and taken up where it grows: no entry is computed twice for its end, and for an
    earlier round those alone that follow the milestone before it.

    After any error the walk must not be used again.

    named_models  the models that the ledger names, by version

    Raises:
        LedgerError: the entry opens no study.
    """

    def __init__(self, opening: Entry) -> None:
        verify_chain([opening])
        self.opening = opening
        self._course = _Course(opening)
        self._charges: dict[int, Entry] = {}
        self.named_models: dict[int, NamedModel] = {}
        self._milestones = [self._milestone()]

    @property
    def newest(self) -> Entry:
        """The last entry that was walked to."""
        return self._course.newest

    def extend(self, entries: Iterable[Entry]) -> None:
        """Go on. Raises LedgerError: these entries do not follow."""
        for entry in entries:
            verify_chain([entry], after=(self.newest.sequence, self.newest.sha256))
            self._course.take(entry)
            self.named_models |= named_models([entry])
            if entry.kind in CHARGED:
                self._charges[entry.round or 0] = entry
                if len(self._course.charged) % MILESTONE_ROUNDS == 0:
                    self._milestones.append(self._milestone())

    @property
    def begun(self) -> bool:
        """Whether a round of training or of a question was reserved."""
        return bool(self._course.kinds["reserved"] or self._course.kinds["asked"])

    def charge_of(self, round_number: int) -> Entry:
        """The entry that charges this round. Raises InvalidArgument: none does."""
        if round_number not in self._charges:
            raise InvalidArgument("round", f"no entry charges round {round_number}")
        return self._charges[round_number]

    def told_by(self, round_number: int | None) -> tuple[str, str]:
        """Return the hashes that the history up to the charge of the round follows from. Raises InvalidArgument."""
        ends = _reveals(self._course.budget, self.newest)
        charge_entry = self.newest if round_number is None else self.charge_of(round_number)
        return charge_entry.sha256, self.newest.sha256 if ends else ""

    def since(self, round_number: int | None) -> tuple[int, int]:
        """Return which entries `history` needs again: those above the first number, up to the second one.

        Raises:
            InvalidArgument: the round was not charged.
        """
        if round_number is None:
            return self.newest.sequence, self.newest.sequence
        charge = self.charge_of(round_number)
        return self._before(charge).newest.sequence, charge.sequence

    def history(self, round_number: int | None = None, entries: Iterable[Entry] = ()) -> History:
        """Return the history as `history_of`. entries: those that `since` names.

        Raises:
            LedgerError: they are others than those that were walked over.
            InvalidArgument: the round was not charged.
        """
        if round_number is None:
            return self._course.history(self.newest)
        charge = self.charge_of(round_number)
        start = self._before(charge)
        course = _Course(self.opening)
        course.budget = Budget.restore(course.budget.plan, start.state)
        course.newest, course.charged = start.newest, self._course.charged[: start.charged]
        course.answered, course.kinds, course.members = start.answered, Counter(start.kinds), start.members
        for entry in entries:
            verify_chain([entry], after=(course.newest.sequence, course.newest.sha256))
            course.take(entry)
        if course.newest.sha256 != charge.sha256:
            raise LedgerError(charge.sequence, "is not the entry that it was")
        return course.history(self.newest)

    def _before(self, charge: Entry) -> _Milestone:
        return next(
            milestone for milestone in reversed(self._milestones) if milestone.newest.sequence <= charge.sequence
        )

    def _milestone(self) -> _Milestone:
        course = self._course
        return _Milestone(
            course.newest,
            course.budget.state(),
            len(course.charged),
            course.answered,
            Counter(course.kinds),
            course.members,
        )


def history_of(entries: Sequence[Entry], round_number: int | None = None) -> History:
    """Return the history up to the end of `entries`, or up to the charge of the round.

    Log-moments that the last entry shows after all are known to all from then on: also the statement of an
    earlier round says so.

    Raises:
        LedgerError: the entries are no ledger.
        InvalidArgument: the round was not charged.
    """
    verify_chain(entries)
    last = _charge_of(entries, round_number)
    course = _Course(entries[0])
    for entry in entries[1:last]:
        course.take(entry)
    return course.history(entries[-1])


def _charge_of(entries: Sequence[Entry], round_number: int | None) -> int:
    """Return the number of the entry that charges the round, or of the last one for None."""
    if not entries:
        raise InvalidArgument("entries", "an empty ledger opens no study")
    if round_number is None:
        return len(entries)
    sequences = [entry.sequence for entry in entries if entry.kind in CHARGED and entry.round == round_number]
    if not sequences:
        raise InvalidArgument("round", f"no entry charges round {round_number}")
    return sequences[0]


def _spent(budget: Budget) -> tuple[float | None, ...]:
    spent = [displayed_epsilon(budget.accounts, account) for account in budget.accounts]
    return tuple(value if math.isfinite(value) else None for value in spent)
