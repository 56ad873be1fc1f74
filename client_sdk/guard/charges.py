"""The hospital's own charges: their cost under its own limits and under those of the study.

They are computed from public numbers alone, before anything is paid.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from accounting.accountants.classical import ClassicalAccountant
from accounting.mechanisms.conversion import spendable_delta
from accounting.mechanisms.gaussian_squares import RELEASE_ERROR, epsilon_of_squares, largest_squares, squares
from accounting.mechanisms.lattice import LESS_VARIANCE, lattice_error
from accounting.mechanisms.unsampled import LEAST_GRID_STD
from accounting.plan.queries import QueryCost
from client_sdk.errors import LedgerDamaged, OwnBudgetExceeded
from client_sdk.guard.limit_terms import LimitRule
from study_protocol.study.limits import LevelName
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings

# Of δ under the Gaussian rule: what is set aside for the lattice of discrete noise and for its sampler.
_NOISE_SHARE = 0.01
# Counts that one neighbour moves in a published histogram, at most. The others have one law with or without it.
_MOVED_COUNTS = 2
_UP = 1 + 2.0**-48


@dataclass(frozen=True)
class OwnLimit:
    """At this level never more than (epsilon, delta), classical, over all studies on these records.

    order  the one Rényi moment order at which it is enforced, fixed before the first charge. Rule gaussian has none
    rule   by which it is enforced
    """

    level: LevelName
    epsilon: float
    delta: float
    order: float
    rule: LimitRule = "renyi"

    @property
    def squares(self) -> float:
        """μ²: the most Σ Δ²/s² under the Gaussian rule, rounded down."""
        return largest_squares(self.epsilon, self.delta * (1 - _NOISE_SHARE))


@dataclass(frozen=True)
class Charge:
    """The cost of one round at most, from public numbers: `steps` Gaussian steps at one level, and noised histograms.

    bears  the patients whose loss it is: those who are trained on, those set aside for evaluation, or all of them, as
           where a study trains on all. Later patients (`monitored`) are never trained on in the study that asks about
           them. Another study may train on them: over all studies they count on both sides
    asks   it is a query's
    scheme client: the noise is the coordinator's, and protects against those who see releases only. In shares of the
    hospitals it is counted whole, because this hospital's own checks open no sum with fewer honest shares.
    histogram_noise  noise on a count over what one neighbour moves. It counts only with `histograms`
    """

    level: LevelName
    noise_multiplier: float
    sampling_rate: float
    steps: int
    histograms: int = 0
    histogram_noise: float = 0.0
    bears: Literal["trained", "evaluated", "monitored", "all"] = "all"
    asks: bool = False

    @classmethod
    def of_query(cls, cost: QueryCost, *, later: bool = False) -> Charge:
        """A query: one step at rate 1, with the noise that is sure to be in its sum. later: about later patients."""
        bears = "monitored" if later else cost.bears
        return cls("instance", cost.noise_multiplier, 1.0, 1, bears=bears, asks=True)

    @classmethod
    def of(cls, settings: StudySettings, rounds: Iterable[int] = (), attempt: int | None = None) -> Charge:
        """The steps of one round of a study, and the histograms that all of `rounds` publish together.

        attempt  the round's place in a noise schedule. None: the one with the least noise
        """
        # In a sum the others add noise too. This hospital counts its own alone, but for one noise that all share.
        plan, noise = plan_of(settings), 0.0
        published = sum(plan.publishes(round) for round in rounds)
        if plan.release is not None and published:
            noise_std = plan.release.std / math.sqrt(settings.privacy.histogram_shares)
            # Down: less noise, more cost.
            noise = math.nextafter(noise_std / plan.rules.histogram_sensitivity, 0.0)
        # What this hospital's own noise protects: in scheme joint its records, which come first.
        level = plan.levels[0].value
        bears = "all" if settings.evaluation is None else "trained"
        rate, steps = plan.sampling_rate, plan.steps_per_round
        stages = range(len(plan.stages)) if attempt is None else [plan.stage_of(attempt)]
        return cls(level, min(map(plan.noise_of, stages)), rate, steps, published, noise, bears)

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Charge:
        """Out of a ledger entry's body. Raises LedgerDamaged for one that another version wrote."""
        if missing := sorted({field.name for field in fields(cls)} - set(body)):
            raise LedgerDamaged(f"a charge in this hospital's ledger names no {', '.join(missing)}")
        return cls(**{field.name: body[field.name] for field in fields(cls)})


