"""δ(ε) and ε(δ) of many Poisson-sampled Gaussian or Laplace steps, from the law of their summed losses: upper bounds.

Composition is a power of the Fourier transform, whose rounding is a share of the largest mass: 4·10⁻¹⁴ a step would
drown δ = 1e-12. So each law is tilted first, p(l) → p(l) e^{θl}/M(θ), with θ near the order at which Chernoff's bound
is least (exponential change of measure: Cramér 1938). The tilted sum has its mass around ε, the transform's rounding is
a share of *that*, and untilting multiplies both by M^T e^{−θl}: the error becomes a share of δ itself, at any δ.

Added terms, so that the result is a bound:
- one step's discretisation dominates, and its masses are rounded up (`step_losses`)
- rounding of the transform, of its power and of the way back, bounded from the transform found (`_power`)
- mass that wraps around the end of the window only adds. Mass that leaves it upwards is added by Chernoff's bound
- tails that were cut count as infinite loss
- the discrete Gaussian, which is what is drawn, in place of the continuous one (`unsampled.lattice_excess`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from accounting.mechanisms.step_laws import is_tractable, loss_span, loss_variance, losses_of
from accounting.mechanisms.step_losses import UNIT, LossLaw, StepLosses
from accounting.mechanisms.unsampled import Steps, lattice_excess, merged, step_excess
from accounting.values import FloatArray

# A grid this fine against one step's spread adds less than 2e-5 to the variance of the sum.
_FINENESS = 0.01
# Nats that the grid may add to ε, about. It decides where ε is large, or a large release hides how small others are.
_LARGEST_EXCESS = 2e-4
MOST_BINS = 2**21
_MOST_STEP_BINS = 2**20
_COARSE = 2**12
# Nats. Sums as wide as 10⁸ nats ask for more. Nobody reads a loss there, and e^{interval} soon is no float.
_COARSEST = 50.0
# Tilted mass outside of the window: e⁻⁴¹.
_OUTSIDE = 41.0
_SHY = 0.85
# Share of δ that cut tails may take.
_TAIL_SHARE = 1e-7
# At ε = 0: tails of 1e-9 in all, and a grid of at most 6.5e-5 nats. Tested: δ(0) is then within 1e-6 of the truth.
_ZERO_GUESS, _ZERO_SCALE = 1e-2, 0.13
# Compositions that are read for a whole curve.
_ANCHORS = 8
# Per level of the transform, in units in the last place (a butterfly has a product, a sum and a rounded twiddle).
_LEVEL = 4.0


@dataclass(frozen=True)
class _Direction:
    """One direction of the neighbouring relation, on one grid: the laws of the steps and how often each is taken."""

    laws: tuple[StepLosses, ...]
    counts: tuple[int, ...]

    def log_mgf(self, order: float) -> float:
        return math.fsum(n * law.log_mgf(order) for n, law in zip(self.counts, self.laws, strict=True))

    def infinite(self, parts: Sequence[Steps]) -> float:
        """The mass at infinite loss. The part that was cut off is taken 40-fold, which no reader of δ notices."""
        factors = (1 if isinstance(part.law, LossLaw) else 40 for part in parts)
        laws = zip(self.counts, self.laws, factors, strict=True)
        return math.fsum(count * law.infinite * factor for count, law, factor in laws)


@dataclass(frozen=True)
class _Sum:
    """The composed law around its tilted mean: masses(l) = weights(l)·e^{log_scale}, weights counted from `anchor`.

    floor            all losses above it are kept
    losses, weights  (n,) ascending. The weights carry the untilting e^{−θ(l − anchor)} and are rounded up
    spare            δ that the rest may take: infinite losses and what left the window
    lattice          what the discrete law may add to δ(ε), as κ: δ grows by at most κ·e^{log_scale − θ(ε − anchor)}
    """

    floor: float
    losses: FloatArray
    weights: FloatArray
    order: float
    anchor: float
    log_scale: float
    spare: float
    lattice: float
    drift: float

    def delta(self, epsilon: float) -> float:
        """δ at an ε. 1 where the losses that are kept do not reach."""
        epsilon = max(0.0, epsilon - self.drift)
        if epsilon < self.floor:
            return 1.0
        above = self.losses > epsilon
        losses, weights = self.losses[above], self.weights[above]
        delta = float((weights * -np.expm1(epsilon - losses)).sum())
        delta = delta * (1 + 1e-9) + self.lattice * math.exp(min(700.0, -self.order * (epsilon - self.anchor)))
        return min(1.0, math.exp(min(0.0, self.log_scale + math.log(max(delta, 1e-300)))) + self.spare)

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """δ at each ε, shape (epsilons,). 1 where the losses that are kept do not reach."""
        lowered = np.maximum(0.0, epsilons - self.drift)
        _, sums, discounted = self._tails()
        # The last loss that is not above ε, or all of them are.
        places = np.searchsorted(self.losses, lowered, side="right") - 1
        sums = np.append(sums, sums[0] + self.weights[0])[places]
        discounted = np.append(discounted, discounted[0] + self.weights[0])[places]
        rest = discounted * np.exp(np.minimum(lowered - float(self.losses[0]), 700.0))
        lattice = self.lattice * np.exp(np.minimum(700.0, -self.order * (lowered - self.anchor)))
        deltas = np.maximum(sums - rest, 0.0) + 1e-9 * sums + lattice
        logs = np.minimum(0.0, self.log_scale + np.log(np.maximum(deltas, 1e-300)))
        return np.where(lowered < self.floor, 1.0, np.minimum(1.0, np.exp(logs) + self.spare))

    def _tails(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """e^{l₀ − l}, and over all larger losses Σ w and Σ w e^{l₀ − l}. Each of the shape of the losses."""
        falling = np.exp(float(self.losses[0]) - self.losses)
        sums = np.append(np.cumsum(self.weights[::-1])[::-1][1:], 0.0)
        return falling, sums, np.append(np.cumsum((self.weights * falling)[::-1])[::-1][1:], 0.0)

    def epsilon(self, delta: float) -> float:
        """Least ε ≥ 0 and losses[0] with δ(ε) ≤ delta, or inf where there is none."""
        return max(0.0, self._epsilon(delta) + self.drift + 1e-12)

    def _epsilon(self, delta: float) -> float:
        if delta <= self.spare:
            return math.inf
        # Where losses are bounded the tilt is steep, and any δ may be far above every mass that is left.
        target = math.exp(min(700.0, math.log((delta - self.spare) * (1 - 1e-9)) - self.log_scale))
        # Σ w and Σ w e^{l₀ − l} over all larger losses. Both from the small end.
        first = float(self.losses[0])
        falling, sums, discounted = self._tails()
        # Beyond 690 nats e^{l₀ − l} is no float. What is taken off is then too little.
        falling = np.maximum(falling, 1e-300)
        lattice = self.lattice * np.exp(np.minimum(700.0, -self.order * (self.losses - self.anchor)))
        # 1e-9: the rounding of sums of up to 2²¹ terms.
        deltas = (sums - discounted / falling) + 1e-9 * sums + lattice
        over = np.flatnonzero(deltas > target)
        if over.size == 0:
            return first
        place = int(over[-1])
        if place == self.losses.size - 1:
            return math.inf
        # Between two grid points δ(ε) = Σw − e^ε Σw e^{−l}, with the larger of both points' other terms.
        room = target - float(lattice[place]) - 1e-9 * float(sums[place])
        low, high = float(self.losses[place]), float(self.losses[place + 1])
        rest = float(discounted[place] / falling[place])
        if room <= 0 or rest <= 0 or float(sums[place]) <= room:
            return high
        return min(high, max(low, low + math.log((float(sums[place]) - room) / rest)) + 4e-16 * abs(high))


def composed_epsilon(steps: Sequence[Steps], delta: float, guess: float) -> float:
    """Least ε with δ(ε) ≤ delta, rounded up, or inf where this method has no answer.

    steps non-empty, 0 < sampling_rate ≤ 1. guess: an upper bound on ε, which only chooses the grid.
    """
    return max((_sum(steps, delta, guess, removal=removal, epsilon=None) for removal in (True, False)), default=0.0)


def composed_delta(steps: Sequence[Steps], epsilon: float, guess: float) -> float:
    """Least δ(ε), rounded up, at most 1. guess: an upper bound on it, which only chooses grid and tails."""
    while True:
        delta = max(_sum(steps, guess, epsilon, removal=removal, epsilon=epsilon) for removal in (True, False))
        # Tails are cut as a share of the guess: far above the answer they would be most of it.
        if not 0 < delta < guess / 1000:
            return delta
        guess = delta


def composed_delta_at_zero(steps: Sequence[Steps]) -> float:
    """δ(0), the total variation, rounded up, at most 1: equal in both directions, so that one of them is enough."""
    return _sum(steps, _ZERO_GUESS, _ZERO_SCALE, removal=False, epsilon=0.0)


def composed_deltas(steps: Sequence[Steps], epsilons: FloatArray, guess: float) -> FloatArray:
    """Least δ(ε) at each ε of an ascending array, rounded up, at most 1, shape (epsilons,).

    A composition that is tilted to one ε is read at the others, where it is a bound too. guess: as in `composed_delta`.
    """
    anchors = np.linspace(0, epsilons.size - 1, min(epsilons.size, _ANCHORS)).round().astype(np.int64)
    best = np.ones((2, epsilons.size))
    for place in anchors.tolist():
        at = float(epsilons[place])
        while True:
            sums = [_composed(steps, guess, at, removal=removal, epsilon=at) for removal in (True, False)]
            readings = [np.ones(epsilons.size) if law is None else law.deltas(epsilons) for law in sums]
            best = np.minimum(best, readings)
            delta = float(best[:, place].max())
            # As in `composed_delta`.
            if not 0 < delta < guess / 1000:
                break
            guess = delta
    # δ(ε) never rises: what bounds it at one ε does so at every larger one.
    return np.minimum.accumulate(best.max(axis=0))


def _sum(steps: Sequence[Steps], delta: float, scale: float, *, removal: bool, epsilon: float | None) -> float:
    """One direction: ε at `delta`, or δ at `epsilon` where one is given."""
    composed = _composed(steps, delta, scale, removal=removal, epsilon=epsilon)
    if epsilon is None:
        return math.inf if composed is None else composed.epsilon(delta)
    return 1.0 if composed is None else composed.delta(epsilon)


def _composed(
    steps: Sequence[Steps], delta: float, scale: float, *, removal: bool, epsilon: float | None
) -> _Sum | None:
    """The composed law of one direction, tilted to `delta`, or to `epsilon` where one is given. None: out of range."""
    parts = merged(steps)
    if not all(map(is_tractable, parts)):
        return None
    total = sum(part.count for part in parts)
    # In logarithms: the product may be no float.
    places = math.floor(math.log10(delta) + math.log10(_TAIL_SHARE) - math.log10(total))
    if places < -280:
        return None
    tail = 10.0**places
    coarse = _laws(parts, _span(parts, tail, removal=removal) / _COARSE, tail, removal=removal)
    order = _tilt(coarse, delta, epsilon)
    _, deviation = _moments(coarse, order)
    low, high, move = _window(coarse, order, deviation)
    if not 0 < high - low < math.inf:
        return None
    # At the order θ a grid adds about (θ + 1)/12 of its square to ε, once a step.
    finest = math.sqrt(12 * _LARGEST_EXCESS / (order + 1) / total)
    interval = _interval(parts, tail, min(finest, scale / 2000), deviation, high - low, removal=removal)
    if interval > _COARSEST:
        return None
    direction = _laws(parts, interval, tail, removal=removal)
    # Chernoff's bound on what leaves the window upwards.
    beyond = math.exp(min(0.0, direction.log_mgf(order + move) - (order + move) * high))
    near = scale if epsilon is None else max(0.0, epsilon - _drift(direction))
    return _untilted(direction, parts, order, (low, high), tail, near, spare=direction.infinite(parts) + beyond)


def _drift(direction: _Direction) -> float:
    # Every step's losses are right to a few units in the last place.
    errors = (8 * UNIT * (1 + float(np.abs(law.losses[[0, -1]]).max())) + law.drift for law in direction.laws)
    return math.fsum(count * error for count, error in zip(direction.counts, errors, strict=True))


def _laws(parts: Sequence[Steps], interval: float, tail: float, *, removal: bool) -> _Direction:
    laws = tuple(losses_of(part, interval, tail, removal=removal) for part in parts)
    return _Direction(laws, tuple(part.count for part in parts))


def _span(parts: Sequence[Steps], tail: float, *, removal: bool) -> float:
    return max(loss_span(part, tail, removal=removal) for part in parts)


def _interval(
    parts: Sequence[Steps], tail: float, coarsest: float, deviation: float, width: float, *, removal: bool
) -> float:
    """A grid that is fine against one step's spread and against the answer, as far as the arrays allow."""
    steps = sum(part.count for part in parts)
    variance = math.fsum(part.count * loss_variance(part) for part in parts)
    # Where rare large losses make the sum, the tilted spread is what counts.
    spread = max(math.sqrt(variance / steps), 0.1 * deviation / math.sqrt(steps))
    span = _span(parts, tail, removal=removal)
    fine = min(_FINENESS * spread, max(coarsest, 1e-9 / 2000))
    if any(part.law != "gaussian" for part in parts):
        # Bounded losses end sharply: a grid coarser than the one that chose the window would leave it.
        fine = min(fine, span / _COARSE)
    min_interval = max(width / MOST_BINS, span / _MOST_STEP_BINS)
    # A power of two, so that it changes seldom while steps are added.
    return 2.0 ** (math.floor(math.log2(fine)) if fine > 2 * min_interval else math.ceil(math.log2(min_interval)))


