"""Planning on the safe side: how much noise, how many rounds, how many people, and what Bayes can add at most."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

import numpy as np

from accounting.accountants.classical import ClassicalAccountant, Method
from accounting.errors import InvalidArgument, Unreachable
from accounting.mechanisms.conversion import epsilon_from_moments
from accounting.mechanisms.divergence import MOST_TERMS, Values, log_moment
from accounting.values import (
    FloatArray,
    check_choice,
    check_count,
    check_delta,
    check_positive,
    check_rate,
    order_or_alpha,
    real_array,
)

# Between these the least noise is looked for. More is no setting that a person would take.
LEAST_NOISE = 2.0**-10
MOST_NOISE = 2.0**40
LARGEST_ORDER = float(MOST_TERMS)
# Integers suffice but for large ε, where the best order lies between 0 and 2. Small ε need large ones.
_PROSPECT_ORDERS = tuple(
    float(order)
    for order in np.unique(
        np.concatenate([np.arange(0.1, 3, 0.1).round(1), np.arange(3, 65), [80, 128], 2 ** np.arange(8, 17)])
    )
)

_Account = TypeVar("_Account", bound=Callable[..., float])


def rdp_epsilon(
    noise_multiplier: float, *, sampling_rate: float, steps: int, delta: float, orders: Values | None = None
) -> float:
    """ε of `steps` equal steps of DP-SGD by Rényi divergences: the worst case over records.

    noise_multiplier  σ, noise per clip norm
    orders            λ, shape (orders,). Left out, those of `ClassicalAccountant`. One order for a filter: then ε is
                      also valid when plan or stop adapt

    Raises InvalidArgument.
    """
    number = check_count("steps", steps, minimum=0)
    if orders is None:
        return _classical_epsilon("rdp", noise_multiplier, sampling_rate, number, delta)
    moments = number * log_moment(
        np.atleast_1d(real_array("orders", orders)),
        1.0,
        noise_std=check_positive("noise_multiplier", noise_multiplier),
        sampling_rate=sampling_rate,
    )
    return epsilon_from_moments(orders, moments, delta)[0]


def _classical_epsilon(method: Method, noise: float, rate: float, steps: int, delta: float) -> float:
    account = ClassicalAccountant(delta=delta, method=method)
    if steps:
        account.step(noise_multiplier=noise, sampling_rate=rate, count=steps)
    return account.epsilon()


def calibrate_noise(
    *,
    epsilon: float,
    delta: float,
    sampling_rate: float,
    steps: int,
    method: Literal["rdp", "pld"] | None = None,
    order: float | None = None,
    alpha: float | None = None,
    account: Callable[[float], float] | None = None,
    tolerance: float = 1e-3,
) -> float:
    """The smallest noise multiplier, to a relative tolerance, whose ε does not exceed the target.

    method   "pld", the default: loss distributions, for plans fixed beforehand. "rdp" at the best order, which takes
             more noise. Or at the one `order` λ (or `alpha` = λ + 1) of a filter, where it is the default
    account  another ε, as a non-increasing function of the noise multiplier

    Guarantees: account(result) ≤ epsilon was computed, not extrapolated. Noise below 2⁻¹⁰ is not looked for: where
    that is enough, as at a sampling rate below δ, it is the answer.

    Raises Unreachable where 2⁴⁰ is not enough, with what that reaches. At a fixed order that is too small it names the
    least that is not.

    >>> round(calibrate_noise(epsilon=2.0, delta=1e-5, sampling_rate=0.01, steps=1000), 2)
    0.96
    >>> round(calibrate_noise(epsilon=0.01, delta=1e-5, sampling_rate=1.0, steps=1), 1)
    243.9
    """
    target = check_positive("epsilon", epsilon)
    check_delta(delta)
    check_rate("sampling_rate", sampling_rate)
    check_count("steps", steps)
    accuracy = check_positive("tolerance", tolerance)
    fixed = order_or_alpha(order, alpha)
    accounting_method = check_choice("method", method or ("pld" if fixed is None else "rdp"), ("rdp", "pld"))
    if accounting_method == "pld" and fixed is not None:
        raise InvalidArgument("order", "belongs to method rdp")
    if account is not None:
        return _min_noise(_checked(account), target, accuracy)
    if fixed is not None:
        _require_reachable(target, delta, sampling_rate, steps, fixed)
    orders = None if fixed is None else [fixed]
    by_moments = partial(rdp_epsilon, sampling_rate=sampling_rate, steps=steps, delta=delta, orders=orders)
    if accounting_method == "rdp":
        return _min_noise(by_moments, target, accuracy)
    # Loss distributions are dear: begin where the moments end, roughly, and they hardly ever need more noise.
    start = _first_noise(by_moments, target)
    by_losses = partial(_classical_epsilon, "pld", rate=sampling_rate, steps=steps, delta=delta)
    return _min_noise(by_losses, target, accuracy, start=start, factor=1.25)


def _checked(account: _Account) -> _Account:
    if not callable(account):
        raise InvalidArgument("account", f"must be a function that returns ε, not {type(account).__name__}")
    return account


def _first_noise(account: Callable[[float], float], target: float) -> float:
    try:
        return _min_noise(account, target, 0.5)
    except Unreachable:
        return 1.0


def most_steps(*, epsilon: float, delta: float, account: Callable[[int], float], at_most: int = 10_000_000) -> int:
    """The most steps (or rounds) whose ε does not exceed the target, by bisection. 0 when one is too many.

    account  ε as a non-decreasing function of the number of steps

    >>> from accounting.accountants.calibration import rdp_epsilon
    >>> def spent(steps: int) -> float:
    ...     return rdp_epsilon(2.0, sampling_rate=0.01, steps=steps, delta=1e-5)
    >>> most_steps(epsilon=1.0, delta=1e-5, account=spent)
    2046
    """
    target = check_positive("epsilon", epsilon)
    check_delta(delta)
    _checked(account)
    return _last(lambda steps: account(steps) <= target, check_count("at_most", at_most))


def smallest_population(
    *,
    epsilon: float,
    delta: float,
    noise_multiplier: float,
    expected_batch: float,
    steps: int,
    orders: Values | None = None,
    at_most: int = 1_000_000_000,
) -> int:
    """The fewest records (or clients) among whom `expected_batch` are sampled each step, so that ε is within target.

    Poisson sampling at rate expected_batch/N. Unreachable when even `at_most` are not enough.

    >>> smallest_population(epsilon=1.0, delta=1e-5, noise_multiplier=2.0, expected_batch=100, steps=1000)
    7066
    """
    target = check_positive("epsilon", epsilon)
    batch = check_positive("expected_batch", expected_batch)
    check_delta(delta)
    limit = check_count("at_most", at_most)
    fewest = max(1, math.ceil(batch))

    def within(people: int) -> bool:
        rate = min(1.0, batch / people)
        spent = rdp_epsilon(noise_multiplier, sampling_rate=rate, steps=steps, delta=delta, orders=orders)
        return spent <= target

    if fewest > limit or not within(limit):
        raise Unreachable(f"a population of {limit} is too small for epsilon = {target!r}")
    # The largest population that is too small, then one more.
    return fewest + _last(lambda extra: not within(fewest + extra - 1), limit - fewest + 1)


@dataclass(frozen=True)
class Prospect:
    """The best promise of an estimate from m samples, beside the worst case over records.

    classical      ε of the worst case at the same orders and δ
    best           ε if every sampled record had exactly zero cost: no data can show less
    log_moment_gain  nats of log-moment that m samples can gain at most, ≈ ln(m / ln(1/γ))
    """

    classical: float
    best: float
    log_moment_gain: float

    @property
    def worthwhile(self) -> bool:
        """Whether the estimate can beat the worst case at all."""
        return self.best < self.classical


def prospect(
    *,
    samples: int,
    estimator_failure_probability: float,
    delta: float,
    noise_multiplier: float,
    sampling_rate: float,
    steps: int,
    adaptive: bool,
    orders: Values = _PROSPECT_ORDERS,
) -> Prospect:
    """Return the possible gain of a distribution-free estimate from running sums, computed before a study starts.

    A bound that fails with probability γ cannot exclude that a fraction 1 − γ^{1/m} of the population, unseen in m
    samples, costs the worst case V: E e^G ≤ 1 + (1 − γ^{1/m})(e^V − 1) is the least any method may report. adaptive:
    the same at order 2λ+1, halved (the definition `certified`).

    >>> found = prospect(samples=1000, estimator_failure_probability=1e-6, delta=1e-5, noise_multiplier=1.0,
    ...                  sampling_rate=0.1, steps=100, adaptive=False)
    >>> round(found.classical, 2), round(found.best, 2), found.worthwhile
    (7.9, 5.94, True)
    """
    m, gamma, total = (
        check_count("samples", samples),
        check_delta(estimator_failure_probability, "estimator_failure_probability"),
        check_delta(delta),
    )
    if gamma >= total:
        raise InvalidArgument("estimator_failure_probability", f"must be below delta = {total!r}")
    lams = np.atleast_1d(real_array("orders", orders))
    number = check_count("steps", steps)
    std = check_positive("noise_multiplier", noise_multiplier)

    def worst(at: Values) -> FloatArray:
        return number * log_moment(at, 1.0, noise_std=std, sampling_rate=sampling_rate)

    # 1 − γ^{1/m}, about ln(1/γ)/m.
    unseen = -math.expm1(math.log(gamma) / m)
    ledger = worst(2 * lams + 1 if adaptive else lams)
    # log(1 + unseen·(e^V − 1)) without overflow
    floors = np.logaddexp(math.log1p(-unseen), math.log(unseen) + ledger) / (2 if adaptive else 1)
    classical = worst(lams)
    best, _ = epsilon_from_moments(lams, np.minimum(floors, classical), total - gamma)
    # The worst case needs no estimate and has the whole δ.
    return Prospect(epsilon_from_moments(lams, classical, total)[0], best, -math.log(unseen))


def _require_reachable(target: float, delta: float, rate: float, steps: int, order: float) -> None:
    """Raises Unreachable unless some noise multiplier reaches the target at this order. Names the least that would do.

    However much noise there is, ε at one order λ stays above (ln c_λ − ln δ) / λ, which falls with λ.
    """

    def within(lam: float) -> bool:
        return rdp_epsilon(MOST_NOISE, sampling_rate=rate, steps=steps, delta=delta, orders=[lam]) <= target

    if within(order):
        return
    message = f"no noise multiplier reaches epsilon = {target!r} at delta = {delta!r} and order λ = {order!r}"
    high = order
    while not within(high):
        high *= 2
        if high > LARGEST_ORDER:
            raise Unreachable(f"{message}, nor at a larger order: raise epsilon or delta, or take fewer steps")
    low = max(order, high / 2)
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if within(middle) else (middle, high)
    # Three digits, upwards: what is named works, and no order below it by more than a rounding does.
    digits = 2 - math.floor(math.log10(high))
    min_epsilon = math.ceil(high * 10**digits) / 10**digits
    raise Unreachable(f"{message}: the order must be at least {min_epsilon:g} (α = {min_epsilon + 1:g})")


def _min_noise(
    account: Callable[[float], float], target: float, accuracy: float, *, start: float = 1.0, factor: float = 2.0
) -> float:
    """The least noise whose ε is within the target, to a relative accuracy, on the side where it is.

    The factor of the steps is squared from one to the next, so that far ends are reached in few.
    """

    def within(noise: float) -> bool:
        return account(noise) <= target

    low = high = min(max(start, LEAST_NOISE), MOST_NOISE)
    if within(high):
        while within(low):
            if low == LEAST_NOISE:
                return low
            low, high, factor = max(low / factor, LEAST_NOISE), low, factor * factor
    else:
        while not within(high):
            if high == MOST_NOISE:
                raise _beyond(account(high), target)
            low, high, factor = high, min(high * factor, MOST_NOISE), factor * factor
    while high - low > accuracy * high:
        # Far apart, their exponents are halved.
        middle = math.sqrt(low * high) if high > 2 * low else (low + high) / 2
        low, high = (low, middle) if within(middle) else (middle, high)
    return high


def _beyond(epsilon: float, target: float) -> Unreachable:
    message = (
        f"no noise multiplier up to 2^{math.log2(MOST_NOISE):g} reaches epsilon = {target!r}: so much noise gives "
    )
    return Unreachable(f"{message}{epsilon:.3g}. Raise epsilon or delta, take a lower rate or fewer steps")


def _last(holds: Callable[[int], bool], at_most: int) -> int:
    """The largest n ≤ at_most for which holds(1), …, holds(n). 0 if not even 1."""
    low, high = 0, 1
    while high <= at_most and holds(high):
        low, high = high, 2 * high
    high = min(high, at_most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low
