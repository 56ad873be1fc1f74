"""Every reading of ε of one run: worst case at both levels, the papers' formula, Bayesian, individual."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting import (
    BayesianAccountant,
    BayesianSpec,
    ClassicalAccountant,
    GaussianEvent,
    Level,
    epsilon_from_moments,
    log_moment,
    prospect,
)
from research.tables.federated import FederatedSettings
from research.tables.result import EpsilonReading

Doubles = NDArray[np.float64]

# Of the papers' δ, what covers the estimate.
FAILURE_SHARE = 0.1
# No gradient of the cross-entropy of a record of norm 1 is longer.
LONGEST_GRADIENT = math.sqrt(2)
# Relative to the sum of what is added: the most that adding so many float32 numbers in any order loses, each way.
_FLOAT32 = 2.0**-24


@dataclass(frozen=True)
class NoisedRelease:
    """One run, in public terms: who is protected by which noise.

    each    records of a client, the public denominator of its mean
    copies  how many clients have the same image
    """

    settings: FederatedSettings
    noise_multiplier: float
    each: int
    copies: int
    delta: float
    instance_delta: float


def readings(release: NoisedRelease, runs: Sequence[Doubles]) -> list[EpsilonReading]:
    """All of them; `runs` holds the norms (rounds, clients) of every seed, the dearest of which is told."""
    multiplier, settings = release.noise_multiplier, release.settings
    worst = ClassicalAccountant(delta=release.delta, level=Level.CLIENT)
    worst.step(noise_multiplier=multiplier, sampling_rate=1.0, count=settings.rounds)
    distances = [_distances(release, norms) for norms in runs]
    clients, gamma = runs[0].shape[1], release.delta * FAILURE_SHARE
    fewest = prospect(
        samples=clients,
        estimator_failure_probability=gamma,
        delta=release.delta,
        noise_multiplier=multiplier,
        sampling_rate=1.0,
        steps=settings.rounds,
        adaptive=False,
        orders=np.geomspace(0.1, 512, 200),
    ).best
    bayesian = max(_estimated(release, each, "betting") for each in distances)
    return [
        EpsilonReading(
            "worst case", "client", worst.epsilon(), release.delta, "add or remove a client, loss distributions"
        ),
        *_of_records(release),
        EpsilonReading(
            "papers",
            "client",
            _finite(max(_estimated(release, each, "student-t") for each in distances)),
            release.delta,
            f"Student's t over {clients:,} clients' norms, Hölder over the rounds, Chernoff, γ = δ/10",
        ),
        EpsilonReading(
            "bayesian",
            "client",
            min(bayesian, worst.epsilon()),
            release.delta,
            f"betting, running sums of {clients:,} clients, adversary path, γ = δ/10, never above the worst case. "
            f"No estimate of log-moments from so many clients is below {math.floor(1000 * fewest) / 1000:.3g}",
        ),
        EpsilonReading(
            "individual",
            "client",
            min(worst.epsilon(), max(_individual(release, each) for each in distances)),
            release.delta,
            "99 of 100 clients stay below, by their own norms and Rényi at one order fixed beforehand, never above "
            "the worst case",
        ),
    ]


def multiplier_of_records(release: NoisedRelease, place: int, group: int) -> float:
    """The round's noise over the most that `group` records at as many clients move the sum.

    The clip is a projection onto a ball, 1-Lipschitz: what a record adds to its client's mean, at most c/n, is no more
    behind the clip. Rounding to the grid, and adding up float32 numbers, may add to that.
    """
    mechanism = release.settings.mechanism(place, release.noise_multiplier)
    longest = min(LONGEST_GRADIENT, release.settings.record_clip or LONGEST_GRADIENT)
    sums = 2 * longest * release.each * _FLOAT32 * (1 + 1e-3)
    moved = (longest / release.each) * (1 + 1e-6) + sums + 2 * mechanism.rounding
    return mechanism.std / (group * moved)


def epsilon_of_records(release: NoisedRelease, group: int = 1) -> float:
    """In the worst case, of one record or of a group of records at as many clients, at `instance_delta`."""
    account = ClassicalAccountant(delta=release.instance_delta)
    for place in range(release.settings.rounds):
        account.compose(GaussianEvent(multiplier_of_records(release, place, group)))
    return account.epsilon()


def _of_records(release: NoisedRelease) -> list[EpsilonReading]:
    """A record's ε, and that of all copies of an image."""
    readings: list[EpsilonReading] = []
    for group in sorted({1, release.copies}):
        protected = "a record" if group == 1 else f"an image with its {group} copies at as many clients"
        statement = f"add or remove {protected}, behind the client's clip, loss distributions"
        readings.append(
            EpsilonReading(
                "worst case", "instance", epsilon_of_records(release, group), release.instance_delta, statement
            )
        )
    return readings


def _distances(release: NoisedRelease, norms: Doubles) -> Doubles:
    """(rounds, clients): clipped norms and rounding, as shares of the sensitivity, at most 1."""
    settings = release.settings
    mechanisms = [settings.mechanism(place, release.noise_multiplier) for place in range(settings.rounds)]
    clips = np.array([[each.clip_norm, each.rounding, each.sensitivity] for each in mechanisms]).T[:, :, None]
    return np.minimum(1.0, (np.minimum(norms, clips[0]) + clips[1]) / clips[2] * (1 + 1e-9))


def _orders(release: NoisedRelease) -> tuple[float, ...]:
    """Around the order at which the worst case is least. Few, because each takes its share of γ."""
    best = _best_order(release)
    return tuple(best * factor for factor in (0.5, 1.0, 2.0))


def _best_order(release: NoisedRelease) -> float:
    orders = np.geomspace(0.1, 512, 400)
    moments = release.settings.rounds * log_moment(orders, 1.0, noise_std=release.noise_multiplier, sampling_rate=1.0)
    return float(epsilon_from_moments(orders, moments, release.delta)[1])


def _estimated(release: NoisedRelease, distances: Doubles, estimator: str) -> float:
    betting = estimator == "betting"
    spec = BayesianSpec(
        orders=_orders(release),
        delta=release.delta,
        estimator_failure_probability=release.delta * FAILURE_SHARE,
        max_steps=release.settings.rounds,
        estimator="betting" if betting else "student-t",
        composition="running" if betting else "holder",
        conversion="improved" if betting else "chernoff",
        checkpoints=[release.settings.rounds] if betting else None,
        cap=betting,
        level=Level.CLIENT,
    )
    account = BayesianAccountant(spec)
    for each in distances:
        account.step(each, noise_std=release.noise_multiplier, sampling_rate=1.0, max_distance=1.0)
    return account.epsilon()


def _individual(release: NoisedRelease, distances: Doubles) -> float:
    order = _best_order(release)
    sums = np.zeros(distances.shape[1])
    for each in distances:
        sums += log_moment(order, each, noise_std=release.noise_multiplier, sampling_rate=1.0)
    return epsilon_from_moments([order], [float(np.quantile(sums, 0.99, method="higher"))], release.delta)[0]


def _finite(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None
