"""A privacy audit with canaries: attack many runs, bound ε from below, compare with the certificate.

The canary is a record whose gradient points where no other record's does; the attacker reads that coordinate of every
released noisy sum and scores it by the likelihood ratio. From the attack's error rates, ε at a given δ is at least
ln((power − δ) / false alarms), in both directions (Kairouz, Oh, Viswanath 2015), with Clopper–Pearson bounds on the
rates and the threshold chosen on other runs than those it is tested on (Nasr et al. 2023).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn

from accounting import ClassicalAccountant, epsilon_from_moments, log_moment
from private_learning.gradients import ClippedSum, PerRecordGradients
from private_learning.training.gradients import poisson_batch
from private_learning.training.noise import RandomSource, SeededSource, add_noise

RECORDS, CLIP_NORM, LEARNING_RATE = 12, 0.5, 0.1
# Probability that a correct mechanism fails one audit (two directions, each a pair of bounds); seeds are fixed.
FALSE_ALARM = 1e-3

Sampler = Callable[[int, float, RandomSource], list[NDArray[np.int64]]]


def poisson(records: int, rate: float, source: RandomSource) -> list[NDArray[np.int64]]:
    return [poisson_batch(records, rate, source=source) for _ in range(round(1 / rate))]


def shuffled(records: int, rate: float, source: RandomSource) -> list[NDArray[np.int64]]:
    """The usual epoch: every record exactly once."""
    order = np.argsort(source.words(records, np.uint64))
    return np.array_split(order, round(1 / rate))


@dataclass(frozen=True)
class Training:
    """One epoch of private SGD, or a broken version of it."""

    noise_multiplier: float
    sampling_rate: float
    sampler: Sampler = poisson
    noise_factor: float = 1.0
    clip_factor: float = 1.0

    def certificate(self) -> ClassicalAccountant:
        account = ClassicalAccountant(delta=1e-5)
        account.step(
            noise_multiplier=self.noise_multiplier,
            sampling_rate=self.sampling_rate,
            count=round(1 / self.sampling_rate),
        )
        return account

    def moments_epsilon(self, delta: float) -> float:
        orders = np.arange(1.0, 33.0)
        steps = round(1 / self.sampling_rate)
        costs = log_moment(
            orders, CLIP_NORM, noise_std=self.noise_multiplier * CLIP_NORM, sampling_rate=self.sampling_rate
        )
        return epsilon_from_moments(orders, steps * np.ravel(costs), delta)[0]

    def scores(self, runs: int, *, canary: bool, source: RandomSource) -> NDArray[np.float64]:
        """(runs,) log likelihood ratios of the accounted mechanism with and without the canary."""
        model = nn.Linear(4, 1, bias=False)
        gradients = PerRecordGradients(model, lambda out, target: (out[:, 0] - target).square())
        data = records(canary=canary)
        x = np.array([self.released(model, gradients, data, source) for _ in range(runs)]) / CLIP_NORM
        q, s = self.sampling_rate, self.noise_multiplier
        # Bounded gradients point down: the canary's target is out of reach above.
        return np.log1p(q * np.expm1((-2 * x - 1) / (2 * s**2))).sum(1)

    def released(
        self, model: nn.Linear, gradients: PerRecordGradients, data: tuple[Tensor, Tensor], source: RandomSource
    ) -> list[float]:
        """The canary's coordinate of every noisy sum of one run."""
        inputs, targets = data
        nn.init.zeros_(model.weight)
        seen = []
        for batch in self.sampler(len(inputs), self.sampling_rate, source):
            rows = torch.from_numpy(np.sort(batch))
            clipped = gradients.clipped_sum(inputs[rows], targets[rows], clip_norm=CLIP_NORM * self.clip_factor)
            claimed = ClippedSum(clipped.gradients, clipped.norms, CLIP_NORM)
            noisy = add_noise(claimed, noise_multiplier=self.noise_multiplier * self.noise_factor, source=source)
            step = noisy.gradients["weight"]
            seen.append(float(step[0, 3]))
            with torch.no_grad():
                model.weight -= LEARNING_RATE / (self.sampling_rate * RECORDS) * step
        return seen


