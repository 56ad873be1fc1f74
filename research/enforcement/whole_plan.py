"""ε of a whole plan by its loss distribution, with everything taken off δ that differs from continuous noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from accounting import ClassicalAccountant
from accounting.mechanisms.composed_loss import composed_epsilon
from accounting.mechanisms.conversion import SAMPLING_ERROR
from accounting.mechanisms.guessing import rounded_steps, rounding_error
from accounting.mechanisms.unsampled import Steps, unsampled_epsilon


@dataclass(frozen=True)
class WholePlan:
    """Everything that the settings fix.

    noise, rate, count  of the sampled steps
    squares             μ² of the questions, Σ Δ²/s². 0: there are none
    histograms          noise multipliers of the histograms, each charged at rate 1
    """

    noise: float
    rate: float
    count: int
    squares: float = 0.0
    histograms: tuple[float, ...] = ()

    @cached_property
    def questions(self) -> tuple[tuple[float, int], ...]:
        """Noise multipliers of the releases at rate 1 and their counts: one Gaussian stands for all questions."""
        asked = ((1 / math.sqrt(self.squares), 1),) if self.squares else ()
        return asked + tuple((noise, 1) for noise in self.histograms)

    @property
    def steps(self) -> list[Steps]:
        """As continuous steps whose noise is rounded."""
        steps = [rounded_steps(self.noise, self.rate, self.count)]
        return steps + [rounded_steps(noise, 1.0, count) for noise, count in self.questions]

    def renyi(self, delta: float) -> float:
        """ε at the best order. That order is fixed before the first step."""
        account = ClassicalAccountant(delta=delta, method="rdp")
        account.step(noise_multiplier=self.noise, sampling_rate=self.rate, count=self.count)
        for noise, count in self.questions:
            account.step(noise_multiplier=noise, sampling_rate=1.0, count=count)
        return account.epsilon()

    def epsilon(self, delta: float) -> float:
        """ε of the loss distribution: an upper bound, with (1 + e^ε) times the errors of all draws taken off δ."""
        most = self.renyi(delta)
        # Rounded up in steps: what is taken off for a larger ε is enough.
        taken_off = _errors(self.steps) * (1 + math.exp(most))
        if taken_off >= delta:
            return most
        epsilon = _least(self.steps, delta - taken_off, most)
        taken_off = _errors(self.steps) * (1 + math.exp(epsilon))
        return min(epsilon, most, _least(self.steps, delta - taken_off, most))


def _errors(steps: Sequence[Steps]) -> float:
    count = sum(step.count for step in steps)
    return count * SAMPLING_ERROR + rounding_error(count)


def _least(steps: Sequence[Steps], delta: float, most: float) -> float:
    if all(step.is_closed for step in steps):
        return unsampled_epsilon(steps, delta, most)
    return composed_epsilon(steps, delta, most)
