"""Composed losses: against exact integrals, sums without a transform, the peer's brackets, and at δ = 1e-12."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from scipy.fft import irfft, rfft

from accounting import ClassicalAccountant
from accounting.mechanisms import composed_loss
from accounting.mechanisms.composed_loss import composed_delta, composed_epsilon
from accounting.mechanisms.step_losses import StepLosses, step_losses
from accounting.mechanisms.unsampled import Steps


def renyi(sigma: float, rate: float, steps: int, delta: float) -> float:
    account = ClassicalAccountant(delta=delta, method="rdp")
    account.step(noise_multiplier=sigma, sampling_rate=rate, count=steps)
    return account.epsilon()


def one_step(epsilon: mp.mpf, sigma: mp.mpf, rate: mp.mpf, *, removal: bool) -> mp.mpf:
    """δ(ε) of one step from normal tails; both directions, every real ε."""
    r = 1 / sigma
    growth = mp.exp(epsilon if removal else -epsilon) - 1 + rate
    if growth <= 0:
        return 1 - mp.exp(epsilon) if removal else mp.mpf(0)
    edge = mp.log(growth / rate) / r + r / 2
    tails = [mp.ncdf(-edge if removal else edge), mp.ncdf(r - edge if removal else edge - r)]
    mixed = (1 - rate) * tails[0] + rate * tails[1]
    return mixed - mp.exp(epsilon) * tails[0] if removal else tails[0] - mp.exp(epsilon) * mixed


def two_steps(epsilon: float, sigma: float, rate: float, *, removal: bool) -> mp.mpf:
    """E_x δ₁(ε − L(x)) by quadrature in 30 digits."""
    s, q, e = mp.mpf(sigma), mp.mpf(rate), mp.mpf(epsilon)

    def integrand(x: mp.mpf) -> mp.mpf:
        loss = mp.log(1 - q + q * mp.exp(x / s - 1 / (2 * s * s)))
        if removal:
            return ((1 - q) * mp.npdf(x) + q * mp.npdf(x - 1 / s)) * one_step(e - loss, s, q, removal=True)
        return mp.npdf(x) * one_step(e + loss, s, q, removal=False)

    ends = [mp.mpf(k) for k in range(-14, 15 + math.ceil(1 / sigma))]
    growth = (mp.exp(e - mp.log(1 - q)) if removal else (1 - q) * mp.exp(-e)) - 1 + q
    if growth > 0:
        # Where δ₁ becomes flat: infinitely smooth there, but not analytic.
        flat = (mp.log(growth / q) + 1 / (2 * s * s)) * s
        ends += [flat + sign * mp.mpf(10) ** -k for k in range(6) for sign in (-1, 0, 1)]
    return mp.quad(integrand, sorted(ends), maxdegree=5)


CASES = [(1.0, 0.1, 1e-3), (0.7, 0.01, 1e-12), (3.0, 0.5, 1e-15), (1.5, 0.9, 1e-7)]


@pytest.mark.quick("3.0-0.5-1e-15")
@pytest.mark.parametrize(("sigma", "rate", "delta"), CASES)
def test_one_and_two_steps_are_never_below_the_integral_and_close_above(
    sigma: float, rate: float, delta: float
) -> None:
    with mp.workdps(30):
        for steps in (1, 2):
            epsilon = composed_epsilon([Steps(sigma, rate, steps)], delta, renyi(sigma, rate, steps, delta))
            if epsilon == 0:
                continue

            def exact(e: float, steps: int = steps) -> mp.mpf:
                found = [
                    one_step(mp.mpf(e), mp.mpf(sigma), mp.mpf(rate), removal=removal)
                    if steps == 1
                    else two_steps(e, sigma, rate, removal=removal)
                    for removal in (True, False)
                ]
                return max(found)

            truth = exact(epsilon)
            assert truth <= delta, (steps, epsilon)
            assert exact(epsilon * (1 - 1e-3) - 1e-9) > delta, (steps, epsilon)
            assert truth <= composed_delta([Steps(sigma, rate, steps)], epsilon, 1.0) <= 1.01 * delta


def by_convolution(law: StepLosses, steps: int, epsilon: float) -> float:
    """δ(ε) of the discretised law by direct convolution: sums of products, so every tail keeps its digits."""
    masses, first = np.ones(1), 0
    for bit in f"{steps:b}":
        masses, first = np.convolve(masses, masses), 2 * first
        if bit == "1":
            masses, first = np.convolve(masses, law.masses), first + law.first
    losses = (first + np.arange(masses.size)) * law.interval
    above = losses > epsilon
    return float((masses[above] * -np.expm1(epsilon - losses[above])).sum()) + steps * law.infinite


@pytest.mark.quick(
    "1e-05-2.0-0.2-24-False",
    "1e-05-2.0-0.2-24-True",
    "1e-05-4.0-0.7-19-False",
    "1e-05-4.0-0.7-19-True",
    "1e-12-4.0-0.7-19-False",
    "1e-12-4.0-0.7-19-True",
    "1e-18-4.0-0.7-19-False",
    "1e-18-4.0-0.7-19-True",
)
@pytest.mark.parametrize("removal", [True, False])
@pytest.mark.parametrize(("sigma", "rate", "steps"), [(2.0, 0.2, 24), (1.0, 0.02, 30), (4.0, 0.7, 19)])
@pytest.mark.parametrize("delta", [1e-5, 1e-12, 1e-18])
def test_the_transform_keeps_the_digits_of_every_tail(
    monkeypatch: pytest.MonkeyPatch, sigma: float, rate: float, steps: int, delta: float, removal: bool
) -> None:
    """Tilting, transform and untilting against sums without any of them, on the same grid of 0.004."""
    interval = 2.0**-8
    monkeypatch.setattr(composed_loss, "_interval", lambda *_, **__: interval)
    part, guess = Steps(sigma, rate, steps, 2.0**40), renyi(sigma, rate, steps, delta)
    found = composed_loss._sum([part], delta, guess, removal=removal, epsilon=None)
    tail = 10.0 ** math.floor(math.log10(delta * 1e-7 / steps))
    law = step_losses(1 / sigma, rate, interval, tail, removal=removal)
    if found > 0:
        truth = by_convolution(law, steps, found)
        assert (1 - 1e-4) * delta <= truth <= delta


@pytest.mark.parametrize("steps", [50, 5_000, 10**6])
def test_the_bound_on_rounding_holds_against_80_bit_floats(steps: int) -> None:
    law = step_losses(1 / 1.1, 0.004, 2.0**-12, 1e-20, removal=True)
    direction = composed_loss._Direction((law,), (steps,))
    size, order = 1 << 18, 6.0 if steps < 10**6 else 0.5
    weights, _ = law.tilted(order)
    mean = float(weights @ law.losses) * steps
    first = int(mean / law.interval) - size // 2
    found = composed_loss._power([weights], direction, first, size)
    # scipy's transform of 80-bit floats: 11 bits more.
    wide = composed_loss._wrapped(weights, 0, size).astype(np.longdouble)
    exact = np.roll(irfft(rfft(wide) ** steps, size), (steps * law.first - first) % size)
    excess = (found - exact).astype(np.float64)
    assert excess.min() >= 0
    # And the bound is of use: below a billionth of the whole, a relative error of δ.
    assert excess.max() * size < 1e-5 * (1 + steps / 1e4)


# σ, q, T, δ; what dp-accounting gives with a grid of 1e-5 or finer, in its two roundings; where it cannot: None.
BRACKETS = [
    (1.1, 256 / 60000, 14062, 1e-5),
    (0.7, 512 / 50000, 10000, 1e-5),
    (1.0, 0.1, 300, 1e-3),
    (2.0, 0.01, 300, 1e-5),
    (1.0, 0.01, 1000, 1e-9),
]


@pytest.mark.quick("1.1-0.004266666666666667-14062-1e-05", "2.0-0.01-300-1e-05")
@pytest.mark.parametrize(("sigma", "rate", "steps", "delta"), BRACKETS)
def test_it_lies_between_the_peers_two_roundings(sigma: float, rate: float, steps: int, delta: float) -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    ours = composed_epsilon([Steps(sigma, rate, steps)], delta, renyi(sigma, rate, steps, delta))
    ends = [
        pld.from_gaussian_mechanism(
            sigma, sampling_prob=rate, value_discretization_interval=2e-4, pessimistic_estimate=pessimistic
        )
        .self_compose(steps)
        .get_epsilon_for_delta(delta)
        for pessimistic in (False, True)
    ]
    assert ends[0] <= ours <= ends[1] * (1 + 2e-4)


def test_tiny_steps_have_a_grid_that_is_fine_enough() -> None:
    """A million steps whose loss is a tenth of a thousandth: with a grid of that size ε read .8637."""
    found = composed_epsilon([Steps(5.0, 0.001, 10**6)], 1e-6, 0.9101)
    assert 0.8434 <= found <= 0.8440


def test_one_large_release_beside_many_small_ones_does_not_coarsen_their_grid() -> None:
    """With a grid for the mean spread of all releases ε read .037 more."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    found = composed_epsilon([Steps(0.5, 0.003163, 2545), Steps(0.3486, 1.0, 1)], 1e-6, 25.0)
    small = pld.from_gaussian_mechanism(0.5, sampling_prob=0.003163, value_discretization_interval=5e-4)
    large = pld.from_gaussian_mechanism(0.3486, value_discretization_interval=5e-4)
    peer = small.self_compose(2545).compose(large).get_epsilon_for_delta(1e-6)
    assert found == pytest.approx(peer, abs=3e-4)


