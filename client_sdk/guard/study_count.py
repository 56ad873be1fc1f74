"""This hospital's own count of what it sent to a study, against the study's own limits.

A vector that left uses a step or a question of the plan, also where its round was abandoned.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from accounting.budget.accounts import GaussianLimit
from accounting.budget.accounts.charged import ChargedQueries
from accounting.budget.accounts.worst_case import Charged, WorstCaseLimit
from accounting.budget.enforcement import account_of
from accounting.plan.limits import LimitPlan
from accounting.plan.plan import Plan
from accounting.plan.queries import QueryCost
from accounting.plan.statistics import AnyPlan, StatisticsPlan
from accounting.units import Level
from client_sdk.errors import OwnBudgetExceeded
from client_sdk.guard.charges import Charge

# Grid steps to the deviation of a question's noise: as fine as any, for what is known as a noise multiplier alone.
_GRID_STD = 2.0**30


def require_within_study(plan: AnyPlan, sent: Sequence[Charge], next_one: Charge, charged: Iterable[int] = ()) -> None:
    """Whether one more round or question keeps the study's own plan and classical limits, by this hospital's own count.

    fixed-plan counts steps to T and questions to their share, gaussian-filter sums both, as studies of questions alone
    sum these, and renyi-order counts rounds of training as the study's settings always meant it.

    Args:
        plan: of the study.
        sent: charges of the study of which something may have left.
        next_one: what is asked for now.
        charged: numbers of the rounds of training that were charged, the next one included: some published histograms.

    Raises:
        OwnBudgetExceeded: the coordinator asks for more than the study allows.
    """
    epsilons = (
        _epsilons_of_questions(plan, [*sent, next_one])
        if isinstance(plan, StatisticsPlan)
        else _epsilons(plan, [*sent, next_one], sum(plan.publishes(round) for round in charged))
    )
    for limit, epsilon in epsilons:
        # Written so that NaN counts as passed.
        if not epsilon <= limit.epsilon:
            subject = "question" if next_one.asks else "round"
            raise OwnBudgetExceeded(
                "study-limit-exceeded",
                f"the {subject} would pass the study's own classical limit at level {limit.level}",
            )


def _epsilons(plan: Plan, charges: Sequence[Charge], published: int) -> Iterator[tuple[LimitPlan, float]]:
    """Yield ε of these charges under every classical limit. Raises OwnBudgetExceeded: more rounds than max_steps."""
    rounds = _rounds_by_stage(plan, charges)
    if sum(rounds) > plan.rounds:
        raise OwnBudgetExceeded("max-steps-exceeded", "the round lies past the study's own max_steps")
    for limit in plan.limits:
        account = account_of(plan, limit)
        if isinstance(account, WorstCaseLimit):
            counts_questions = limit.enforcement not in (None, "renyi-order") and limit.level is Level.INSTANCE
            queries = _questions(charges) if counts_questions else ChargedQueries()
            yield limit, account.epsilon_of(Charged(rounds, published, queries))


def _epsilons_of_questions(plan: StatisticsPlan, charges: Sequence[Charge]) -> Iterator[tuple[LimitPlan, float]]:
    for limit in plan.limits:
        account = GaussianLimit(plan, limit)
        account.queries = _questions(charges)
        yield limit, account.epsilon()


def _rounds_by_stage(plan: Plan, charges: Sequence[Charge]) -> tuple[int, ...]:
    """Return how many rounds of training had the noise of each stage of the plan's schedule."""
    noises = [plan.noise_of(stage) for stage in range(len(plan.stages))]
    counts = dict.fromkeys(noises, 0)
    for charge in charges:
        if not charge.asks:
            # A noise that no stage has is counted at the least one.
            stage_noise = charge.noise_multiplier if charge.noise_multiplier in counts else min(noises)
            counts[stage_noise] += charge.steps // plan.steps_per_round
    rounds = [0] * len(noises)
    for place, (noise, stage) in enumerate(zip(noises, plan.stages, strict=True)):
        # Several stages may have the same noise. What is too much for all of them stands at the last one.
        is_last = noise not in noises[place + 1 :]
        rounds[place] = counts[noise] if is_last else min(counts[noise], stage.rounds)
        counts[noise] -= rounds[place]
    return tuple(rounds)


def _questions(charges: Sequence[Charge]) -> ChargedQueries:
    queries = ChargedQueries()
    for charge in charges:
        if charge.asks:
            sensitivity = math.nextafter(_GRID_STD / charge.noise_multiplier, math.inf)
            bears = "evaluated" if charge.bears in ("evaluated", "monitored") else "all"
            queries = queries.plus(QueryCost(_GRID_STD, sensitivity, 1, bears), charge.steps)
    return queries
