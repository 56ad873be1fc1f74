"""The formulas behind a study's ε a second time, with `mpmath` and the standard library alone.

Written from docs/definitions and docs/guarantees.md. Where those pages round up, these functions do not: what they give
is the value before any rounding. λ = α − 1 is an order, d a distance, s the noise's standard deviation, q the rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate, pairwise

from mpmath import MPContext

# A context of its own: the precision of others stays theirs.
mp = MPContext()
mp.dps = 40
mpf = mp.mpf
Counts = Sequence[float]
# Half of the capital on the bet 1, the rest on 24 bets from 0.001 to 0.8 (docs/definitions/bayesian.md).
BETS = [1.0] + [1e-3 * 800.0 ** (i / 23) for i in range(24)]
STAKES = [0.5] + [0.5 / 24] * 24


class Refused(ValueError):
    """The estimator has no answer for this sample: the worst case is charged."""


@cache
def step_moment(order: float, d: float, s: float, q: float) -> mpf:
    """φ(λ) = λ·D_{λ+1} of one Poisson-sampled Gaussian step, exact."""
    lam, r, q = mpf(order), mpf(d) / mpf(s), mpf(q)
    if q == 1:
        return lam * (lam + 1) * r * r / 2
    if q == 0 or r == 0:
        return mpf(0)
    if order == int(order):
        n = int(order) + 1
        terms = (mp.binomial(n, k) * q**k * (1 - q) ** (n - k) * mp.exp((k * k - k) * r * r / 2) for k in range(n + 1))
        return mp.log(mp.fsum(terms))

    def integrand(z: mpf) -> mpf:
        return mp.npdf(z) * (1 - q + q * mp.exp(r * z - r * r / 2)) ** (lam + 1)

    low, high = mpf(-13), (lam + 1) * r + 13
    pieces = max(8, int((high - low) / 2))
    return mp.log(mp.quad(integrand, mp.linspace(low, high, pieces + 1)))


def epsilon_of(order: float, moment: mpf, beta: float, improved: bool = True) -> mpf:
    """(C + ln c_λ − ln β)/λ; 0 where nothing was charged."""
    if moment == 0:
        return mpf(0)
    lam = mpf(order)
    constant = -mp.log1p(lam) - lam * mp.log1p(1 / lam) if improved else mpf(0)
    return max(mpf(0), (moment + constant - mp.log(beta)) / lam)


def spendable(delta: float, epsilon: float, releases: int, gamma: float = 0.0) -> mpf:
    """δ less what the sampler's cut tails may add; δ itself where half of δ − γ would go."""
    slack = releases * (1 + mp.exp(epsilon)) * mpf("1e-40")
    return mpf(delta) if slack > (mpf(delta) - gamma) / 2 else mpf(delta) - slack


# -- rate 1 in closed form, sampled steps from both sides


def gaussian_delta(mu: mpf, epsilon: mpf, excess: mpf = mpf(0)) -> mpf:
    """Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), and what the discrete law adds: M(θ)e^{−θε}·excess at the best θ ≥ 0."""
    near = epsilon / mu - mu / 2
    lattice = mp.exp(-(max(near, mpf(0)) ** 2) / 2) * excess
    return mp.ncdf(-near) - mp.exp(epsilon) * mp.ncdf(-epsilon / mu - mu / 2) + lattice


def excess_of(multiplier: float, grid_std: float = 2.0**16) -> mpf:
    """1.01/(12√(2π) σ s²): s grid steps to the standard deviation."""
    return mpf("1.01") / (12 * mp.sqrt(2 * mp.pi) * mpf(multiplier) * mpf(grid_std) ** 2)


def least(holds: Callable[[mpf], bool], high: mpf, share: mpf = mpf("1e-15")) -> mpf:
    """The least number ≥ 0 at which something that goes on holding begins to hold."""
    low = mpf(0)
    while not holds(high):
        low, high = high, 2 * high
    while high - low > share * high:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def gaussian_epsilon(precision: mpf, delta: mpf, excess: mpf = mpf(0)) -> mpf:
    """ε at which unsampled steps with Σ Δ²/s² = precision have this δ."""
    mu = mp.sqrt(precision)
    return mpf(0) if mu == 0 else least(lambda e: gaussian_delta(mu, e, excess) <= delta, mpf(1))


Law = tuple[list[int], int]
# Of a mass: what is cut off is 1e-17 in all.
_BITS = 72


