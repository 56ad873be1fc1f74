"""What a hospital can say of each round it has answered, for its own records and its own eyes.

Everything outside `local` left the hospital anyway or is public. `local` is the hospital's own: how long it took, and
what its records have spent over all studies. Nothing in it depends on a single record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from client_sdk.guard.ledger import HospitalLedger, What
from client_sdk.guard.policy import Charge, OwnLimit, epsilon_spent
from client_sdk.protocol.study.messages import BudgetStatement


@dataclass(frozen=True)
class LimitSpent:
    """One limit: spent so far, of epsilon at delta. None: unbounded."""

    level: str
    definition: str
    spent: float | None
    epsilon: float | None
    delta: float | None


@dataclass(frozen=True)
class Local:
    """Not for others. seconds: from the assignment to the answer. own: this hospital's limits, over all studies."""

    seconds: float
    own: tuple[LimitSpent, ...]


@dataclass(frozen=True)
class RoundEvent:
    """One round, answered. `rounds`: most of them in the study.

    what, answer  update or refusal, and what the coordinator said to it
    bytes         of the body that left
    charge        what the own ledger was charged for it; None for a refusal
    study_budget  the study's limits as the coordinator stated them right then: this round is settled when all answered
    """

    study: str
    round: int
    rounds: int
    what: What
    answer: str
    bytes: int
    charge: Charge | None
    study_budget: tuple[LimitSpent, ...]
    local: Local

    def as_json(self) -> dict[str, Any]:
        """Plain values, for one line of JSON."""
        return asdict(self)


OnRound = Callable[[RoundEvent], None]


def round_event(
    ledger: HospitalLedger,
    rounds: int,
    statement: BudgetStatement,
    limits: Sequence[OwnLimit],
    round: int,
    seconds: float,
) -> RoundEvent | None:
    """The event of a round out of what the own ledger says of it; None if nothing was answered to it.

    rounds  most of them in the study
    limits  this hospital's own
    """
    left = [d for d in ledger.departures(statement.study) if d.round == round and d.answer is not None]
    if not left:
        return None
    last, charges = left[-1], ledger.charges()
    own = tuple(own_spent(charges, limit) for limit in limits)
    return RoundEvent(
        statement.study,
        round,
        rounds,
        last.what,
        last.answer or "",
        last.bytes,
        # Sequences count from 1.
        None if last.charge is None else Charge.from_body(ledger.entries[last.charge - 1].body),
        tuple(LimitSpent(s.level, s.definition, s.spent, s.epsilon, s.delta) for s in statement.limits),
        Local(seconds, own),
    )


def own_spent(charges: Sequence[Charge], limit: OwnLimit) -> LimitSpent:
    """How far one of the hospital's own limits is used up; an infinite ε reads None."""
    spent = epsilon_spent(charges, limit)
    return LimitSpent(limit.level, "classical", spent if math.isfinite(spent) else None, limit.epsilon, limit.delta)
