"""The hospital's own charges: their cost under its own limits and under those of the study.

They are computed from public numbers alone, before anything is paid.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from accounting.accountants.classical import ClassicalAccountant
from accounting.budget.accounts import ClassicalLimit
from accounting.mechanisms.conversion import spendable_delta
from accounting.plan.plan import Plan
from accounting.plan.queries import QueryCost
from accounting.units import Definition
from client_sdk.errors import LedgerDamaged, OwnBudgetExceeded
from study_protocol.study.limits import LevelName
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings


@dataclass(frozen=True)
class OwnLimit:
    """At this level never more than (epsilon, delta), classical, over all studies on these records.

    order  the one Rényi moment order at which it is enforced, fixed before the first charge
    """

    level: LevelName
    epsilon: float
    delta: float
    order: float


@dataclass(frozen=True)
class Charge:
    """The cost of one round at most, from public numbers: `steps` Gaussian steps at one level, and noised histograms.

    bears  the patients whose loss it is: those who are trained on, those set aside for evaluation, or all of them, as
           where a study trains on all
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
    bears: Literal["trained", "evaluated", "all"] = "all"
    asks: bool = False

    @classmethod
    def of_query(cls, cost: QueryCost) -> Charge:
        """A query: one step at rate 1, with the noise that is sure to be in its sum."""
        return cls("instance", cost.noise_multiplier, 1.0, 1, bears=cost.bears, asks=True)

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
    """Return ε of these charges at the limit's level and delta (Rényi filter: Feldman & Zrnic 2021).

    It is that of the patients who have lost more: those who are trained on, or those set aside for evaluation. Each is
    on one side in all studies, for a data set has one split (`HospitalLedger.split`).
    """
    releases = sum(charge.steps + charge.histograms for charge in charges if charge.level == limit.level)
    sides = ({"all", "trained"}, {"all", "evaluated"})
    return max(_epsilon([charge for charge in charges if charge.bears in side], limit, releases) for side in sides)


def _epsilon(charges: Sequence[Charge], limit: OwnLimit, releases: int) -> float:
    kinds: Counter[tuple[float, float]] = Counter()
    for charge in charges:
        if charge.level == limit.level:
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


def require_within_study(
    plan: Plan, rounds_sent: int, charged: Iterable[int] = (), attempts: Collection[int] = ()
) -> None:
    """Whether one more round keeps the study's own max_steps and classical limits, by this hospital's own count.

    rounds_sent  rounds of the study of which something may have left
    charged      numbers of the rounds that were charged, the next one included: some published noised histograms
    attempts     under a noise schedule: the places in it of the rounds that were charged, the next one included

    Raises:
        OwnBudgetExceeded: the coordinator asks for more than the study allows.
    """
    if rounds_sent >= plan.rounds:
        raise OwnBudgetExceeded("max-steps-exceeded", "the round lies past the study's own max_steps")
    if max(attempts, default=0) > plan.rounds:
        raise OwnBudgetExceeded("max-steps-exceeded", "the round lies past the end of the study's noise schedule")
    state: dict[str, Any] = {"rounds": rounds_sent + 1, "published": sum(plan.publishes(round) for round in charged)}
    if plan.noise_schedule is not None:
        used = Counter(map(plan.stage_of, attempts))
        state["stages"] = [used[stage] for stage in range(len(plan.stages))]
    for limit in plan.limits:
        if limit.definition is not Definition.CLASSICAL:
            continue
        account = ClassicalLimit(plan, limit)
        account.restore(state)
        # Written so that NaN counts as passed.
        if not account.epsilon() <= limit.epsilon:
            raise OwnBudgetExceeded(
                "study-limit-exceeded", f"the round would pass the study's own classical limit at level {limit.level}"
            )
