"""The event of each round that a hospital has answered, for its own records and its own eyes.

Everything outside `local` left the hospital anyway or is public. `local` is the hospital's own: how long it took, and
what its records have spent over all studies. It does not depend on a single record.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from accounting.mechanisms.conversion import epsilon_from_moments
from accounting.units import PRIVACY_LOSS_DISTRIBUTION
from client_sdk.guard.charges import Charge, OwnLimit, epsilon_spent, squares_spent
from client_sdk.guard.ledger import BodyKind, HospitalLedger
from study_protocol.study.limit_statement import LimitStatement, SumOfSquares
from study_protocol.study.limit_words import progress_in_words, squares_in_words
from study_protocol.study.messages import BudgetStatement


@dataclass(frozen=True)
class LimitSpent:
    """One limit: spent so far, of epsilon at delta. None: unbounded.

    tight       the same rounds by their privacy-loss distribution, where that is stated beside it. With `progress` it
                holds if the study ended here for reasons that do not depend on its results, of a hospital's own limit
                if all studies did
    progress    how far the limit is used up, in words, where steps or squares are counted: `spent` is then what holds
                in any case. None: the limit is kept in ε
    takes_questions  all steps of a fixed plan are done, and questions have a part of their own left
    fixed_term  the part of ε that the conversion at a fixed order adds with the first round, and never again
    used        of a hospital's own limit under the Gaussian rule: Σ Δ²/s² so far, and the most that it may become
    """

    level: str
    definition: str
    spent: float | None
    epsilon: float | None
    delta: float | None
    tight: float | None = None
    fixed_term: float | None = None
    progress: str | None = None
    used: tuple[float, float] | None = None
    takes_questions: bool = False


@dataclass(frozen=True)
class Local:
    """The part that is not for others. seconds: from the assignment to the answer. own: this hospital's limits, over
    all studies.

    waited  of the seconds those in which the answer was ready and waited for its slot. None: the study has no slots
    """

    seconds: float
    own: tuple[LimitSpent, ...]
    waited: float | None = None


@dataclass(frozen=True)
class RoundEvent:
    """One round, answered. `rounds`: most of them in the study.

    rounds_left   an estimate: most that may follow, if rounds cost what the last one did
    spent_share   the largest share of a limit of the study that is spent, rounded up: of the share for questions once
                  all steps of a fixed plan are done. None: there is no limit
    what, answer  update or refusal, and what the coordinator said to it
    bytes         of the body that left
    charge        what the local ledger was charged for it, or None for a refusal
    study_budget  the study's limits as the coordinator stated them right then: this round is settled when all answered
    """

    study: str
    round: int
    rounds: int
    rounds_left: int
    spent_share: float | None
    what: BodyKind
    answer: str
    bytes: int
    charge: Charge | None
    study_budget: tuple[LimitSpent, ...]
    local: Local

    def as_json(self) -> dict[str, Any]:
        """Plain values, for one line of JSON."""
        line = asdict(self)
        if self.local.waited is None:
            del line["local"]["waited"]
        return line


OnRound = Callable[[RoundEvent], None]


def round_event(
    ledger: HospitalLedger,
    rounds: int,
    statement: BudgetStatement,
    limits: Sequence[OwnLimit],
    round_number: int,
    seconds: float,
    waited: float | None = None,
) -> RoundEvent | None:
    """Return the event of a round from the entries of the local ledger, or None if it was not answered.

    rounds  most of them in the study
    limits  this hospital's own
    """
    departures = [d for d in ledger.departures(statement.study) if d.round == round_number and d.answer is not None]
    if not departures:
        return None
    last, charges = departures[-1], ledger.charges()
    spent_of_limits = tuple(own_spent(charges, limit) for limit in limits)
    return RoundEvent(
        statement.study,
        round_number,
        rounds,
        _rounds_left(statement, rounds, round_number),
        _spent_share(statement),
        last.what,
        last.answer or "",
        last.bytes,
        # Sequences count from 1.
        None if last.charge is None else Charge.from_body(ledger.entries[last.charge - 1].body),
        tuple(_stated(limit) for limit in statement.limits),
        Local(seconds, spent_of_limits, waited),
    )


def _rounds_left(statement: BudgetStatement, rounds: int, round_number: int) -> int:
    estimates = [limit.rounds_left_estimate for limit in statement.limits if limit.rounds_left_estimate is not None]
    return max(0, min([rounds - round_number, *estimates]))


def _spent_share(statement: BudgetStatement) -> float | None:
    shares = [share for limit in statement.limits if (share := _share_of(limit)) is not None and math.isfinite(share)]
    # Up, but never past the whole of what was planned.
    return max(max(shares), min(1.0, math.nextafter(max(shares), math.inf))) if shares else None


def _share_of(limit: LimitStatement) -> float | None:
    squares = None if limit.progress is None else limit.progress.squares
    return squares.used / squares.allowed if squares is not None and limit.takes_questions else limit.spent_share


def _stated(limit: LimitStatement) -> LimitSpent:
    tight = next((report.epsilon for report in limit.reports if report.name == PRIVACY_LOSS_DISTRIBUTION), None)
    stated = (limit.level, limit.definition, limit.spent, limit.epsilon, limit.delta)
    words, takes_questions = progress_in_words(limit), limit.takes_questions
    return LimitSpent(*stated, tight, _fixed_term(limit), words, takes_questions=takes_questions)


def _fixed_term(limit: LimitStatement) -> float | None:
    """ε of next to no loss, read at the certificate's one order (Canonne, Kamath & Steinke 2020, Proposition 12)."""
    certificate = limit.certificate or {}
    order, conversion = certificate.get("order"), certificate.get("conversion")
    if limit.delta is None or not isinstance(order, float | int) or conversion not in ("improved", "chernoff"):
        return None
    return epsilon_from_moments([order], [sys.float_info.min], limit.delta, conversion=conversion)[0]


def own_spent(charges: Sequence[Charge], limit: OwnLimit) -> LimitSpent:
    """Return how far one of the hospital's own limits is used up. An infinite ε reads None.

    Under the Gaussian rule the limit holds in any case, from the first charge on. ε so far is `tight` then.
    """
    epsilon = epsilon_spent(charges, limit)
    spent = epsilon if math.isfinite(epsilon) else None
    if limit.rule == "renyi" or spent is None:
        return LimitSpent(limit.level, "classical", spent, limit.epsilon, limit.delta)
    used = squares_spent(charges, limit.level)
    words = squares_in_words(SumOfSquares(used=used, reserved=0.0, allowed=limit.squares))
    stated, sums = max(spent, limit.epsilon) if used else 0.0, (used, limit.squares)
    return LimitSpent(limit.level, "classical", stated, limit.epsilon, limit.delta, spent, None, words, sums)
