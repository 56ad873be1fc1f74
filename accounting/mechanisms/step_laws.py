"""What `composed_loss` asks of a step, whatever its noise: whether it can be computed, its range, spread and losses."""

from __future__ import annotations

import math

from accounting.mechanisms.laplace_losses import laplace_losses, laplace_range
from accounting.mechanisms.step_losses import LossLaw, StepLosses, loss_at, output_range, step_losses
from accounting.mechanisms.unsampled import LEAST_GRID_STD, Steps


def is_tractable(part: Steps) -> bool:
    """Whether loss distributions are computed. Outside, a step is bounded by its Rényi divergence."""
    if isinstance(part.law, LossLaw):
        return part.law.is_tractable
    return 0.05 <= part.noise_multiplier <= 1e7 and part.sampling_rate >= 1e-9 and part.grid_std >= LEAST_GRID_STD


def loss_variance(part: Steps) -> float:
    """About the variance of one step's loss."""
    if isinstance(part.law, LossLaw):
        return part.law.variance
    return part.sampling_rate**2 * math.expm1(min(part.noise_multiplier**-2, 50.0))


def loss_span(part: Steps, tail: float, *, removal: bool) -> float:
    """The largest loss less the least, but for the tails that are cut."""
    ratio, rate = 1 / part.noise_multiplier, part.sampling_rate
    if isinstance(part.law, LossLaw):
        low, high = part.law.loss_range(tail, removal=removal)
    elif part.law == "laplace":
        low, high = laplace_range(ratio, rate)
    else:
        low, high = (loss_at(x, ratio, rate) for x in output_range(ratio, rate, tail, removal=removal))
    return high - low


def losses_of(part: Steps, interval: float, tail: float, *, removal: bool) -> StepLosses:
    """The dominating distribution of one step."""
    ratio, rate = 1 / part.noise_multiplier, part.sampling_rate
    if isinstance(part.law, LossLaw):
        return part.law.losses(interval, tail, removal=removal)
    if part.law == "laplace":
        return laplace_losses(ratio, rate, interval, removal=removal)
    return step_losses(ratio, rate, interval, tail, removal=removal)