def records(*, canary: bool) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.cat([torch.randn(RECORDS, 3, generator=generator), torch.zeros(RECORDS, 1)], 1)
    targets = torch.randn(RECORDS, generator=generator)
    if canary:
        inputs = torch.cat([inputs, torch.tensor([[0.0, 0.0, 0.0, 1.0]])])
        targets = torch.cat([targets, torch.tensor([5.0])])
    return inputs, targets


def epsilon_lower_bound(present: NDArray[np.float64], absent: NDArray[np.float64], delta: float) -> float:
    """Audited lower bound on ε at δ, wrong with probability at most FALSE_ALARM."""
    half = len(present) // 2
    bounds = []
    for signal, null in ((present, absent), (-absent, -present)):
        candidates = np.quantile(np.concatenate([signal[:half], null[:half]]), np.linspace(0.01, 0.99, 99))
        threshold = max(candidates, key=lambda t: epsilon_at(signal[:half], null[:half], t, delta))
        bounds.append(epsilon_at(signal[half:], null[half:], threshold, delta))
    return max(bounds)


def epsilon_at(signal: NDArray[np.float64], null: NDArray[np.float64], threshold: float, delta: float) -> float:
    power = lower(int((signal > threshold).sum()), len(signal))
    alarms = 1 - lower(int((null <= threshold).sum()), len(null))
    return max(0.0, math.log((power - delta) / alarms)) if power > delta else 0.0


def lower(successes: int, trials: int) -> float:
    """Clopper–Pearson lower bound; four of them make an audit."""
    return float(stats.beta.ppf(FALSE_ALARM / 4, successes, trials - successes + 1)) if successes else 0.0


def audit(training: Training, *, delta: float, runs: int, seed: int) -> float:
    source = SeededSource(seed, allow_insecure=True)
    present = training.scores(runs, canary=True, source=source)
    return epsilon_lower_bound(present, training.scores(runs, canary=False, source=source), delta)


FULL = Training(noise_multiplier=1.0, sampling_rate=1.0)
SAMPLED = Training(noise_multiplier=0.2, sampling_rate=0.25)


@pytest.mark.slow
@pytest.mark.parametrize(("training", "delta"), [(FULL, 0.2), (SAMPLED, 0.7)])
def test_the_mechanism_is_not_caught(training: Training, delta: float) -> None:
    certified = training.certificate().epsilon_at(delta)
    found = audit(training, delta=delta, runs=500, seed=1)
    assert found <= certified
    assert certified <= training.moments_epsilon(delta)


@pytest.mark.quick("noise halved")
@pytest.mark.parametrize(
    ("broken", "delta"),
    [
        (replace(FULL, noise_factor=0.5), 0.2),
        (replace(FULL, clip_factor=20.0), 0.2),
        (replace(SAMPLED, sampler=shuffled), 0.7),
    ],
    ids=["noise halved", "clip forgotten", "records shuffled"],
)
def test_planted_bugs_are_caught(broken: Training, delta: float) -> None:
    certified = broken.certificate().epsilon_at(delta)
    assert audit(broken, delta=delta, runs=500, seed=2) > certified


def test_the_bound_itself_is_right_on_a_known_pair() -> None:
    """Two unit Gaussians two apart: ε at δ has a closed form; the bound stays below it and comes near."""
    rng = np.random.default_rng(3)
    present, absent = rng.normal(2, 1, 20_000), rng.normal(0, 1, 20_000)
    delta = 0.2
    true = max(
        e
        for e in np.linspace(0, 8, 801)
        if stats.norm.cdf(1 - e / 2) - math.exp(e) * stats.norm.cdf(-1 - e / 2) >= delta
    )
    assert 0.8 * true <= epsilon_lower_bound(present, absent, delta) <= true
