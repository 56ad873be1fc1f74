"""Before a study starts: does even one round fit, and if not, with how much noise would it?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from accounting.plan.plan import FirstRoundOverspends, LimitPlan, Plan, PlanError

MOST_NOISE = 1e6


class WorstCase(Protocol):
    """What of an account is needed here."""

    limit: LimitPlan

    def epsilon_after_worst_round(self, *, publishes: bool) -> float: ...


Accounts = Callable[[Plan], Sequence[WorstCase]]


def require_feasible(plan: Plan, accounts: Accounts) -> None:
    """Pass if one round fits every limit.

    Raises:
        FirstRoundOverspends: with the noise multipliers (rounded up to 3 digits) for one round and for all of them.
        PlanError: no noise multiplier up to a million would do; the limit's order or delta is the obstacle.
    """
    offending = _first_over(plan, accounts)
    if offending is None:
        return
    whole = replace(plan, steps_per_round=plan.max_steps)
    raise FirstRoundOverspends(offending, _smallest_noise(plan, accounts), _smallest_noise(whole, accounts))


def _first_over(plan: Plan, accounts: Accounts) -> LimitPlan | None:
    for account in accounts(plan):
        if not account.epsilon_after_worst_round(publishes=plan.publishes(1)) <= account.limit.epsilon:
            return account.limit
    return None


def _smallest_noise(plan: Plan, accounts: Accounts) -> float:
    def fits(noise: float) -> bool:
        return _first_over(replace(plan, noise_multiplier=noise), accounts) is None

    if not fits(MOST_NOISE):
        limit = _first_over(replace(plan, noise_multiplier=MOST_NOISE), accounts)
        name = "limits" if limit is None else f"the {limit.definition} limit at level {limit.level}"
        raise PlanError("orders", f"{name} cannot be met with any noise: enforce at a larger order, or raise ε or δ")
    low, high = plan.noise_multiplier, MOST_NOISE
    while high / low > 1.0005:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    digits = 2 - math.floor(math.log10(high))
    return math.ceil(high * 10**digits) / 10**digits
