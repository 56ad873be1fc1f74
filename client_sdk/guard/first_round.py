"""Do the hospital's own limits leave room for a first round? Asked before anything is waited for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from accounting.errors import AccountingError
from client_sdk.errors import OwnBudgetExceeded
from client_sdk.guard.charges import Charge, require_affordable
from client_sdk.guard.individual import spec_of, worst_cost
from client_sdk.guard.policy import IndividualLimit, LimitSection, SitePolicy
from study_protocol.study.limits import LevelName

S = TypeVar("S", bound=LimitSection)
# Beyond it a limit limits nothing, and none is proposed.
_LARGEST = 1e4


def require_first_round(policy: SitePolicy, charges: Sequence[Charge], first: Charge) -> None:
    """Whether one round more keeps every limit of the hospital's own.

    charges  the charges that the local ledger holds already
    first    the study's first round

    Raises:
        OwnBudgetExceeded: names the entry and the smallest ε that would do, rounded up.
    """
    for level, section in policy.limits.by_level().items():
        _require(f"limits.{level}", section, partial(_affords, charges, first, level), spent=bool(charges))
    if policy.individual is not None:
        _require("individual", policy.individual, partial(_bears, first), spent=False)


def _require(entry: str, section: S, fits: Callable[[S], bool], *, spent: bool) -> None:
    if fits(section):
        return
    # An order that is not written down follows ε.
    epsilon_needed = min_epsilon(lambda epsilon: fits(section.model_copy(update={"epsilon": epsilon})), section.epsilon)
    charged = ", with what other rounds on this data set have spent" if spent else ""
    needed = (
        f"at least {epsilon_needed:g}"
        if epsilon_needed is not None
        else "a study with more noise: no epsilon is enough"
    )
    raise OwnBudgetExceeded(
        "own-budget-exceeded",
        f"[{entry}] epsilon = {section.epsilon:g} in policy.toml leaves no room for one round of this study. It needs "
        f"{needed} at delta {section.delta:g}{charged}: raise the entry, name another data set (join --dataset), or do "
        "not take part",
    )


def _affords(charges: Sequence[Charge], first: Charge, level: LevelName, section: LimitSection) -> bool:
    try:
        require_affordable(charges, first, [section.at(level)])
    except OwnBudgetExceeded:
        return False
    return True


def _bears(first: Charge, limit: IndividualLimit) -> bool:
    """Return whether a patient without a charge so far could take part in a whole round at the clip norm."""
    try:
        spec = spec_of(limit, limit.rule or "renyi")
    except AccountingError:
        return False
    return worst_cost(first, spec) <= spec.bound


def min_epsilon(fits: Callable[[float], bool], too_small: float) -> float | None:
    """Return the smallest ε that fits, rounded up to three digits, or None where none up to 10 000 does.

    The search doubles and halves. The result itself fits, whether or not a smaller ε does.
    """
    low, high = too_small, 2 * too_small
    while not fits(high):
        low, high = high, 2 * high
        if high > _LARGEST:
            return None
    while high > low * 1.0005:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    digits = 10.0 ** (math.floor(math.log10(high)) - 2)
    # As it is printed and would be copied.
    rounded = float(f"{math.ceil(high / digits) * digits:.6g}")
    return rounded if fits(rounded) else None
