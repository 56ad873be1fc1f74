"""ε of a line against closed forms, and the instance level against what a record really moves."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from research.tables.federated import FederatedSettings
from research.tables.lines import LINES, Line, noise_for
from research.tables.readings import NoisedRelease, epsilon_of_records, multiplier_of_records, readings
from research.tables.result import EpsilonReading

DRAW = np.random.default_rng(8)
SETTINGS = FederatedSettings(
    kept=64, rounds=6, clip=0.2, last_clip=0.05, learning_rate=80.0, momentum=0.3, record_clip=0.4
)
RELEASE = NoisedRelease(SETTINGS, 3.0, each=600, copies=10, delta=1e-3, instance_delta=1e-5)
NORMS = DRAW.uniform(0.01, 0.3, (6, 200))


def gaussian_epsilon(ratio: float, delta: float) -> float:
    """Balle & Wang 2018, Theorem 8: one Gaussian mechanism, ratio of distance to noise."""
    law = NormalDist().cdf

    def excess(epsilon: float) -> float:
        return law(ratio / 2 - epsilon / ratio) - math.exp(epsilon) * law(-ratio / 2 - epsilon / ratio) - delta

    low, high = 0.0, 200.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high


def one(found: list[EpsilonReading], kind: str, level: str) -> float:
    epsilon = spent(found, kind, level).epsilon
    assert epsilon is not None
    return epsilon


def spent(found: list[EpsilonReading], kind: str, level: str) -> EpsilonReading:
    return next(each for each in found if (each.kind, each.level) == (kind, level))


@pytest.mark.parametrize("line", LINES, ids=[line.key for line in LINES])
def test_a_lines_noise_keeps_its_epsilon_by_the_closed_form_and_wastes_nothing(line: Line) -> None:
    epsilon = gaussian_epsilon(math.sqrt(8) / noise_for(line, 8), line.delta)
    assert 0.995 * line.epsilon < epsilon <= line.epsilon


def test_the_worst_case_is_the_closed_form_at_both_levels() -> None:
    found = readings(RELEASE, [NORMS])
    client = gaussian_epsilon(math.sqrt(6) / 3.0, 1e-3)
    assert client <= one(found, "worst case", "client") <= client * 1.001
    # One record moves its client's mean by 0.4/600; noise is 3 clip norms, which fall from 0.2 to 0.05.
    squares = sum((0.4 / 600 / (3 * 0.2 * 0.25 ** (place / 5))) ** 2 for place in range(6))
    record = gaussian_epsilon(math.sqrt(squares), 1e-5)
    # Above it by the grid and by what sums of float32 may lose: a few per cent.
    assert record <= one(found, "worst case", "instance") <= record * 1.2
    group = [each.epsilon for each in found if each.kind == "worst case" and each.level == "instance"][1]
    assert group is not None
    assert gaussian_epsilon(10 * math.sqrt(squares), 1e-5) <= group


def test_ten_copies_cost_as_ten_times_the_distance() -> None:
    assert multiplier_of_records(RELEASE, 2, 10) == pytest.approx(multiplier_of_records(RELEASE, 2, 1) / 10)
    assert epsilon_of_records(RELEASE, 10) > 10 * epsilon_of_records(RELEASE)


def test_without_a_record_clip_the_longest_gradient_counts() -> None:
    unclipped = FederatedSettings(64, 6, 0.2, 0.05, 80.0, 0.3)
    free = NoisedRelease(unclipped, 3.0, 600, 1, 1e-3, 1e-5)
    assert multiplier_of_records(free, 0, 1) == pytest.approx(0.2 * 3 * 600 / math.sqrt(2), rel=0.1)
    assert multiplier_of_records(free, 0, 1) <= 0.2 * 3 * 600 / math.sqrt(2)


def test_no_reading_that_estimates_is_above_the_worst_case_or_below_its_floor() -> None:
    found = readings(RELEASE, [NORMS, NORMS / 50])
    near = readings(RELEASE, [NORMS / 1000])
    worst = one(found, "worst case", "client")
    assert one(found, "bayesian", "client") <= worst
    assert one(near, "bayesian", "client") < one(found, "bayesian", "client")
    floor = float(spent(near, "bayesian", "client").how.rsplit(" ", 1)[1])
    assert one(near, "bayesian", "client") >= floor


def test_the_individual_reading_is_renyis_of_a_clients_own_norms_and_never_above_the_worst_case() -> None:
    at_clip = one(readings(RELEASE, [np.full((6, 200), 1.0)]), "individual", "client")
    assert at_clip == one(readings(RELEASE, [NORMS]), "worst case", "client")
    # Half the last clip norm: distances fall short of the sensitivity by the clip's schedule.
    small = one(readings(RELEASE, [np.full((6, 200), 0.025)]), "individual", "client")
    ratio = math.sqrt(sum((0.025 / (3 * 0.2 * 0.25 ** (place / 5))) ** 2 for place in range(6)))
    exact = gaussian_epsilon(ratio, 1e-3)
    assert exact < small < at_clip


def test_the_dearest_seed_is_told() -> None:
    both, dear = (readings(RELEASE, runs) for runs in ([NORMS / 50, NORMS], [NORMS]))
    for kind in ("papers", "bayesian", "individual"):
        assert one(both, kind, "client") == one(dear, kind, "client")