@pytest.mark.quick("0.8-0.01-3000")
@pytest.mark.parametrize(
    ("sigma", "rate", "steps"), [(1.1, 256 / 60000, 14062), (0.8, 0.01, 3000), (5.0, 0.001, 10**6)]
)
def test_down_to_a_trillionth_it_stays_a_loss_distribution_and_is_smooth(sigma: float, rate: float, steps: int) -> None:
    """ln δ is concave in ε for such sums: no floor of round-off, at which ε would jump to the Rényi value."""
    deltas = [10.0**-k for k in range(4, 14)]
    account = ClassicalAccountant(delta=1e-12)
    account.step(noise_multiplier=sigma, sampling_rate=rate, count=steps)
    found = [account.epsilon_at(delta) for delta in deltas]
    assert account.certificate().composition == "pld"
    for epsilon, delta in zip(found, deltas, strict=True):
        assert epsilon < renyi(sigma, rate, steps, delta) * 0.99
    rises = np.diff(found)
    assert (rises > 0).all()
    # Within a thousandth: every decade costs a little less than the one before, or rare large losses take over slowly.
    assert (np.abs(np.diff(rises)) < 0.2 * rises[1:]).all()


def test_delta_and_epsilon_are_inverse() -> None:
    parts = [Steps(1.1, 0.01, 500), Steps(3.0, 1.0, 4), Steps(2.0, 0.2, 10)]
    for delta in (1e-4, 1e-8, 1e-12):
        epsilon = composed_epsilon(parts, delta, 30.0)
        assert composed_delta(parts, epsilon, 1.0) == pytest.approx(delta, rel=0.02)
