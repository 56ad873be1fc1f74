"""Every accountant behind one face, so that one suite of laws runs over all of them.

To put a new accountant under the laws, add a subject to SUBJECTS.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from accounting import (
    AveragedAccountant,
    BayesianAccountant,
    BayesianSpec,
    ClassicalAccountant,
    EstimateSpec,
    FilterSpec,
    Guarantee,
    IndividualFilter,
    Odometer,
    epsilon_from_moments,
)

DELTA = 1e-5
MAX_STEPS = 24
ACCOUNTING_SAMPLE = np.random.default_rng(21).beta(1, 4, 80)


@dataclass(frozen=True)
class Event:
    """One noised step on data whose clip norm is `scale`; the sampled norms are scaled with it."""

    noise: float = 2.0
    rate: float = 0.2
    scale: float = 1.0


@dataclass(frozen=True)
class Subject:
    """make: a fresh accountant. charge: one event, `count` times. bad: arguments that step() refuses by name."""

    name: str
    make: Callable[[], Any]
    charge: Callable[[Any, Event, int], None]
    epsilon: Callable[[Any], float]
    certificate: Callable[[Any], Guarantee] | None
    snapshot: Callable[[Any], object]
    good: dict[str, Any]
    bad: tuple[tuple[str, Any], ...]
    act: str = "step"


NUMBERS = (float("nan"), float("inf"), -1.0, -0.0, True, "1", None)


def _bayesian(estimator: str, composition: str, adversary: str, filtered: bool) -> Subject:
    def make() -> BayesianAccountant:
        return BayesianAccountant(
            BayesianSpec(
                orders=(1, 2, 4, 8.5, 16),
                delta=DELTA,
                estimator_failure_probability=DELTA / 10,
                max_steps=MAX_STEPS,
                estimator=estimator,  # type: ignore[arg-type]
                composition=composition,  # type: ignore[arg-type]
                adversary=adversary,  # type: ignore[arg-type]
                filter_order=4.5 if filtered else None,
                checkpoints=4 if composition == "running" else None,
            )
        )

    def charge(account: BayesianAccountant, event: Event, count: int) -> None:
        for _ in range(count):
            account.step(
                ACCOUNTING_SAMPLE * event.scale,
                noise_std=event.noise,
                sampling_rate=event.rate,
                max_distance=event.scale,
            )

    steps = {"distances": ACCOUNTING_SAMPLE, "noise_std": 2.0, "sampling_rate": 0.2, "max_distance": 1.0}
    bad: list[tuple[str, Any]] = [
        (name, value) for name in ("noise_std", "sampling_rate", "max_distance") for value in NUMBERS
    ]
    bad += [("noise_std", 0.0), ("sampling_rate", 1.5), ("max_distance", 0.01)]
    bad += [("distances", v) for v in ([], [0.1, float("nan")], [-0.1, 0.2], [-0.0, 0.1], [0.1, 1.1], [[0.1], [0.2]])]
    bad += [("counts", [1.0, 2.0]), ("count_noise", -1.0), ("count_noise", 1.0)]
    return Subject(
        f"{composition}-{estimator}-{adversary}{'-filter' if filtered else ''}",
        make,
        charge,
        lambda account: account.epsilon(),
        lambda account: account.certificate(),
        lambda account: account.state(),
        steps,
        tuple(bad),
    )


def _classical(**settings: Any) -> Subject:
    def charge(account: ClassicalAccountant, event: Event, count: int) -> None:
        account.step(noise_multiplier=event.noise / event.scale, sampling_rate=event.rate, count=count)

    bad = [(name, value) for name in ("noise_multiplier", "sampling_rate") for value in NUMBERS]
    bad += [("noise_multiplier", 0.0), ("sampling_rate", 1.5), ("count", -1), ("count", 1.5), ("count", True)]
    return Subject(
        "classical-" + "-".join(str(value) for value in settings.values()),
        lambda: ClassicalAccountant(delta=DELTA, **settings),
        charge,
        lambda account: account.epsilon(),
        lambda account: account.certificate(),
        lambda account: account.state(),
        {"noise_multiplier": 2.0, "sampling_rate": 0.2, "count": 1},
        tuple(bad),
    )


def _odometer() -> Subject:
    """Shown once, at the end."""
    classical = _classical(method="rdp", order=4.0)
    return Subject(
        "odometer",
        lambda: Odometer(delta=DELTA, order=4.0),
        classical.charge,
        lambda account: Odometer.restore(account.state()).show(),
        None,
        lambda account: account.state(),
        classical.good,
        classical.bad,
    )


def _individual() -> Subject:
    """Read at the record that has spent most; nobody reaches a bound this far away."""

    def charge(account: IndividualFilter, event: Event, count: int) -> None:
        for _ in range(count):
            account.admit(
                ACCOUNTING_SAMPLE * event.scale,
                noise_std=event.noise,
                sampling_rate=event.rate,
                max_distance=event.scale,
            )

    bad = [(name, value) for name in ("noise_std", "sampling_rate") for value in NUMBERS]
    bad += [("max_distance", value) for value in NUMBERS if value is not None]
    bad += [("distances", value) for value in ([0.1] * 79, [float("nan")] * 80, [-0.1] * 80, [1.1] * 80)]
    bad += [("measured", [True] * 79)]
    return Subject(
        "individual",
        lambda: IndividualFilter(
            FilterSpec(order=4.0, delta=DELTA, limit_epsilon=1000.0), members=ACCOUNTING_SAMPLE.size
        ),
        charge,
        lambda account: epsilon_from_moments(4.0, max(account.state()["spent"]), DELTA)[0],
        None,
        lambda account: account.state(),
        {"distances": ACCOUNTING_SAMPLE, "noise_std": 2.0, "sampling_rate": 0.2, "max_distance": 1.0},
        tuple(bad),
        "admit",
    )


def _averaged() -> Subject:
    accounting_sample = ACCOUNTING_SAMPLE[:12]

    def charge(account: AveragedAccountant, event: Event, count: int) -> None:
        for _ in range(count):
            account.step(
                accounting_sample * event.scale,
                noise_std=event.noise,
                sampling_rate=event.rate,
                max_distance=event.scale,
            )

    bad = [(name, value) for name in ("noise_std", "sampling_rate", "max_distance") for value in NUMBERS]
    bad += [("max_distance", 0.01), ("max_distance", 3.0)]
    bad += [("distances", value) for value in ([0.1] * 11, [float("nan")] * 12, [-0.1] * 12, [1.1] * 12)]
    return Subject(
        "averaged",
        lambda: AveragedAccountant(
            EstimateSpec(delta=DELTA, estimator_failure_probability=DELTA / 10), members=12, max_ratio=1.0, bins=16
        ),
        charge,
        lambda account: account.epsilon(),
        lambda account: account.certificate(),
        lambda account: {rate: (kind.counts.tolist(), kind.steps) for rate, kind in account._kinds.items()},
        {"distances": accounting_sample, "noise_std": 2.0, "sampling_rate": 0.2, "max_distance": 1.0},
        tuple(bad),
    )


BAYESIAN = [
    _bayesian(estimator, composition, adversary, filtered=composition == "running" and adversary == "adaptive")
    for estimator, composition, adversary in itertools.product(
        ("student-t", "betting", "band", "bernstein"), ("holder", "running"), ("path", "adaptive")
    )
]
CLASSICAL = [_classical(method="pld"), _classical(method="rdp"), _classical(method="rdp", order=4.0)]
SUBJECTS = [*BAYESIAN, *CLASSICAL, _odometer(), _individual(), _averaged()]
