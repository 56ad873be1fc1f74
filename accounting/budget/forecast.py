"""How a study will go, before anybody trains: rounds and ε at their worst, from its plan alone, by its own accounts.

The coordinator asks the same accounts before every round. Classical costs are certain. Bayesian ones depend on the data
and are at most what they are here, where every record lies at the clip norm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from accounting.accountants.calibration import most_steps, prospect
from accounting.budget.accounts.base import LimitAccount
from accounting.budget.accounts.fixed_plan import FixedPlanLimit
from accounting.budget.budget import StopReason
from accounting.budget.enforcement import account_of
from accounting.budget.statements import classical_beside, guess_of
from accounting.estimation.upper_mean import DISTRIBUTION_FREE
from accounting.plan.limits import LimitPlan
from accounting.plan.plan import Plan
from accounting.units import Definition, Guarantee, Level
from accounting.values import check_count, check_instance

# In service the costs of rounds are added one by one: of ten million, the last bits differ by less than this.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class LimitForecast:
    """One limit of the plan.

    order         λ at which it is enforced. None: at no order, here and below
    least_order   below it no noise keeps the limit
    fixed_term    ε that the first round brings at this order, for any cost
    first_round   ε after one round, at the worst, as a budget states it: of a fixed plan that of the whole plan, of
                  a sum of squares the limit
    further_round  ε that each round after it adds, at the worst. NaN where there is none, or at one order under a noise
                  schedule
    rounds        that this limit alone lets begin at the worst, within max_steps
    enforced      ε after the forecast's `rounds`, as a budget states it by the rule that keeps this limit, at the worst
    epsilon       what a budget shows then, at the worst: a Bayesian number never reads above the classical one
    at_most       the same after the forecast's `at_most_rounds`
    least         Bayesian, distribution-free, of records: ε that no sample of the declared size can go below after
                  `rounds`. None where the size is not declared, or no such bound is known
    evaluated     ε of patients who are set aside, after all scheduled evaluations of the most rounds. None: none is
    guess         classical: the highest chance of a right guess with equal odds, as a budget states it. None: not asked
    reports       tighter numbers beside it after `rounds`, each valid under what its certificate says
    """

    limit: LimitPlan
    enforced_by: str
    order: float | None
    least_order: float | None
    fixed_term: float | None
    first_round: float
    further_round: float
    rounds: int
    enforced: float
    epsilon: float
    at_most: float
    least: float | None
    evaluated: float | None
    guess: float | None
    reports: tuple[tuple[str, Guarantee], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON. An infinite ε is null."""
        numbers = ("fixed_term", "first_round", "further_round", "enforced", "epsilon", "at_most", "least")
        numbers += ("evaluated", "guess")
        return {
            "level": str(self.limit.level),
            "definition": str(self.limit.definition),
            "limit": self.limit.epsilon,
            "delta": self.limit.delta,
            "enforced_by": self.enforced_by,
            "order": self.order,
            "least_order": self.least_order,
            "rounds": self.rounds,
            **{name: _finite(getattr(self, name)) for name in numbers},
            "reports": [
                {"name": name, "epsilon": _finite(stated.epsilon), "certificate": stated.to_dict()}
                for name, stated in self.reports
            ],
        }


