"""Before a study starts: does even one round fit, and if not, with how much noise would it?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from accounting.budget.accounts.base import LimitAccount
from accounting.plan.limits import FirstRoundOverspends, PlanError
from accounting.plan.plan import Plan
from accounting.units import Definition
from accounting.values import rounded_up

MOST_NOISE = 1e6

Accounts = Callable[[Plan], Sequence[LimitAccount]]


def require_feasible(plan: Plan, accounts: Accounts) -> None:
    """Pass if one round fits every limit.

    Raises:
        FirstRoundOverspends: with the noise multipliers (rounded up to 3 digits) for one round and for all of them.
        PlanError: no noise multiplier up to a million would do for one round; names the obstacle: the order, with the
            least one that works, or the published histograms.
    """
    offending = _first_over(plan, accounts, rounds=1)
    if offending is not None:
        one, whole = (_smallest_noise(plan, accounts, rounds) for rounds in (1, plan.rounds))
        if one is None:
            raise PlanError(*_obstacle(offending))
        raise FirstRoundOverspends(offending.limit, one, whole)


def _obstacle(account: LimitAccount) -> tuple[str, str]:
    """The field to change, and why no noise multiplier keeps this limit."""
    limit, least = account.limit, account.least_order
    never = f"the {limit.definition} limit at level {limit.level} cannot be met with any noise multiplier"
    name = "classical_order" if limit.definition is Definition.CLASSICAL else "filter_order"
    if account.order < least:
        term = f"at order {account.order:g} the fixed term alone is ε = {account.fixed_term:.3g}"
        return name, f"{never}: {term}; choose a larger {name}, at least {least:g} (`wardround plan --solve noise`)"
    if account.plan.release is None:
        return name, f"{never} at order {account.order:g}: choose a smaller {name} (`wardround plan --solve noise`)"
    return "histogram_noise", f"{never}: the published histograms alone pass it; noise them more, or raise ε or δ"


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

    if over(MOST_NOISE) is not None:
        return None
    low, high = plan.noise_multiplier, MOST_NOISE
    # In ratios, for noise may lie decades apart; finer than the third digit, which is rounded up below.
    while high / low > 1.0005:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if over(middle) is None else (middle, high)
    return rounded_up(high, 3)