def _tilt(coarse: _Direction, delta: float, epsilon: float | None) -> float:
    """θ at which Chernoff's bound is about least: golden section in ln θ. Any θ gives a bound."""

    def objective(log_order: float) -> float:
        order = math.exp(log_order)
        moments = coarse.log_mgf(order)
        if epsilon is not None:
            return moments - order * epsilon
        return (moments - math.log1p(order) - order * math.log1p(1 / order) - math.log(delta)) / order

    largest = max(float(law.losses[-1]) for law in coarse.laws)
    low, high, golden = math.log(0.05), math.log(min(1e6, max(1.0, 2000 / max(largest, 1e-9)))), (math.sqrt(5) - 1) / 2
    inner = [high - golden * (high - low), low + golden * (high - low)]
    values = [objective(x) for x in inner]
    while high - low > 0.02:
        if values[0] < values[1]:
            high, inner = inner[1], [inner[1] - golden * (inner[1] - low), inner[0]]
            values = [objective(inner[0]), values[0]]
        else:
            low, inner = inner[0], [inner[1], inner[0] + golden * (high - inner[0])]
            values = [values[1], objective(inner[1])]
    # A little less: just above the best order the rarest losses may take over, and the tilted law grows very wide.
    return _SHY * math.exp((low + high) / 2)


