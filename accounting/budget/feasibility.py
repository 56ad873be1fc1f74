"""The check before a study starts: whether one round and every scheduled evaluation fit, and with how much noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from accounting.accountants.calibration import most_steps
from accounting.budget.accounts.base import Account, LimitAccount
from accounting.budget.accounts.fixed_plan import OPENING_MARGIN, FixedPlanLimit
from accounting.budget.accounts.gaussian import GaussianLimit
from accounting.plan.limits import FirstRoundOverspends, PlanError, WholePlanOverspends
from accounting.plan.plan import Plan
from accounting.units import Definition
from accounting.values import rounded_up

MOST_NOISE = 1e6

Accounts = Callable[[Plan], Sequence[LimitAccount]]


def require_feasible(plan: Plan, accounts: Accounts) -> None:
    """Pass if one round fits every limit, and the whole plan each limit that is kept by it.

    Raises:
        WholePlanOverspends: a fixed plan does not. It says how many steps would fit, or how much noise.
        FirstRoundOverspends: with the noise multipliers (rounded up to 3 digits) for one round and for all of them.
        PlanError: no noise multiplier up to a million would do for one round. It names the obstacle: the order, with
            the least one that works, the published histograms, or a δ that the rounding of the noise uses up.
    """
    for account in accounts(plan):
        require_delta(account)
        if isinstance(account, FixedPlanLimit) and not account.opens:
            raise _overspends(plan, account)
    offending = _first_over(plan, accounts, rounds=1)
    if offending is not None:
        noise_of_one, whole = (_smallest_noise(plan, accounts, rounds) for rounds in (1, plan.rounds))
        if noise_of_one is None:
            raise PlanError(*_obstacle(offending))
        raise FirstRoundOverspends(offending.limit, noise_of_one, whole)


def require_delta(account: LimitAccount) -> None:
    """Pass if a limit that is kept by losses has any δ left for them.

    Raises:
        PlanError: what the noise's whole numbers may add to delta is more than delta.
    """
    limit, queries = account.limit, account.plan.queries
    if account.keeps_order or account.delta > 0:
        return
    queried = "" if queries is None else f" and {queries.max_queries} queries of {queries.max_cells} numbers each"
    fewer = "max_steps" if queries is None else "max_steps, max_queries or max_cells"
    raise PlanError(
        "epsilon",
        f"the classical limit at level {limit.level} leaves nothing for any noise: noise in whole steps is off by so "
        f"little that 1 + e^{limit.epsilon:g} times it, over {account.plan.max_steps} steps{queried}, is more than "
        f'delta = {limit.delta:g}. Lower epsilon or {fewer}, raise delta, or set enforcement = "renyi-order"',
    )


def require_planned(plan: Plan, accounts: Iterable[Account]) -> None:
    """Pass if no limit that is kept by a fixed plan is below its ε, as a reader of a ledger computes it.

    Raises:
        WholePlanOverspends: as `require_feasible`, but without the margin of an opening.
    """
    for account in accounts:
        if isinstance(account, FixedPlanLimit) and not account.is_feasible:
            raise _overspends(plan, account)


def _overspends(plan: Plan, account: FixedPlanLimit) -> WholePlanOverspends:
    limit, per_round = account.limit, account.mechanism.steps_per_round

    def whole(rounds: int) -> float:
        return account.epsilon_at_worst(rounds, 0) * (1 + OPENING_MARGIN)

    rounds = most_steps(epsilon=limit.epsilon, delta=limit.delta, account=whole, at_most=plan.rounds)
    noise = _min_noise(
        lambda noise: FixedPlanLimit(replace(plan, noise_multiplier=noise), limit).opens, plan.noise_multiplier
    )
    planned, fitting = plan.rounds * per_round, rounds * per_round
    return WholePlanOverspends(limit, account.trained, planned, fitting, noise, has_share=account.asks)


def require_questions(accounts: Sequence[GaussianLimit]) -> None:
    """Pass if a study of queries alone may ask anything at all, with enough noise.

    Raises:
        PlanError: what the noise's whole numbers may add to delta is more than delta.
    """
    for account in accounts:
        limit, queries = account.limit, account.plan.queries
        if not account.delta > 0:
            raise PlanError(
                "epsilon",
                f"no query could ever be asked: noise in whole steps is off by so little that 1 + e^{limit.epsilon:g} "
                f"times it, over {queries.max_queries} queries of {queries.max_cells} numbers each, is more than "
                f"delta = {limit.delta:g}. Lower epsilon, max_queries or max_cells",
            )


def require_evaluations(plan: Plan, accounts: Sequence[LimitAccount]) -> None:
    """Pass if the scheduled evaluations of as many rounds as can begin fit every limit.

    Raises:
        PlanError: they do not. It says which noise multiplier of theirs (rounded up to 3 digits) would.
    """
    evaluation = None if plan.queries is None else plan.queries.evaluation
    if evaluation is None or evaluation.cost is None:
        return
    cost, count = evaluation.cost, evaluation.due_by(_max_rounds(plan, accounts))

    def over(noise: float) -> LimitAccount | None:
        # Only the ratio of noise and sensitivity counts.
        tried_cost = replace(cost, sensitivity=cost.noise_std / noise)
        return next((a for a in accounts if not a.epsilon_of_evaluations(tried_cost, count) <= a.limit.epsilon), None)

    offending = over(cost.noise_multiplier)
    if offending is None:
        return
    min_noise = _min_noise(lambda noise: over(noise) is None, cost.noise_multiplier)
    limit = offending.limit
    helps = "no noise would help" if min_noise is None else f"a noise_multiplier of {min_noise:g} would fit"
    raise PlanError(
        "evaluation",
        f"the {count} scheduled evaluations could pass the {limit.definition} limit at level {limit.level}: {helps}. "
        "Fewer evaluations (a larger every) help, too",
    )


def _max_rounds(plan: Plan, accounts: Sequence[LimitAccount]) -> int:
    """Return the rounds beyond which no classical limit lets one begin, for any cost of the data."""
    feasible_rounds = plan.rounds
    for account in accounts:
        limit = account.limit
        if limit.definition is Definition.CLASSICAL:

            def worst(rounds: int, account: LimitAccount = account) -> float:
                return account.epsilon_at_worst(rounds, plan.published_by(rounds))

            feasible_rounds = min(
                feasible_rounds,
                most_steps(epsilon=limit.epsilon, delta=limit.delta, account=worst, at_most=feasible_rounds),
            )
    return feasible_rounds


def _obstacle(account: LimitAccount) -> tuple[str, str]:
    """The field to change, and why no noise multiplier keeps this limit."""
    limit, min_order = account.limit, account.min_order
    never = f"the {limit.definition} limit at level {limit.level} cannot be met with any noise multiplier"
    if not account.keeps_order:
        if account.plan.release is None:
            return "epsilon", f"{never}: raise ε or δ"
        return "histogram_noise", f"{never}: the published histograms alone pass it. Raise their noise, ε or δ"
    name = "classical_order" if limit.definition is Definition.CLASSICAL else "filter_order"
    if account.order < min_order:
        term = f"at order {account.order:g} the fixed term alone is ε = {account.fixed_term:.3g}"
        return name, f"{never}: {term}. Choose a larger {name}, at least {min_order:g} (`wardround plan --solve noise`)"
    if account.plan.release is None:
        return name, f"{never} at order {account.order:g}: choose a smaller {name} (`wardround plan --solve noise`)"
    return "histogram_noise", f"{never}: the published histograms alone pass it. Raise their noise, ε or δ"


def _first_over(plan: Plan, accounts: Accounts, rounds: int) -> LimitAccount | None:
    for account in accounts(plan):
        # Written so that NaN reads as over.
        if not account.epsilon_at_worst(rounds, plan.published_by(rounds)) <= account.limit.epsilon:
            return account
    return None


def _smallest_noise(plan: Plan, accounts: Accounts, rounds: int) -> float | None:
    """None: not even MOST_NOISE is enough. Histograms carry noise of their own, which this one does not touch."""

    def over(noise: float) -> LimitAccount | None:
        return _first_over(replace(plan, noise_multiplier=noise), accounts, rounds)

    return _min_noise(lambda noise: over(noise) is None, plan.noise_multiplier)


def _min_noise(fits: Callable[[float], bool], too_small: float) -> float | None:
    """Return the least noise multiplier that fits, rounded up to three digits, or None if not even MOST_NOISE does."""
    if not fits(MOST_NOISE):
        return None
    low, high = too_small, MOST_NOISE
    # In ratios, for noise may lie decades apart. Finer than the third digit, which is rounded up below.
    while high / low > 1.0005:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return rounded_up(high, 3)