def epsilon_spent(charges: Sequence[Charge], limit: OwnLimit) -> float:
    """Return ε of these charges at the limit's level and delta, by the limit's rule.

    It is that of the patients who have lost more: those who are trained on, or those set aside for evaluation. Each is
    on one side in all studies, for a data set has one split (`HospitalLedger.split`).

    renyi     a filter at one order (Feldman & Zrnic 2021)
    gaussian  a filter on Σ Δ²/s² (Smith & Thakurta 2022). Infinite where discrete noise may add more to δ than is set
              aside for it
    """
    level_charges = [charge for charge in charges if charge.level == limit.level]
    if limit.rule == "gaussian":
        if (1 + math.exp(min(limit.epsilon, 600.0))) * _noise_error(level_charges) > _NOISE_SHARE * limit.delta:
            return math.inf
        used = squares_spent(level_charges, limit.level)
        return math.inf if math.isinf(used) else epsilon_of_squares(used, limit.delta * (1 - _NOISE_SHARE))
    releases = sum(charge.steps + charge.histograms for charge in level_charges)
    return max((_epsilon(side, limit, releases) for side in _sides(level_charges)), default=0.0)


def squares_spent(charges: Sequence[Charge], level: LevelName) -> float:
    """Return Σ Δ²/s² of these charges at a level, for the patients who have lost more, rounded up.

    A sampled step counts as one of all patients: there is no credit for sampling.
    """
    level_charges = [charge for charge in charges if charge.level == level]
    return max(math.fsum(map(_squares, side)) * _UP for side in _sides(level_charges))


def _squares(charge: Charge) -> float:
    steps = charge.steps * squares(1.0, charge.noise_multiplier)
    if not charge.histograms:
        return steps
    # In units of what a neighbour moves, which is one count at least: there the lattice takes 1/12 at most.
    variance = charge.histogram_noise * charge.histogram_noise - LESS_VARIANCE
    return steps + charge.histograms / variance if variance > 0 else math.inf


def _noise_error(charges: Sequence[Charge]) -> float:
    """Return the total variation between what was drawn and rounded continuous noise, over all charges."""
    return math.fsum(charge.steps * RELEASE_ERROR + _histogram_error(charge) for charge in charges) * _UP


def _histogram_error(charge: Charge) -> float:
    if not charge.histograms:
        return 0.0
    if not charge.histogram_noise >= LEAST_GRID_STD:
        return math.inf
    return charge.histograms * _MOVED_COUNTS * lattice_error(charge.histogram_noise)


def _sides(charges: Sequence[Charge]) -> list[list[Charge]]:
    sides = ({"all", "monitored", "trained"}, {"all", "monitored", "evaluated"})
    return [[charge for charge in charges if charge.bears in side] for side in sides]


def _epsilon(charges: Sequence[Charge], limit: OwnLimit, releases: int) -> float:
    kinds: Counter[tuple[float, float]] = Counter()
    for charge in charges:
        kinds[charge.noise_multiplier, charge.sampling_rate] += charge.steps
        if charge.histograms:
            # At rate 1: a histogram counts its accounting sample whether a record was drawn or not.
            kinds[charge.histogram_noise, 1.0] += charge.histograms
    # What the sampler's cut tails may add comes off delta first.
    delta = spendable_delta(limit.delta, limit.epsilon, releases)
    account = ClassicalAccountant(delta=delta, method="rdp", order=limit.order)
    for (noise, rate), steps in kinds.items():
        account.step(noise_multiplier=noise, sampling_rate=rate, count=steps)
    return account.epsilon()


def require_affordable(charges: Sequence[Charge], next_one: Charge, limits: Sequence[OwnLimit]) -> None:
    """Whether one more charge keeps every limit.

    Raises:
        OwnBudgetExceeded: one would be passed. An ε that is NaN or infinite reads as passed.
    """
    for limit in limits:
        if limit.level != next_one.level:
            continue
        after = epsilon_spent([*charges, next_one], limit)
        if not after <= limit.epsilon:
            raise OwnBudgetExceeded(
                "own-budget-exceeded",
                f"this hospital's own limit at level {limit.level} (epsilon {limit.epsilon:g}) would be passed",
            )