def _moments(direction: _Direction, order: float) -> tuple[float, float]:
    """Mean and deviation of the tilted sum."""
    mean = variance = 0.0
    for count, law in zip(direction.counts, direction.laws, strict=True):
        weights, _ = law.tilted(order)
        at = float(weights @ law.losses)
        mean, variance = mean + count * at, variance + count * float(weights @ np.square(law.losses - at))
    return mean, math.sqrt(variance)


def _window(coarse: _Direction, order: float, deviation: float) -> tuple[float, float, float]:
    """Losses between which the tilted sum lies but for e⁻⁴¹ on either side, and the move s of the upper one's bound.

    From a coarse law: the window only has to be wide enough, and what leaves it upwards is bounded anew.
    """
    centre, spread = coarse.log_mgf(order), max(deviation, coarse.laws[0].interval)
    moves = [deviations / spread for deviations in (0.5, 1.0, 2.0, 4.0, 9.0)]
    upper = min(((coarse.log_mgf(order + move) - centre + _OUTSIDE) / move, move) for move in moves)
    lower = max((coarse.log_mgf(order - move) - centre + _OUTSIDE) / -move for move in moves)
    return lower, *upper


def _untilted(
    direction: _Direction,
    parts: Sequence[Steps],
    order: float,
    window: tuple[float, float],
    tail: float,
    near: float,
    *,
    spare: float,
) -> _Sum | None:
    interval = direction.laws[0].interval
    first, last = math.floor(window[0] / interval), math.ceil(window[1] / interval)
    size = 1 << max(12, (last - first).bit_length())
    tilted = [law.tilted(order) for law in direction.laws]
    masses = _power([weights for weights, _ in tilted], direction, first, size)
    # With 10¹⁶ steps and more the bound on the rounding is no float.
    if not np.isfinite(masses).all():
        return None
    log_mgf = math.fsum(n * log for n, (_, log) in zip(direction.counts, tilted, strict=True))
    losses = np.asarray(np.arange(first, first + size) * interval, dtype=np.float64)
    # From far below the answer on: weights grow like e^{−θl} downwards.
    anchor = float(losses @ masses) / float(masses.sum())
    start = int(np.searchsorted(losses, max(float(losses[0]), min(near, anchor - 100 / (order + 1)))))
    start = min(max(start, 0), size - 1)
    if near >= 0 > losses[start]:
        start = max(start, int(np.searchsorted(losses, 0.0)) - 1)
    kept_losses, drift = losses[start:], _drift(direction)
    steps = sum(direction.counts)
    # Rounding of the weights' normalisation, once a step, and the discrete law at each sampled step.
    slack = steps * 2 * UNIT + UNIT * abs(log_mgf) + math.fsum(step_excess(part, tail) for part in parts)
    return _Sum(
        floor=float(losses[start - 1]) if start else -math.inf,
        losses=kept_losses,
        weights=masses[start:] * np.exp(np.minimum(-order * (kept_losses - anchor), 700.0)),
        order=order,
        anchor=anchor,
        log_scale=log_mgf - order * anchor + slack,
        spare=spare,
        lattice=lattice_excess([part for part in parts if part.is_closed]),
        drift=drift,
    )


