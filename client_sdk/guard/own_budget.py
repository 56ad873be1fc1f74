"""The hospital's own limits over one set of records, whatever any coordinator claims."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from accounting.accountants.classical import ClassicalAccountant
from accounting.budget.accounts import ClassicalLimit
from accounting.mechanisms.conversion import spendable_delta
from accounting.units import Definition
from client_sdk.errors import OwnBudgetExceeded
from client_sdk.protocol.study.plan_of import plan_of
from client_sdk.protocol.study.settings import LevelName, StudySettings


@dataclass(frozen=True)
class OwnLimit:
    """At this level never more than (epsilon, delta), classical, over all studies on these records.

    order  the one Rényi moment order at which it is enforced, fixed before the first charge
    """

    level: LevelName
    epsilon: float
    delta: float
    order: float

    @staticmethod
    def usual_order(epsilon: float, delta: float) -> float:
        """The order that is best where Gaussian noise without sampling reaches (epsilon, delta): 2 ln(1/δ) / ε."""
        return 2 * math.log(1 / delta) / epsilon


@dataclass(frozen=True)
class Charge:
    """What one round costs at most, from public numbers: `steps` Gaussian steps at one level, and noised histograms.

    scheme client: the noise is the coordinator's, and protects against those who see releases only.
    histogram_noise  noise on a count over what one neighbour moves; counts only with `histograms`
    """

    level: LevelName
    noise_multiplier: float
    sampling_rate: float
    steps: int
    histograms: int = 0
    histogram_noise: float = 0.0

    @classmethod
    def of_round(cls, settings: StudySettings, round: int | None = None) -> Charge:
        """The charge of round number `round` of a study; None: of its steps alone."""
        return cls._with_histograms(settings, 0 if round is None else histograms_in(settings, [round]))

    @classmethod
    def of_rounds(cls, settings: StudySettings, rounds: int) -> Charge:
        """The steps of one round, and the histograms of rounds 1 … `rounds` together: for rounds that were lost."""
        return cls._with_histograms(settings, histograms_in(settings, range(1, rounds + 1)))

    @classmethod
    def _with_histograms(cls, settings: StudySettings, published: int) -> Charge:
        # In a sum the others add noise too; this hospital counts its own alone.
        plan, noise = plan_of(settings), 0.0
        if plan.release is not None and published:
            own = plan.release.std / math.sqrt(settings.privacy.histogram_shares)
            noise = math.nextafter(own / plan.rules.histogram_sensitivity, 0.0)
        level = plan.levels[0].value
        return cls(level, plan.noise_multiplier, plan.sampling_rate, plan.steps_per_round, published, noise)

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Charge:
        """Out of a ledger entry; entries from before histograms were charged name none."""
        return cls(**{field.name: body[field.name] for field in fields(cls) if field.name in body})


def epsilon_spent(charges: Sequence[Charge], limit: OwnLimit) -> float:
    """ε of these charges at the limit's level and delta (Rényi filter: Feldman & Zrnic 2021)."""
    kinds: Counter[tuple[float, float]] = Counter()
    for charge in charges:
        if charge.level == limit.level:
            kinds[charge.noise_multiplier, charge.sampling_rate] += charge.steps
            if charge.histograms:
                kinds[charge.histogram_noise, 1.0] += charge.histograms
    delta = spendable_delta(limit.delta, limit.epsilon, kinds.total())
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


def histograms_in(settings: StudySettings, rounds: Iterable[int]) -> int:
    """How many of these rounds publish a noised histogram."""
    plan = plan_of(settings)
    return sum(plan.publishes(round) for round in rounds)


def require_within_study(settings: StudySettings, rounds_sent: int, histograms: int = 0) -> None:
    """Whether one more round keeps the study's own max_steps and classical limits, by this hospital's own count.

    rounds_sent  rounds of the study of which something may have left
    histograms   noised histograms that were published, the next round's included

    Raises:
        OwnBudgetExceeded: the coordinator asks for more than the study allows.
    """
    plan = plan_of(settings)
    if rounds_sent >= plan.rounds:
        raise OwnBudgetExceeded("max-steps-exceeded", "the round lies past the study's own max_steps")
    for limit in plan.limits:
        if limit.definition is not Definition.CLASSICAL:
            continue
        account = ClassicalLimit(plan, limit)
        account.restore({"rounds": rounds_sent + 1, "published": histograms})
        if not account.epsilon() <= limit.epsilon:
            raise OwnBudgetExceeded(
                "study-limit-exceeded", f"the round would pass the study's own classical limit at level {limit.level}"
            )