def _losses(q: float, r: float, width: float, up: bool, forward: bool) -> Law:
    """Masses × 2^72 of one step's loss on a grid, moved to the next line above or below, and the first line's number.

    r = d/s. What lies beyond 13 deviations, 1e-38, is left out.
    """

    def loss(x: float) -> float:
        return math.log1p(q * math.expm1(r * x - r * r / 2))

    def point(value: float) -> float:
        inner = (math.expm1(value) + q) / q
        return -math.inf if inner <= 0 else (math.log(inner) + r * r / 2) / r

    def below(x: float) -> float:
        # The law of x: with the record (forward) a mixture, without it N(0, 1).
        tail = [0.5 * math.erfc(-(x - m) / math.sqrt(2)) for m in (0.0, r)]
        return (1 - q) * tail[0] + q * tail[1] if forward else tail[0]

    first, last = (math.floor(loss(x) / width) for x in (-13.0, 13.0 + r))
    reached = [below(point(line * width)) for line in range(first, last + 2)]
    masses = [int(max(0.0, b - a) * 2.0**_BITS) for a, b in pairwise(reached)]
    if forward:
        return masses, first + up
    # Backwards the loss is the negative one: cell [l, l + h) becomes (−l − h, −l].
    return masses[::-1], -last - 1 + up


def _convolved(a: Law, b: Law) -> Law:
    """By one product of two whole numbers, whose digits are the masses."""
    size, places = (2 * _BITS + 24) // 8, len(a[0]) + len(b[0]) - 1
    x, y = (int.from_bytes(b"".join(m.to_bytes(size, "little") for m in law[0]), "little") for law in (a, b))
    product = (x * y).to_bytes(size * (places + 1), "little")
    digits = (int.from_bytes(product[i * size : (i + 1) * size], "little") >> _BITS for i in range(places))
    return list(digits), a[1] + b[1]