def _power(tilted: Sequence[FloatArray], direction: _Direction, first: int, size: int) -> FloatArray:
    """The tilted masses of the sum at losses first + j, j < size, wrapped around and rounded up.

    An output of the transform is a tree of log₂ size sums of products, so it errs by at most a few units for each level
    times the sum of the moduli: `rough` for a probability law. The power multiplies that by T|F|^{T−1}. Logarithm and
    phase add T units of their own. The way back adds `rough` times the mean modulus.
    """
    rough = _LEVEL * UNIT * (math.log2(size) + 2)
    log_power, phase = np.zeros(size // 2 + 1), np.zeros(size // 2 + 1)
    log_most, relative = np.zeros(size // 2 + 1), np.full(size // 2 + 1, rough)
    offset = 0
    for weights, law, count in zip(tilted, direction.laws, direction.counts, strict=True):
        # Around its mean, so that phases stay small where the power is large.
        centre = round(float(weights @ np.arange(weights.size)))
        offset += count * (law.first + centre)
        transform = np.fft.rfft(_wrapped(weights, -centre, size))
        modulus = np.abs(transform)
        logs, angle = np.log(np.maximum(modulus, 1e-300)), np.angle(transform)
        log_power, phase = log_power + count * logs, phase + count * angle
        log_most = log_most + count * np.log(modulus + rough)
        relative = relative + count * (rough / (modulus + rough) + 2 * UNIT * (np.abs(logs) + np.abs(angle)))
    # What is smaller is left out, and stands in the error whole.
    used = log_most > -60
    powers = np.zeros(log_power.size, dtype=np.complex128)
    powers[used] = np.exp(log_power[used] + 1j * phase[used])
    with np.errstate(over="ignore"):
        error = np.exp(log_most) * np.where(used, np.minimum(2.0, relative), 1.0)
    # Every frequency but the first and the last stands for two.
    max_error = (2 * float(error.sum())) / size
    return np.roll(np.maximum(np.fft.irfft(powers, size), 0.0), (offset - first) % size) + max_error


def _wrapped(values: FloatArray, start: int, size: int) -> FloatArray:
    """Values at places start, start + 1, … modulo size, added up."""
    out = np.zeros(size)
    for begin in range(0, values.size, size):
        piece, place = values[begin : begin + size], (start + begin) % size
        head = min(piece.size, size - place)
        out[place : place + head] += piece[:head]
        out[: piece.size - head] += piece[head:]
    return out
