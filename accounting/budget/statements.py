"""The statements of a budget: one per limit, the tighter numbers beside it, ε of parts of a population."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from accounting.budget.accounts import Account
from accounting.budget.accounts.progress import Progress
from accounting.mechanisms.conversion import attack_success
from accounting.plan.queries import QueryCost
from accounting.plan.statistics import AnyPlan
from accounting.units import Definition, Guarantee, GuessFrom, Level

# Of a population all but one in so many. A share as a binary fraction is a little off, and so would be its δ.
POPULATIONS = {0.9: 10, 0.99: 100, 0.999: 1000}
# A stop that raw costs chose can betray one record, whatever ε says (docs/guarantees.md). So can the costs themselves.
VOID_WHILE_PLAIN = "does not hold against whoever sees the rounds' log-moments, which this study shows without noise"
VOID_SINCE_THE_END = (
    "does not hold against whoever reads the rounds' log-moments, which this study showed without noise when it ended"
)


AnyAccount = TypeVar("AnyAccount", bound=Account)


class StatedBudget(Protocol):
    """The parts of a budget that statements read."""

    plan: AnyPlan
    accounts: list[Account]
    last_round: int
    pending: int | None
    pending_query: QueryCost | None
    finished: str | None

    @property
    def begun_rounds(self) -> int: ...

    @property
    def next_stage(self) -> int: ...


def statements(budget: StatedBudget, *, may_begin: bool, whole: bool) -> list[dict[str, Any]]:
    """Return one JSON statement per limit, and one per unprotected level.

    may_begin: another round may begin. whole: with what takes long.
    """
    bounded = {account.limit.level for account in budget.accounts}
    return [_statement(budget, account, may_begin, whole) for account in budget.accounts] + [
        _unbounded(level) for level in Level if level not in bounded
    ]


def reports(budget: StatedBudget) -> list[list[dict[str, Any]]]:
    """The tighter numbers of every limit, those that take long among them."""
    return [_reports(budget, account) for account in budget.accounts]


def percentiles(budget: StatedBudget) -> list[dict[str, float]]:
    """By Markov, a fraction p of the population enjoys (ε, δ/(1−p))-DP in each direction. δ rounded up, at most 1.

    Triastcyn & Faltings 2020, section 4.4.1.
    """
    bayesian = [account for account in budget.accounts if account.limit.definition is Definition.BAYESIAN]
    return [
        {"population": p, "epsilon": epsilon, "delta": min(1.0, math.nextafter(account.limit.delta * one_in, math.inf))}
        for account in bayesian
        for p, one_in in POPULATIONS.items()
        if math.isfinite(epsilon := displayed_epsilon(budget.accounts, account))
    ]


def displayed_epsilon(accounts: Iterable[Account], account: Account) -> float:
    """Return ε of this limit so far, as statements show it, or infinity where no finite ε covers it."""
    classical = classical_beside(accounts, account)
    return min(_stated(account), math.inf if classical is None else _stated(classical))


def _stated(account: Account) -> float:
    # A running ε that holds for no stop that adapts caps nothing.
    return account.stated(account.epsilon())


def classical_beside(accounts: Iterable[AnyAccount], account: Account) -> AnyAccount | None:
    """The classical account that caps what a Bayesian one shows: the same level, at most the same delta.

    The limit itself is kept by each account alone: a filter is one rule, fixed before round 1.
    """
    if account.limit.definition is Definition.CLASSICAL:
        return None
    for candidate in accounts:
        is_comparable = candidate.limit.level is account.limit.level and candidate.limit.delta <= account.limit.delta
        if candidate.limit.definition is Definition.CLASSICAL and is_comparable:
            return candidate
    return None


def _reports(budget: StatedBudget, account: Account) -> list[dict[str, Any]]:
    reports = account.reports(finished=budget.finished is not None)
    return [_report(name, _worded(budget, stated)) for name, stated in reports]


def _statement(budget: StatedBudget, account: Account, may_begin: bool, whole: bool) -> dict[str, Any]:
    # Computed also while a round is reserved: it is then what that round may cost.
    running = _after_next(budget, account)
    worst = account.stated(running)
    classical = classical_beside(budget.accounts, account)
    spent = displayed_epsilon(budget.accounts, account)
    reserved = min(worst, math.inf if classical is None else classical.stated(_after_next(budget, classical)))
    after = spent if budget.pending is None else reserved
    finished = budget.finished is not None
    certificate = _worded(budget, _capped(account.certificate(finished=finished), classical))
    progress = _progress(budget, account)
    takes_questions = progress is not None and progress.takes_questions
    chance, source = guess_of(account, spent)
    certificate = dataclasses.replace(certificate, guess_from=source)
    return {
        "level": str(account.limit.level),
        "definition": str(account.limit.definition),
        "state": "within" if takes_questions or _fits(budget, account, running) else "exhausted",
        "epsilon": account.limit.epsilon,
        "delta": account.limit.delta,
        "enforced_by": account.enforced_by,
        # Limits that are kept in ε have none: their statements stay as they were written.
        **({} if progress is None else {"progress": progress.to_dict()}),
        "spent": _finite(spent),
        "reserved": _finite(after - spent),
        "remaining": _finite(max(0.0, account.limit.epsilon - after)),
        "observer": str(budget.plan.observer),
        "attack_success": chance,
        "rounds_left_estimate": _rounds_left(budget, account) if may_begin else 0,
        "certificate": certificate.to_dict(),
        "reports": _reports(budget, account) if whole or not account.reports_take_long else [],
    }


def _progress(budget: StatedBudget, account: Account) -> Progress | None:
    trains = budget.pending is not None and budget.pending_query is None
    progress = account.progress(stage=budget.next_stage if trains else None, query=budget.pending_query)
    if progress is None or progress.steps is None or budget.plan.noise_schedule is None:
        return progress
    begun = budget.begun_rounds * budget.plan.steps_per_round
    abandoned = begun - int(progress.steps.used + progress.steps.reserved)
    return dataclasses.replace(progress, abandoned=abandoned)


def _fits(budget: StatedBudget, account: Account, running: float) -> bool:
    # A reserved round fitted when it was reserved. Of NaN it is False.
    return budget.pending is not None or running <= account.limit.epsilon


def _after_next(budget: StatedBudget, account: Account) -> float:
    """ε after the query that is under way, or after a round of training at its worst."""
    if budget.pending_query is not None:
        return account.epsilon_after_query(budget.pending_query)
    next_round = budget.pending or budget.last_round + 1
    return account.epsilon_after_worst_round(publishes=budget.plan.publishes(next_round), stage=budget.next_stage)


def _worded(budget: StatedBudget, guarantee: Guarantee) -> Guarantee:
    """With the people against whom it is void, once the study has shown them what its costs were without noise."""
    disclosure = budget.plan.disclosure
    if budget.plan.bayesian is None or disclosure == "noised" or (disclosure == "at-end" and budget.finished is None):
        return guarantee
    void = VOID_WHILE_PLAIN if disclosure == "plain" else VOID_SINCE_THE_END
    return dataclasses.replace(guarantee, assumption=f"{guarantee.assumption.removesuffix('.')}; {void}")


def _rounds_left(budget: StatedBudget, account: Account) -> int:
    within_max_steps = budget.plan.rounds - budget.begun_rounds
    return max(0, min(account.rounds_left(), within_max_steps))


def guess_of(account: Account, spent: float) -> tuple[float, GuessFrom]:
    """Highest chance of a right guess with equal odds, and what it rests on.

    Of a classical limit over all that the study may release, so that it holds for every stop. A Bayesian number has no
    loss distribution: there it is what ε and δ allow.
    """
    limit = account.limit
    if limit.definition is not Definition.CLASSICAL:
        return chance_by_epsilon(spent, limit.delta), "epsilon"
    # The limit, whatever was spent so far: a chance over all outcomes is no matter of one of them.
    allowed_chance, chance = chance_by_epsilon(max(spent, limit.epsilon), limit.delta), account.guess_chance()
    if chance is None or not math.isfinite(spent) or chance >= allowed_chance:
        return allowed_chance, "epsilon"
    return chance, "loss-distribution"


def chance_by_epsilon(epsilon: float, delta: float) -> float:
    """Highest chance of a right guess with equal odds that (ε, δ) allows, rounded up. ε may be infinite."""
    # A few units in the last place cover the function's own rounding.
    return min(1.0, attack_success(epsilon, delta) * (1 + 1e-15)) if math.isfinite(epsilon) else 1.0


def _capped(guarantee: Guarantee, classical: Account | None) -> Guarantee:
    """Cap a Bayesian number by the classical one, because a guarantee for all is one for the average."""
    if classical is None or _stated(classical) >= guarantee.epsilon:
        return guarantee
    return dataclasses.replace(guarantee, epsilon=_stated(classical), capped=True)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _report(name: str, guarantee: Guarantee) -> dict[str, Any]:
    return {"name": name, "epsilon": _finite(guarantee.epsilon), "certificate": guarantee.to_dict()}


def _unbounded(level: Level) -> dict[str, Any]:
    empty = dict.fromkeys(("epsilon", "delta", "enforced_by", "spent", "reserved", "remaining", "observer"))
    nothing = dict.fromkeys(("attack_success", "rounds_left_estimate", "certificate"))
    return {"level": str(level), "definition": "classical", "state": "unbounded", **empty, **nothing, "reports": []}
