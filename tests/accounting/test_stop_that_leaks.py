"""A stop computed from raw costs betrays one record outright; one computed from public or noised numbers does not."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from accounting import (
    BayesianAccountant,
    BayesianSpec,
    ClassicalAccountant,
    FilterSpec,
    IndividualFilter,
    epsilon_from_moments,
)
from accounting.estimation.histograms import release_charge
from accounting.values import FloatArray

ROUNDS, LIMIT, STD, RATE = 50, 2.0, 4.0, 0.1
TYPICAL = np.full(200, 0.02)
WITH_OUTLIER = np.append(TYPICAL, 1.0)


def rounds_released(distances: FloatArray, fits: Callable[[int, FloatArray], bool]) -> int:
    """The number that everybody sees."""
    released = 0
    while released < ROUNDS and fits(released, distances):
        released += 1
    return released


def raw_rule(rounds: int, distances: FloatArray) -> bool:
    """Go on while what this round cost, from the records' own distances, fits the limit."""
    account = BayesianAccountant(
        BayesianSpec(
            orders=[8.0],
            delta=1e-4,
            estimator_failure_probability=1e-5,
            max_steps=ROUNDS,
            estimator="student-t",
            cap=False,
        )
    )
    spread = distances * np.linspace(1.0, 1.01, distances.size)
    for _ in range(rounds + 1):
        account.step(spread, noise_std=STD / 4, sampling_rate=RATE)
    return account.epsilon() <= LIMIT


def public_rule(rounds: int, distances: FloatArray) -> bool:
    """Go on while the worst case fits; the distances are not looked at."""
    account = ClassicalAccountant(delta=1e-4, method="rdp", order=8.0)
    return account.epsilon_after(noise_multiplier=STD, sampling_rate=RATE, count=rounds + 1) <= LIMIT


def test_the_raw_rule_tells_the_outlier_with_certainty_and_the_public_rule_not_at_all() -> None:
    with_outlier, without = (rounds_released(sample, raw_rule) for sample in (WITH_OUTLIER, TYPICAL))
    # Seeing 50 rounds has probability 1 without the record and 0 with it: no ε allows that at any δ < 1.
    assert (with_outlier, without) == (0, ROUNDS)
    assert rounds_released(WITH_OUTLIER, public_rule) == rounds_released(TYPICAL, public_rule) > 0


def test_excluding_a_record_in_silence_shows_nothing() -> None:
    """The individual filter acts on raw norms, yet every released number and the certificate are the same."""
    seen = []
    for sample in (WITH_OUTLIER, np.append(TYPICAL, 0.02)):
        accounting_sample = IndividualFilter(
            FilterSpec(order=8.0, delta=1e-4, limit_epsilon=LIMIT), members=sample.size
        )
        released = 0
        for _ in range(ROUNDS):
            accounting_sample.admit(sample, noise_std=STD, sampling_rate=1.0)
            released += 1
        seen.append((released, accounting_sample.certificate()))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("z", [2.0, 5.0])
def test_a_threshold_on_a_noised_count_obeys_its_charge(z: float) -> None:
    """Any stop at "count above t" is a set of outcomes: exact probabilities against the charged (ε, δ), both ways."""
    delta, orders = 1e-5, np.geomspace(0.5, 200, 80)
    epsilon = epsilon_from_moments(orders, release_charge(orders, noise_std=z), delta)[0]
    support = np.arange(-40 * int(z), 40 * int(z) + 2)
    present, absent = (np.exp(-((support - shift) ** 2) / (2 * z**2)) for shift in (1, 0))
    above = [np.cumsum((mass / mass.sum())[::-1])[::-1] for mass in (present, absent)]
    below = [1 - tail for tail in above]
    for p, q in ((above[0], above[1]), (below[1], below[0])):
        assert (p <= math.exp(epsilon) * q + delta + 1e-15).all()
    # The same threshold on the raw count is certain.
    assert epsilon < 5
