"""Every reading of one run's ε, from the norms of a sample of records at every step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from accounting import (
    AveragedAccountant,
    BayesianAccountant,
    BayesianSpec,
    ClassicalAccountant,
    EstimateSpec,
    epsilon_from_moments,
    log_moment,
)
from experiments.tables.result import Spent

Floats = npt.NDArray[np.float64]
_BINS = 256


@dataclass(frozen=True)
class Mechanism:
    """Equal noised steps. noise_multiplier: over max_distance, which no record moves a step's result by more than."""

    steps: int
    sampling_rate: float
    noise_multiplier: float
    max_distance: float
    delta: float

    @property
    def noise_std(self) -> float:
        return self.noise_multiplier * self.max_distance

    @property
    def epsilon(self) -> float:
        """Classical, for any record."""
        account = ClassicalAccountant(delta=self.delta)
        account.step(noise_multiplier=self.noise_multiplier, sampling_rate=self.sampling_rate, count=self.steps)
        return account.epsilon()


def averaged(distances: Floats, mechanism: Mechanism) -> float:
    """Bayesian ε, distribution-free, for the path that was taken; distances (steps, records) of a sample."""
    spec = EstimateSpec(delta=mechanism.delta, estimator_failure_probability=mechanism.delta / 2)
    ratio = 1 / mechanism.noise_multiplier
    account = AveragedAccountant(spec, members=distances.shape[1], max_ratio=ratio)
    for step in distances:
        account.step(
            step,
            noise_std=mechanism.noise_std,
            sampling_rate=mechanism.sampling_rate,
            max_distance=mechanism.max_distance,
        )
    return min(account.epsilon(), mechanism.epsilon)


def as_printed(distances: Floats, mechanism: Mechanism) -> float:
    """The papers' accountant on the same path: Student t, Hölder over the steps, Chernoff. Rests on a normal law."""
    spec = BayesianSpec(
        orders=_orders(mechanism),
        delta=mechanism.delta,
        estimator_failure_probability=mechanism.delta / 2,
        max_steps=mechanism.steps,
        estimator="student-t",
        conversion="chernoff",
    )
    account = BayesianAccountant(spec)
    edges = mechanism.max_distance * np.arange(1, _BINS + 1) / _BINS
    for step in distances:
        # Rounded up to a few values, each of which is priced once.
        place = np.minimum(np.searchsorted(edges, step), _BINS - 1)
        there, counts = np.unique(edges[place], return_counts=True)
        account.step(
            there,
            counts=counts,
            noise_std=mechanism.noise_std,
            sampling_rate=mechanism.sampling_rate,
            max_distance=float(edges[-1]),
        )
    return account.epsilon()


@lru_cache(maxsize=32)
def _orders(mechanism: Mechanism) -> tuple[float, ...]:
    """λ around the one at which the worst case is least: from public numbers."""
    found = np.unique(np.round(np.geomspace(1, 2000, 120)))
    each = np.asarray(
        log_moment(found, 1.0, noise_std=mechanism.noise_multiplier, sampling_rate=mechanism.sampling_rate)
    )
    best = float(epsilon_from_moments(found, mechanism.steps * each, mechanism.delta)[1])
    return tuple(sorted({max(1.0, round(best * factor)) for factor in (0.25, 0.5, 1, 2, 4)}))


def spent(runs: list[Floats], mechanism: Mechanism) -> list[Spent]:
    """The three readings of a table's line; of the estimated ones the largest over the seeds' runs."""
    sample = runs[0].shape[1]
    bayesian = max(averaged(distances, mechanism) for distances in runs)
    printed = max(as_printed(distances, mechanism) for distances in runs)
    delta = mechanism.delta
    return [
        Spent("worst case", "instance", mechanism.epsilon, delta, "add-remove, loss distributions"),
        Spent("bayesian", "instance", bayesian, delta, f"averaged over records by betting, {sample} of them, γ = δ/2"),
        Spent("papers", "instance", printed if math.isfinite(printed) else None, delta, f"Student t, {sample} records"),
    ]