@dataclass(frozen=True)
class Forecast:
    """The course of a study under this plan if no round is abandoned.

    rounds          that the coordinator lets begin at the worst
    at_most_rounds  for any cost of the data: no classical limit lets more begin. The two differ only where a Bayesian
                    limit may end the study
    reason          why no further round begins after `rounds`
    stopped_by      the limits that say no then
    """

    plan: Plan
    rounds: int
    at_most_rounds: int
    reason: StopReason
    stopped_by: tuple[LimitPlan, ...]
    limits: tuple[LimitForecast, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON."""
        schedule = self.plan.noise_schedule
        return {
            "rounds": self.rounds,
            "at_most_rounds": self.at_most_rounds,
            "steps_per_round": self.plan.steps_per_round,
            "max_steps": self.plan.max_steps,
            **({} if schedule is None else {"noise_schedule": [asdict(stage) for stage in schedule]}),
            "reason": self.reason,
            "stopped_by": [
                {"level": str(limit.level), "definition": str(limit.definition)} for limit in self.stopped_by
            ],
            "observer": str(self.plan.observer),
            "limits": [limit.to_dict() for limit in self.limits],
        }


def forecast(plan: Plan, *, records: int | None = None, tight: bool = True) -> Forecast:
    """How a study with this plan goes at its worst.

    records  size of the accounting sample of records, where it is declared
    tight    also the numbers that take long (tenths of a second): `reports` and `guess`

    >>> from accounting import Definition, Level, LimitPlan, Observer, Plan
    >>> limit = LimitPlan(Level.INSTANCE, Definition.CLASSICAL, 4.0, 1e-5, estimator_failure_probability=None)
    >>> plan = Plan(scheme="parallel", limits=(limit,), clip_norm=1.0, client_clip_norm=None, noise_multiplier=2.0,
    ...             honest_survivors=1, sampling_rate=0.1, steps_per_round=1, max_steps=500, classical_order=8.0,
    ...             bayesian=None, disclosure="at-end", release=None, observer=Observer.COORDINATOR)
    >>> found = forecast(plan, tight=False)
    >>> found.rounds, found.reason, round(found.limits[0].epsilon, 3), round(found.limits[0].first_round, 3)
    (183, 'budget-exhausted', 3.986, 1.063)
    """
    check_instance("plan", Plan, plan)
    if records is not None:
        check_count("records", records)
    accounts = [account_of(plan, limit) for limit in plan.limits]
    rounds_of_limits = [_rounds(account) for account in accounts]
    certain = [n for n, account in zip(rounds_of_limits, accounts, strict=True) if _is_classical(account)]
    rounds, max_rounds = min(rounds_of_limits), min(certain)
    return Forecast(
        plan=plan,
        rounds=rounds,
        at_most_rounds=max_rounds,
        reason="max-steps-reached" if rounds == plan.rounds else "budget-exhausted",
        stopped_by=tuple(
            account.limit for n, account in zip(rounds_of_limits, accounts, strict=True) if n == rounds < plan.rounds
        ),
        limits=tuple(
            _of_limit(account, accounts, (n, rounds, max_rounds), records, tight)
            for n, account in zip(rounds_of_limits, accounts, strict=True)
        ),
    )


def epsilon_at_most(account: LimitAccount, rounds: int) -> float:
    """ε of the first rounds at their most, as this account enforces it. Bayesian ones are rounded up for service's
    sums."""
    if rounds == 0:
        return 0.0
    worst = account.epsilon_at_worst(rounds, account.plan.published_by(rounds))
    # One product, in service as here: certain to the last bit.
    return worst if _is_classical(account) else worst * (1 + _ROUNDING)


def _stated(account: LimitAccount, rounds: int) -> float:
    return account.stated(epsilon_at_most(account, rounds))


def _rounds(account: LimitAccount) -> int:
    limit, plan = account.limit, account.plan
    # A whole plan that overspends is not begun, however many of its rounds would fit.
    if isinstance(account, FixedPlanLimit):
        return plan.rounds if account.opens else 0
    return most_steps(
        epsilon=limit.epsilon, delta=limit.delta, account=partial(epsilon_at_most, account), at_most=plan.rounds
    )


def _further_round(account: LimitAccount, first: float) -> float:
    """What the second round adds, or NaN where rounds are not equal."""
    # At one order every round after the first adds the same, published histograms apart.
    is_equal = account.plan.rounds > 1 and (account.plan.noise_schedule is None or not account.keeps_order)
    return _stated(account, 2) - first if is_equal else math.nan


def _of_limit(
    account: LimitAccount,
    accounts: Sequence[LimitAccount],
    round_counts: tuple[int, int, int],
    records: int | None,
    tight: bool,
) -> LimitForecast:
    rounds_of_limit, rounds, max_rounds = round_counts
    classical_account = classical_beside(accounts, account)
    first = _stated(account, 1)
    reports = account.reports_at_worst(rounds, account.plan.published_by(rounds)) if tight and rounds else []

    def displayed_epsilon(rounds: int) -> float:
        # As `statements.displayed_epsilon`, so that a plan and a budget name one number.
        capped = math.inf if classical_account is None else _stated(classical_account, rounds)
        return min(_stated(account, rounds), capped)

    return LimitForecast(
        limit=account.limit,
        enforced_by=account.enforced_by,
        order=account.order if account.keeps_order else None,
        least_order=account.min_order if account.keeps_order else None,
        fixed_term=account.fixed_term if account.keeps_order else None,
        first_round=first,
        further_round=_further_round(account, first),
        rounds=rounds_of_limit,
        enforced=_stated(account, rounds),
        epsilon=displayed_epsilon(rounds),
        # Whatever the data cost, the limit is kept.
        at_most=min(displayed_epsilon(max_rounds), account.limit.epsilon),
        least=_min_epsilon(account, rounds, records, displayed_epsilon(rounds)),
        evaluated=_evaluated(account, max_rounds),
        guess=guess_of(account, displayed_epsilon(rounds))[0] if tight and _is_classical(account) else None,
        reports=tuple(reports),
    )


def _evaluated(account: LimitAccount, rounds: int) -> float | None:
    evaluation = None if account.plan.queries is None else account.plan.queries.evaluation
    if evaluation is None or evaluation.cost is None:
        return None
    return account.epsilon_of_evaluations(evaluation.cost, evaluation.due_by(rounds))


def _min_epsilon(account: LimitAccount, rounds: int, records: int | None, displayed: float) -> float | None:
    """Return ε if every record of the sample had zero cost. No distribution-free estimate goes below it."""
    limit = account.limit
    if limit.estimator_failure_probability is None or limit.level is not Level.INSTANCE or not rounds:
        return None
    bayesian, step = account.bayesian, account.mechanism
    if records is None or bayesian.estimator not in DISTRIBUTION_FREE or bayesian.conversion != "improved":
        return None
    best_prospect = prospect(
        samples=records,
        estimator_failure_probability=limit.estimator_failure_probability,
        delta=limit.delta,
        noise_multiplier=step.noise_multiplier,
        sampling_rate=step.sampling_rate,
        steps=rounds * step.steps_per_round,
        adaptive=bayesian.adversary == "adaptive",
        orders=[bayesian.filter_order],
    )
    # Rounded up on its way, to nine digits: down again, for it is a floor.
    return min(best_prospect.best * (1 - 1e-6), displayed)


def _is_classical(account: LimitAccount) -> bool:
    return account.limit.definition is Definition.CLASSICAL


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
