"""Before a study starts: does even one round fit, and if not, with how much noise would it?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from accounting.budget.accounts.base import LimitAccount
from accounting.plan.plan import FirstRoundOverspends, LimitPlan, Plan, PlanError
from accounting.units import Definition

MOST_NOISE = 1e6

Accounts = Callable[[Plan], Sequence[LimitAccount]]


def require_feasible(plan: Plan, accounts: Accounts) -> None:
    """Pass if one round fits every limit.

    Raises:
        FirstRoundOverspends: with the noise multipliers (rounded up to 3 digits) for one round and for all of them.
        PlanError: no noise multiplier up to a million would do for one round; the limit's order or delta is the
            obstacle.
    """
    offending = _first_over(plan, accounts, rounds=1)
    if offending is not None:
        one, whole = (_smallest_noise(plan, accounts, rounds) for rounds in (1, plan.rounds))
        if one is None:
            name = f"the {offending.definition} limit at level {offending.level}"
            order = "classical_order" if offending.definition is Definition.CLASSICAL else "filter_order"
            raise PlanError("orders", f"{name} cannot be met with any noise: choose a larger {order}, or raise ε or δ")
        raise FirstRoundOverspends(offending, one, whole)


def _first_over(plan: Plan, accounts: Accounts, rounds: int) -> LimitPlan | None:
    for account in accounts(plan):
        # Written so that NaN reads as over.
        if not account.epsilon_at_worst(rounds, plan.published_by(rounds)) <= account.limit.epsilon:
            return account.limit
    return None


def _smallest_noise(plan: Plan, accounts: Accounts, rounds: int) -> float | None:
    """None: not even MOST_NOISE is enough. Histograms carry noise of their own, which this one does not touch."""

    def over(noise: float) -> LimitPlan | None:
        return _first_over(replace(plan, noise_multiplier=noise), accounts, rounds)

    if over(MOST_NOISE) is not None:
        return None
    low, high = plan.noise_multiplier, MOST_NOISE
    # In ratios, for noise may lie decades apart; finer than the third digit, which is rounded up below.
    while high / low > 1.0005:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if over(middle) is None else (middle, high)
    digits = 2 - math.floor(math.log10(high))
    return math.ceil(high * 10**digits) / 10**digits
