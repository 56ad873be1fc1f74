"""Every reading of one run's ε, from the norms of a sample of records at every step."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accounting import (
    AveragedAccountant,
    BayesianAccountant,
    BayesianSpec,
    ClassicalAccountant,
    EstimateSpec,
)
from research.tables.result import EpsilonReading

Floats = npt.NDArray[np.float64]
_BINS = 1024
# λ that the thesis tries (figure 5.4).
_ORDERS = tuple(2.0**k for k in range(11))


@dataclass(frozen=True)
class NoisedSteps:
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


def averaged(distances: Floats, mechanism: NoisedSteps) -> float:
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


def as_printed(distances: Floats, mechanism: NoisedSteps) -> float:
    """The papers' accountant on the same path: Student t, Hölder over the steps, Chernoff. Rests on a normal law."""
    spec = BayesianSpec(
        orders=_ORDERS,
        delta=mechanism.delta,
        estimator_failure_probability=mechanism.delta / 2,
        max_steps=mechanism.steps,
        estimator="student-t",
        conversion="chernoff",
    )
    account = BayesianAccountant(spec)
    # A grid for the whole run, so that what many share is priced once: distances are rounded up.
    edges = mechanism.max_distance * np.geomspace(2.0**-16, 1, _BINS)
    for step in distances:
        place = np.minimum(np.searchsorted(edges, step), _BINS - 1)
        values, counts = np.unique(edges[place], return_counts=True)
        account.step(
            values,
            counts=counts.astype(np.float64),
            noise_std=mechanism.noise_std,
            sampling_rate=mechanism.sampling_rate,
            max_distance=float(edges[-1]),
        )
    return account.epsilon()


def spent(runs: list[Floats], mechanism: NoisedSteps) -> list[EpsilonReading]:
    """The three readings of a table's line; of the estimated ones the largest over the seeds' runs."""
    sample = runs[0].shape[1]
    bayesian = max(averaged(distances, mechanism) for distances in runs)
    printed = max(as_printed(distances, mechanism) for distances in runs)
    delta = mechanism.delta
    return [
        EpsilonReading("worst case", "instance", mechanism.epsilon, delta, "add-remove, loss distributions"),
        EpsilonReading(
            "bayesian", "instance", bayesian, delta, f"averaged over records by betting, {sample} of them, γ = δ/2"
        ),
        EpsilonReading(
            "papers", "instance", printed if math.isfinite(printed) else None, delta, f"Student t, {sample} records"
        ),
    ]
