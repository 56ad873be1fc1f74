"""The plan with other numbers: the least noise, the most rounds or the least ε that its limits allow, and their orders.

Every answer is a plan whose `forecast` keeps what was asked for. Numbers are rounded to the safe side. The orders are
chosen among `ORDERS` for the worst case over records, which is all that is known before any training.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from accounting.accountants.calibration import MOST_NOISE, calibrate_noise, most_steps
from accounting.budget.accounts import FixedPlanLimit, LimitAccount
from accounting.budget.accounts.fixed_plan import OPENING_MARGIN
from accounting.budget.enforcement import account_of
from accounting.budget.feasibility import require_delta
from accounting.budget.forecast import epsilon_at_most
from accounting.errors import Unreachable
from accounting.plan.limits import LimitPlan, PlanError
from accounting.plan.plan import Plan
from accounting.units import Definition
from accounting.values import check_instance, rounded_up

# λ that a person can write down: 0.1 apart, then 1, then 5 %.
ORDERS = tuple(
    float(order)
    for order in np.unique(
        np.concatenate(
            [
                [0.02, 0.05],
                np.arange(1, 100) / 10,
                np.arange(10.0, 65.0),
                [float(f"{order:.2g}") for order in np.geomspace(65, 1e5, 150)],
                # Where ε is far below 0.01.
                [float(f"{order:.2g}") for order in np.geomspace(1.1e5, 1e6, 46)],
            ]
        )
    )
)
MOST_STEPS = 10_000_000
_DIGITS = 4
# With the rounding to four digits: at most 0.11 % more noise than the least.
_TOLERANCE = 5e-5
BOTH_DEFINITIONS = (Definition.CLASSICAL, Definition.BAYESIAN)


def best_orders(plan: Plan) -> Plan:
    """With the orders that allow the most rounds, and then leave the most of the limits.

    One order for each definition, since a study has one. With limits at two levels the one that the worse of them is
    best off with.

    Raises:
        Unreachable: at no order does even one round fit.

    >>> from accounting import Definition, Level, LimitPlan, Observer, Plan
    >>> limit = LimitPlan(Level.INSTANCE, Definition.CLASSICAL, 4.0, 1e-5, estimator_failure_probability=None)
    >>> plan = Plan(scheme="parallel", limits=(limit,), clip_norm=1.0, client_clip_norm=None, noise_multiplier=2.0,
    ...             honest_survivors=1, sampling_rate=0.1, steps_per_round=1, max_steps=500, classical_order=8.0,
    ...             bayesian=None, disclosure="at-end", release=None, observer=Observer.COORDINATOR)
    >>> best_orders(plan).classical_order
    4.7
    """
    check_instance("plan", Plan, plan)
    classical, _ = _best_order(plan, Definition.CLASSICAL)
    improved_plan = replace(plan, classical_order=classical)
    if plan.bayesian is None:
        return improved_plan
    averaged, _ = _best_order(plan, Definition.BAYESIAN)
    return replace(improved_plan, bayesian=replace(plan.bayesian, filter_order=averaged))


def least_noise(plan: Plan, definitions: Collection[Definition] = BOTH_DEFINITIONS) -> Plan:
    """With the least noise multiplier, rounded up to 4 digits, under which all rounds of max_steps fit, at the best
    orders.

    definitions  limits of these must let all of them begin, at their worst. One round fits every limit all the same

    Raises:
        Unreachable: no noise is enough.

    >>> from accounting import Definition, Level, LimitPlan, Observer, Plan, forecast
    >>> limit = LimitPlan(Level.INSTANCE, Definition.CLASSICAL, 4.0, 1e-5, estimator_failure_probability=None)
    >>> plan = Plan(scheme="parallel", limits=(limit,), clip_norm=1.0, client_clip_norm=None, noise_multiplier=2.0,
    ...             honest_survivors=1, sampling_rate=0.1, steps_per_round=1, max_steps=500, classical_order=8.0,
    ...             bayesian=None, disclosure="at-end", release=None, observer=Observer.COORDINATOR)
    >>> found = least_noise(plan)
    >>> found.noise_multiplier, found.classical_order, forecast(found, tight=False).rounds
    (2.75, 4.9, 500)
    """
    check_instance("plan", Plan, plan)
    noises = [_min_noise(plan, definition, definition in definitions) for definition in _present(plan)]
    return best_orders(replace(plan, noise_multiplier=rounded_up(max(noises), _DIGITS)))


def most_rounds(
    plan: Plan, definitions: Collection[Definition] = BOTH_DEFINITIONS, *, at_most: int = MOST_STEPS
) -> Plan:
    """With the largest max_steps, a multiple of steps_per_round, whose rounds all fit at this noise, at the best
    orders.

    definitions  as of `least_noise`
    at_most      noised steps

    Raises:
        Unreachable: at no order does even one round fit.

    >>> from accounting import Definition, Level, LimitPlan, Observer, Plan
    >>> limit = LimitPlan(Level.INSTANCE, Definition.CLASSICAL, 4.0, 1e-5, estimator_failure_probability=None)
    >>> plan = Plan(scheme="parallel", limits=(limit,), clip_norm=1.0, client_clip_norm=None, noise_multiplier=2.0,
    ...             honest_survivors=1, sampling_rate=0.1, steps_per_round=1, max_steps=500, classical_order=8.0,
    ...             bayesian=None, disclosure="at-end", release=None, observer=Observer.COORDINATOR)
    >>> most_rounds(plan).max_steps
    234
    """
    check_instance("plan", Plan, plan)
    if plan.noise_schedule is not None:
        raise Unreachable("a noise schedule says how many rounds there are: solve for noise or epsilon")
    rounds_of_definitions = [
        _max_rounds(plan, definition, at_most) for definition in _present(plan) if definition in definitions
    ]
    return best_orders(replace(plan, max_steps=min(rounds_of_definitions) * plan.steps_per_round))


def least_epsilon(plan: Plan, definitions: Collection[Definition] = BOTH_DEFINITIONS) -> Plan:
    """With the least ε in every limit of these definitions, rounded up to 4 digits, under which all rounds fit.

    The orders are those that are best for the limits as they were: with two levels, in their proportion.

    Raises:
        Unreachable: at every order ε is infinite.

    >>> from accounting import Definition, Level, LimitPlan, Observer, Plan
    >>> limit = LimitPlan(Level.INSTANCE, Definition.CLASSICAL, 4.0, 1e-5, estimator_failure_probability=None)
    >>> plan = Plan(scheme="parallel", limits=(limit,), clip_norm=1.0, client_clip_norm=None, noise_multiplier=2.0,
    ...             honest_survivors=1, sampling_rate=0.1, steps_per_round=1, max_steps=500, classical_order=8.0,
    ...             bayesian=None, disclosure="at-end", release=None, observer=Observer.COORDINATOR)
    >>> least_epsilon(plan).limits[0].epsilon
    6.035
    """
    check_instance("plan", Plan, plan)
    for definition in _present(plan):
        if definition in definitions:
            plan = _with_order(plan, definition, _min_share(plan, definition, plan.rounds)[1])
            plan = replace(
                plan,
                limits=tuple(
                    _tightened(plan, limit) if limit.definition is definition else limit for limit in plan.limits
                ),
            )
    return plan


def _tightened(plan: Plan, limit: LimitPlan) -> LimitPlan:
    """The limit with the least ε of 4 digits that lets all rounds begin."""
    epsilon = limit.epsilon
    while True:
        needed = _worst(account_of(plan, replace(limit, epsilon=epsilon)), plan.rounds)
        # A limit of 0 is none.
        tightened = rounded_up(max(needed, 1e-9), _DIGITS)
        if not tightened < float("inf"):
            raise _refusal(plan, limit.definition, plan.rounds)
        # Once more, for the δ that is kept back for the noise sampler depends on the limit.
        if tightened == epsilon:
            return replace(limit, epsilon=epsilon)
        epsilon = tightened


def _best_order(plan: Plan, definition: Definition) -> tuple[float, int]:
    """The order and the rounds, within max_steps, that it allows."""
    share, order = _min_share(plan, definition, plan.rounds)
    if share <= 1:
        return order, plan.rounds
    rounds = most_steps(
        epsilon=1.0,
        delta=plan.limits[0].delta,
        account=lambda number: _min_share(plan, definition, number)[0],
        at_most=plan.rounds,
    )
    if rounds == 0:
        raise _refusal(plan, definition, 1)
    return _min_share(plan, definition, rounds)[1], rounds


def _min_noise(plan: Plan, definition: Definition, whole: bool) -> float:
    rounds = plan.rounds if whole else 1

    def share(noise: float) -> float:
        return _min_share(replace(plan, noise_multiplier=noise), definition, rounds)[0]

    limit, rate = plan.limits[0], plan.sampling_rate
    try:
        return calibrate_noise(
            epsilon=1.0, delta=limit.delta, sampling_rate=rate, steps=1, account=share, tolerance=_TOLERANCE
        )
    except Unreachable as error:
        raise _refusal(plan, definition, rounds, whatever_noise=True) from error


def _max_rounds(plan: Plan, definition: Definition, at_most: int) -> int:
    step = plan.steps_per_round

    def share(rounds: int) -> float:
        return _min_share(replace(plan, max_steps=rounds * step), definition, rounds)[0]

    max_steps = most_steps(epsilon=1.0, delta=plan.limits[0].delta, account=share, at_most=at_most // step)
    if max_steps == 0:
        raise _refusal(plan, definition, 1)
    return max_steps


def _min_share(plan: Plan, definition: Definition, rounds: int) -> tuple[float, float]:
    """The least share of the limits of one definition that so many rounds take at their worst, and its order.

    By bisection on the slope. λε − C(λ) − ln c_λ − ln(1/β) is concave in λ, for C is convex and (ln c_λ)″ is
    1/(λ(λ+1)): the orders that keep ε are an interval, for every ε, so ε falls and then rises. Likewise the larger of
    two shares.
    """
    if not _keeps_order(plan, definition):
        return _share(plan, definition, rounds), plan.classical_order
    shares: dict[int, float] = {}

    def at(place: int) -> float:
        if place not in shares:
            shares[place] = _share(
                _with_order(plan, definition, ORDERS[place], only_worst_case=True), definition, rounds
            )
        return shares[place]

    low, high = 0, len(ORDERS) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if at(middle) <= at(middle + 1) else (middle + 1, high)
    at(low)
    best = min(shares, key=lambda place: (shares[place], place))
    return shares[best], ORDERS[best]


def _keeps_order(plan: Plan, definition: Definition) -> bool:
    """Whether any limit of this definition is enforced at one Rényi order, so that there is one to choose."""
    return any(account_of(plan, limit).keeps_order for limit in plan.limits if limit.definition is definition)


def _share(plan: Plan, definition: Definition, rounds: int) -> float:
    limits = [limit for limit in plan.limits if limit.definition is definition]
    return max(_worst(account_of(plan, limit), rounds) / limit.epsilon for limit in limits)


def _worst(account: LimitAccount, rounds: int) -> float:
    # A fixed plan is opened with a margin only, so that what is found here can be.
    worst = epsilon_at_most(account, rounds)
    return worst * (1 + OPENING_MARGIN) if isinstance(account, FixedPlanLimit) else worst


def _with_order(plan: Plan, definition: Definition, order: float, *, only_worst_case: bool = False) -> Plan:
    """only_worst_case: without what costs time and changes no worst case: the statement's orders, the adaptive
    ledger's.

    At the clip norm its bound is never below the classical one, which caps it.
    """
    if definition is Definition.CLASSICAL or plan.bayesian is None:
        return replace(plan, classical_order=order)
    enforced = replace(plan.bayesian, filter_order=order)
    return replace(plan, bayesian=replace(enforced, orders=(order,), adversary="path") if only_worst_case else enforced)


def _present(plan: Plan) -> Sequence[Definition]:
    return [
        definition for definition in BOTH_DEFINITIONS if any(limit.definition is definition for limit in plan.limits)
    ]


def _refusal(plan: Plan, definition: Definition, rounds: int, *, whatever_noise: bool = False) -> Unreachable:
    """Return the error for a limit that cannot be kept at any order, with what to change."""
    share, order = _min_share(
        replace(plan, noise_multiplier=MOST_NOISE) if whatever_noise else plan, definition, rounds
    )
    best = _with_order(plan, definition, order, only_worst_case=True)
    accounts = [account_of(best, limit) for limit in plan.limits if limit.definition is definition]
    worst = max(accounts, key=lambda account: epsilon_at_most(account, rounds) / account.limit.epsilon)
    try:
        require_delta(worst)
    except PlanError as error:
        return Unreachable(str(error))
    limit = worst.limit
    number = "one round" if rounds == 1 else f"{rounds} rounds"
    at_order = f", not even at order {order:g}" if worst.keeps_order else ""
    below = f" (below order {worst.min_order:g} no noise is enough)" if worst.keeps_order else ""
    noise = "any noise multiplier" if whatever_noise else f"noise multiplier {plan.noise_multiplier:g}"
    cannot = (
        f"the {limit.definition} limit at level {limit.level}, ε = {limit.epsilon:g} at δ = {limit.delta:g}, cannot be "
        f"kept for {number} with {noise}{at_order}, where they take {share:.3g} times as much{below}"
    )
    return Unreachable(f"{cannot}: {_change(worst, whatever_noise)}")


def _change(account: LimitAccount, whatever_noise: bool) -> str:
    """Return what to change where this limit cannot be kept."""
    if not whatever_noise:
        return "take more noise (`wardround plan --solve noise`), a lower sampling rate or a larger ε"
    change = "raise ε or δ"
    if account.plan.release is not None:
        change = f"publish fewer histograms, raise their noise, or {change}"
    if isinstance(account, FixedPlanLimit) and account.asks:
        change = f"lower the share of questions (statistics.share), or {change}"
    return change