def _power(law: Law, count: int) -> Law:
    half = law if count == 1 else _power(law, count // 2)
    squared = half if count == 1 else _convolved(half, half)
    return _convolved(squared, law) if count > 1 and count % 2 else squared


def sampled_bounds(steps: Sequence[tuple[float, float, int]], delta: float, *, share: float) -> tuple[float, float]:
    """ε of sampled steps (q, σ, how often), no more and no less: losses moved to a grid, down and up, and composed.

    share: of δ, which the upper one leaves for what is not computed here. Floats carry 1e-16 a mass.
    """
    bounds: list[float] = []
    # A loss is moved by at most a line in each step: 1e-2 in all, or more where the lines would be too many.
    span = max(13 / sigma + 1 / sigma**2 for _, sigma, _ in steps)
    width = max(1e-2 / sum(count for _, _, count in steps), span / 2500)
    for up in (False, True):
        found = 0.0
        for forward in (True, False):
            laws = [_power(_losses(q, 1 / sigma, width, up, forward), count) for q, sigma, count in steps]
            total = laws[0]
            for law in laws[1:]:
                total = _convolved(total, law)
            found = max(found, _read(total, width, delta * (1 - share if up else 1 + 1e-8)))
        bounds.append(found)
    return bounds[0], bounds[1]


def _read(law: Law, width: float, delta: float) -> float:
    masses = [mass * 2.0**-_BITS for mass in law[0]]
    losses = [(law[1] + i) * width for i in range(len(masses))]

    def holds(epsilon: float) -> bool:
        terms = (m * -math.expm1(epsilon - loss) for m, loss in zip(masses, losses, strict=True) if loss > epsilon)
        return math.fsum(terms) <= delta

    low, high = 0.0, max(losses[-1], width)
    if holds(0.0):
        return 0.0
    while high - low > 1e-7 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


# -- log E e^X from a sample with 0 ≤ X ≤ top, failing with probability gamma


def upper_mean(method: str, values: Sequence[mpf], counts: Counts, gamma: float, top: mpf) -> mpf:
    """`counts` says how often each value occurs. Raises Refused."""
    sample = [(x, int(n)) for x, n in zip(values, counts, strict=True) if n > 0]
    size = sum(n for _, n in sample)
    if size < 3:
        raise Refused
    if method == "student-t":
        return _student(sample, size, gamma)
    if top == 0:
        return mpf(0)
    unit = [(mp.expm1(x) / mp.expm1(top), n) for x, n in sample]
    if method == "band":
        return min(top, _band(sample, size, gamma, top))
    match method:
        case "betting":
            mean = _betting(unit, gamma)
        case "bernstein":
            mean = _bernstein(unit, size, gamma)
        case _:
            raise NotImplementedError(f"write the estimator {method!r} a second time, here")
    return min(top, mp.log1p(min(mpf(1), mean) * mp.expm1(top)))


def _student(sample: Sequence[tuple[mpf, int]], size: int, gamma: float) -> mpf:
    mean = mp.fsum(n * mp.exp(x) for x, n in sample) / size
    variance = mp.fsum(n * (mp.exp(x) - mean) ** 2 for x, n in sample) / size
    if variance <= (mpf("1e-15") * mean) ** 2:
        raise Refused
    freedom = mpf(size - 1)

    def tail(x: mpf) -> mpf:
        return mp.betainc(freedom / 2, mpf("0.5"), 0, freedom / (freedom + x * x), regularized=True) / 2

    quantile = mpf(0) if gamma >= 0.5 else least(lambda x: tail(x) <= gamma, mpf(1), mpf("1e-14"))
    return max(mpf(0), mp.log(mean + quantile * mp.sqrt(variance / freedom)))


def _betting(unit: Sequence[tuple[mpf, int]], gamma: float) -> mpf:
    """The largest mean that no gambler of the mixture has ruled out, his capital below 1/γ."""
    sample = [(float(y), n) for y, n in unit]

    def log_capital(odds: float) -> float:
        logs: list[float] = []
        for bet, stake in zip(BETS, STAKES, strict=True):
            gains = [1 + bet * (odds * (1 - y) - y) for y, _ in sample]
            ruined = min(gains) <= 0
            logs.append(
                -math.inf
                if ruined
                else math.log(stake) + math.fsum(n * math.log1p(bet * (odds * (1 - y) - y)) for y, n in sample)
            )
        top = max(logs)
        return top if math.isinf(top) else top + math.log(math.fsum(math.exp(x - top) for x in logs))

    low, high = -60.0, 60.0
    if log_capital(math.exp(high)) < -math.log(gamma):
        return mpf(1)
    while high - low > 1e-13 * max(1.0, abs(high)):
        middle = (low + high) / 2
        low, high = (low, middle) if log_capital(math.exp(middle)) >= -math.log(gamma) else (middle, high)
    return 1 / (1 + mp.exp(-mpf(high)))


def _bernstein(unit: Sequence[tuple[mpf, int]], size: int, gamma: float) -> mpf:
    """Maurer & Pontil 2009, Theorem 4."""
    mean = mp.fsum(n * y for y, n in unit) / size
    variance = mp.fsum(n * (y - mean) ** 2 for y, n in unit) / (size - 1)
    spread = mp.log(2 / mpf(gamma))
    return mean + mp.sqrt(2 * variance * spread / size) + 7 * spread / (3 * (size - 1))


def _band(sample: Sequence[tuple[mpf, int]], size: int, gamma: float, top: mpf) -> mpf:
    """F(x_(i)) ≥ BetaInv(γ/m; i, m − i + 1); what is left lies at the top."""
    total, before = mpf(0), mpf(0)
    ordered = sorted(sample)
    for (x, _), rank in zip(ordered, accumulate(n for _, n in ordered), strict=True):
        reached = max(before, mpf(_beta_quantile(rank, size, gamma / size)))
        total, before = total + (reached - before) * mp.exp(x), reached
    return mp.log(total + (1 - before) * mp.exp(top))


@cache
def _beta_quantile(rank: int, size: int, probability: float) -> float:
    """x with P(Beta(rank, size − rank + 1) ≤ x) = probability: that many of `size` uniform numbers lie below x."""

    def reached(x: float) -> bool:
        logs = math.log(math.comb(size, rank)) + rank * math.log(x) + (size - rank) * math.log1p(-x)
        term = total = math.exp(logs)
        for k in range(rank, size):
            term *= (size - k) / (k + 1) * x / (1 - x)
            total += term
        return total >= probability

    low, high = 0.0, 1.0 - 1e-15
    while high - low > 1e-14 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def lowered(counts: Counts, std: float, gamma: float, size: int) -> list[int]:
    """Noised counts from below, each sum of j of them lowered by z√(2j ln(bins/γ)); the rest in the top bin."""
    bins, reached, out = max(1, len(counts) - 1), 0, [0]
    for j, below in enumerate(accumulate(counts[:-1]), start=1):
        bound = math.floor(below - std * math.sqrt(2 * j * math.log(bins / gamma)))
        reached = min(size, max(reached, bound))
        out.append(reached)
    out.append(size)
    return [b - a for a, b in pairwise(out)]
