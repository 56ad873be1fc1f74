"""Gaussian steps that all records take part in: δ(ε) in closed form, and what the discrete Gaussian may add to it.

The drawn noise is discrete: integers of a grid with s steps to the standard deviation, shifted by an integer vector Δ
with ‖Δ‖ ≤ M = s/σ. With the loss L tilted by θ and k(t) = e^{−θt}(1 − e^{−t})₊, δ(ε) = M(θ) e^{−θε} E k(L − ε). The
discrete Gaussian's tilted transform is a sum of Gaussians around the multiples of 2π (Poisson summation). Around 0 it
is the continuous one's. Elsewhere one coordinate alone bounds the product, however many there are. And the transform
of k is below 1/ω². A coordinate that moves by Δ₁ has its k-th peak at ω = 2πks²/Δ₁, of width s/Δ₁. Hence

    δ_discrete(ε) ≤ δ(ε) + M(θ) e^{−θε} · Δ₁/(12√(2π) s³),  largest for Δ₁ = M,

up to e^{−π²s²/2} and a factor 1 + 3/(2πs)², below 1.01 for s ≥ 8. It holds for every θ and any number of dimensions.
Other independent steps only shrink it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from scipy import special as _special  # pyright: ignore[reportMissingTypeStubs]

from accounting.mechanisms.step_losses import UNIT, LossLaw

_functions = cast(Any, _special)

# What underflows is not nothing.
_SMALLEST = math.nextafter(0.0, 1.0)

# Grid steps to a standard deviation where nothing else is said. The project's grid for updates has 2¹⁴·√coordinates of
# them or, for fewer than 16 coordinates, 2¹⁶. That for gradients 2²².
GRID_STD = 2.0**16
# So fine that nothing is added for the grid: its error comes off δ, or is added to a probability.
CONTINUOUS = 2.0**60
# The least for which the bound on the lattice is proved.
LEAST_GRID_STD = 8.0


@dataclass(frozen=True)
class Steps:
    """`count` equal steps with Gaussian or Laplace noise, or of a law that knows its own losses.

    grid_std  of Gaussian noise: steps of the grid that it is drawn on, to a standard deviation
    """

    noise_multiplier: float
    sampling_rate: float
    count: int
    grid_std: float = GRID_STD
    law: Literal["gaussian", "laplace"] | LossLaw = "gaussian"

    @property
    def is_closed(self) -> bool:
        """Whether δ(ε) has a closed form here."""
        return self.law == "gaussian" and self.sampling_rate == 1


def merged(steps: Sequence[Steps]) -> list[Steps]:
    """The same steps, all unsampled Gaussian ones as one, last: 1/σ² adds up exactly."""
    full = [step for step in steps if step.is_closed]
    if not full:
        return list(steps)
    min_noise = min(step.noise_multiplier for step in full)
    # In units of the least noise: no square can overflow.
    precision = math.fsum(step.count * (min_noise / step.noise_multiplier) ** 2 for step in full)
    # Towards less noise than there is.
    noise = min_noise / math.sqrt(precision) * (1 - 4 * UNIT)
    # The grid that stands for all of them is the one with the largest excess.
    worst = lattice_excess(full)
    return [step for step in steps if not step.is_closed] + [Steps(noise, 1.0, 1, _grid_of(worst, noise))]


def _grid_of(excess: float, noise: float) -> float:
    """The grid_std at which one step with this noise has that excess."""
    # With noise that large the excess may be no float: nothing is added then either.
    return math.sqrt(1.01 / (12 * math.sqrt(2 * math.pi) * noise * excess)) if excess > 0 else GRID_STD


def lattice_excess(unsampled: Sequence[Steps]) -> float:
    """κ: δ(ε) of the discrete law is at most M(θ)e^{−θε}·κ above that of the continuous one, for every θ. s ≥ 8."""
    # By quotients, not powers, which would raise an error where they are infinite.
    spread = 12 * math.sqrt(2 * math.pi)
    excesses = (1.01 / spread / step.noise_multiplier / step.grid_std / step.grid_std for step in unsampled)
    return max(excesses, default=0.0)


def step_excess(step: Steps, tail: float) -> float:
    """ln(1 + ρ)·count for sampled steps: each one's δ(ε) is at most 1 + ρ times the continuous one's, T's (1 + ρ)^T.

    The bound above beside the Gaussian's own δ at z deviations is z(z + r)/12s², r = 1/σ. Beyond the cut of the tails
    the loss counts as infinite. A sampled step's δ is q times that of an unsampled one at another ε.
    """
    if step.law != "gaussian" or step.sampling_rate == 1:
        return 0.0
    ratio, far = 1 / step.noise_multiplier, math.sqrt(-2 * math.log(tail)) + 1
    return step.count * 1.5 * far * (far + ratio) / 12 / step.grid_std / step.grid_std


def unsampled_delta(steps: Sequence[Steps], epsilon: float) -> float:
    """δ(ε) of unsampled steps (Balle & Wang 2018, Theorem 8), rounded up, the discrete law's excess included."""
    (all_of_them,) = merged(steps)
    return _delta(1 / all_of_them.noise_multiplier, epsilon, lattice_excess([all_of_them]))


def unsampled_epsilon(steps: Sequence[Steps], delta: float, upper_bound: float) -> float:
    """Least ε with δ(ε) ≤ delta, rounded up to a relative 1e-12, at most `upper_bound`, an upper bound on it."""
    (all_of_them,) = merged(steps)
    ratio, lattice = 1 / all_of_them.noise_multiplier, lattice_excess([all_of_them])
    if _delta(ratio, upper_bound, lattice) > delta:
        return upper_bound
    if _delta(ratio, 0.0, lattice) <= delta:
        return 0.0
    low, high = 0.0, upper_bound
    # `high` always meets delta: that was computed.
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _delta(ratio, middle, lattice) <= delta else (middle, high)
    return high


def _delta(ratio: float, epsilon: float, lattice: float) -> float:
    near = epsilon / ratio - ratio / 2
    chernoff = math.exp(-max(near, 0.0) * max(near, 0.0) / 2)
    return min(1.0, max(gaussian_deltas(ratio, epsilon)[1] + chernoff * lattice, _SMALLEST))


def gaussian_deltas(ratio: float, epsilon: float) -> tuple[float, float]:
    """δ(ε) of continuous noise of 1/ratio deviations (Balle & Wang 2018, Theorem 8): rounded down, and up."""
    near, far = epsilon / ratio - ratio / 2, epsilon / ratio + ratio / 2
    # Φ(−near) − e^ε Φ(−far), where e^ε φ(far) = φ(near): the exponential never overflows.
    density = math.exp(-near * near / 2) / 2
    first = float(_functions.ndtr(-near)) if near < 0 else density * _scaled_tail(near)
    second = density * _scaled_tail(far)
    # `near` may be off by units of `far`, which tilt the density by as much as its slope. Far out nothing is left.
    rounding = 4 * UNIT * (4 + min((1 + abs(near)) * far, 1e300)) * (first + second)
    return max(0.0, first - second - rounding), first - second + rounding


def _scaled_tail(x: float) -> float:
    """2 e^{x²/2} Φ(−x)."""
    return float(_functions.erfcx(x / math.sqrt(2)))
