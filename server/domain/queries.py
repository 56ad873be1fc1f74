"""A query between its question and its answer: when its round may begin, what fits a budget, what its sum says."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from accounting.budget.budget import Budget
from accounting.plan.queries import QueryCost
from accounting.values import rounded_up
from study_protocol.queries.answer import Answer, NoisedSum
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.queries import LimitAfter, QueryDocument, QueryNoise

# Beyond the last second that a message can say: such a time never falls due.
NEVER = 253_402_300_799.0
_MOST_NOISE = 1e6
WARNING = (
    "No noise protects against a hospital that falsifies its own part of the sum: an answer is as honest as the "
    "hospitals that gave it."
)


@dataclass(frozen=True)
class ConsentTally:
    """The consents and refusals of the active hospitals to one query. needed: fewer consents open no round."""

    active: frozenset[str]
    granted: frozenset[str]
    refused: frozenset[str]
    needed: int

    @property
    def hopeless(self) -> bool:
        """Return whether too many have refused, of at least as many as are needed."""
        return len(self.active) >= self.needed > len(self.active - self.refused)

    def due_at(self, since: float, patience: float) -> float | None:
        """Return when its round may begin, in seconds. None: more consents are needed first.

        since     when it was asked
        patience  seconds for which silent hospitals are waited for, once enough others consent
        """
        if len(self.granted & self.active) < self.needed:
            return None
        silent = self.active - self.granted - self.refused
        return since + patience if silent else since


def shares_of(settings: AnySettings) -> int:
    """Return the least number of honest hospitals that share a query's noise. 1: every one adds all of it."""
    masking = settings.privacy.masking
    return 1 if masking is None else masking.honest_survivors


def noise_of(document: QueryDocument, settings: AnySettings, hospitals: int) -> QueryNoise:
    """Return the noise that is sure, and the noise that so many hospitals really add."""
    grid = document.question.grid()
    sure = grid.std * grid.spacing
    return QueryNoise(guaranteed=sure, present=sure * math.sqrt(hospitals / shares_of(settings)), spacing=grid.spacing)


def answer_of(
    document: QueryDocument,
    noise: QueryNoise,
    total: NDArray[np.float64],
    suppress_below: int,
    answered: frozenset[str] | None = None,
) -> Answer:
    """Return the answer that the noised sum gives.

    total     (cells,) in grid steps
    answered  the hospitals in the sum. None: all
    """
    # From the published numbers alone, so that every reader finds the same intervals.
    seed = int.from_bytes(hashlib.sha256(document.digest().encode() + total.tobytes()).digest()[:8], "big")
    answer = document.question.answer(NoisedSum(total * noise.spacing, noise.present, seed, answered, suppress_below))
    return answer.suppressed(suppress_below)


def effects(budget: Budget, cost: QueryCost, steps: Sequence[QueryCost] = ()) -> list[LimitAfter]:
    """Return the effect of a query of this cost, and of all steps after it, on every limit."""
    limits: list[LimitAfter] = []
    supposed = budget.supposing(steps) if steps else budget
    for account, charged in zip(budget.accounts, supposed.accounts, strict=True):
        limit, after = account.limit, charged.epsilon_after_query(cost)
        limits.append(
            LimitAfter(
                level=limit.level.value,
                definition="bayesian" if limit.definition == "bayesian" else "classical",
                epsilon=limit.epsilon,
                before=account.epsilon(),
                after=after if math.isfinite(after) else None,
            )
        )
    return limits


def min_noise_multiplier(budget: Budget, cost: QueryCost, steps: Sequence[QueryCost] = ()) -> float | None:
    """Return the least noise multiplier, to three digits, with which the query fits every limit now, or None.

    steps: costs of the steps after it, with which it keeps its proportion. The number is then that of one question that
        costs as much as all of them.
    """
    whole = sum(each.noise_multiplier**-2 for each in (cost, *steps)) ** -0.5

    def fits(multiplier: float) -> bool:
        # The grid becomes finer with the noise: only the ratio counts.
        candidate, *later = [
            replace(each, sensitivity=each.noise_std / (multiplier * each.noise_multiplier / whole))
            for each in (cost, *steps)
        ]
        supposed = budget.supposing(later) if later else budget
        return all(account.fits_query(candidate) for account in supposed.accounts)

    if not fits(_MOST_NOISE):
        return None
    low, high = 1e-3, _MOST_NOISE
    while high / low > 1.0005:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return rounded_up(high, 3)


def consents_of(active: Collection[str], answers: Collection[tuple[str, bool]], needed: int) -> ConsentTally:
    """Return the consents of the hospitals that are active now."""
    consenting = frozenset(client for client, allows in answers if allows)
    return ConsentTally(
        frozenset(active), consenting, frozenset(client for client, allows in answers if not allows), needed
    )
