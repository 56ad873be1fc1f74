"""The interval of R² for one predictor is the test of a correlation in Fisher's scale."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from study_protocol.queries.explained import interval_of_explained

DRAWS = 20_000


def interval(correlation: float, deviation: float) -> tuple[float, float]:
    """Of one predictor with variance 1: draws whose Fisher-transformed correlations are normal around the estimate."""
    drawn = np.arctanh(correlation) + np.random.default_rng(4).normal(0, deviation, DRAWS)
    slopes = np.concatenate([[correlation], np.tanh(drawn)])[:, None]
    return interval_of_explained(slopes, slopes[:, 0] ** 2, np.eye(1))


def end(correlation: float, deviation: float, share: float) -> float:
    """The R² under which an estimate would be shorter with this probability: |λ + deviation·z| ≤ atanh r."""
    length = np.arctanh(correlation)

    def excess(candidate: float) -> float:
        return norm.cdf((length - candidate) / deviation) - norm.cdf((-length - candidate) / deviation) - share

    return float(np.tanh(brentq(excess, 0, 5)) ** 2)


@pytest.mark.parametrize(("correlation", "deviation"), [(0.6, 0.1), (0.3, 0.05)])
def test_its_ends_are_those_of_the_normal_law(correlation: float, deviation: float) -> None:
    """The grid has 400 places and the draws give quantiles to about 0.02 deviations."""
    low, high = interval(correlation, deviation)
    assert low == pytest.approx(end(correlation, deviation, 0.975), abs=0.02)
    assert high == pytest.approx(end(correlation, deviation, 0.025), abs=0.02)
    assert low < correlation**2 < high


def test_what_chance_explains_begins_at_nothing() -> None:
    low, high = interval(0.1, 0.1)
    assert low == 0
    assert high == pytest.approx(end(0.1, 0.1, 0.025), abs=0.02)


def test_everything_or_nothing_explained_has_finite_ends() -> None:
    slopes = np.zeros((101, 2))
    assert interval_of_explained(slopes, np.zeros(101), np.eye(2)) == (0, 0)
    ones = np.ones((101, 1))
    low, high = interval_of_explained(ones, np.full(101, 1.2), np.eye(1))
    assert 0.999 < low <= high <= 1
