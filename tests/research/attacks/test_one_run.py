"""The statistics of the audit: exact where δ is 0, quiet on honest scores, loud on clear ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from research.attacks import one_run

CANARIES, SIGNAL = 20_000, 0.5


def test_the_bound_without_delta_is_a_coin_s() -> None:
    """Under pure ε every guess is right with probability at most e^ε/(1 + e^ε) (Theorem 5.2 with δ = 0)."""
    for right in (300, 330, 400):
        found = one_run.p_value(0, 600, right, 0.2)
        assert found == pytest.approx(stats.binom.sf(right - 1, 600, math.exp(0.2) / (1 + math.exp(0.2))))
    assert one_run.p_value(20_000, 600, 500, 0.2) > one_run.p_value(0, 600, 500, 0.2)
    assert one_run.p_value(20_000, 600, 100, 0.2) == 1.0


def test_an_honest_score_raises_no_alarm_and_a_clear_one_does() -> None:
    draw, alarms = np.random.default_rng(2), 0
    inside = draw.random(CANARIES) < 0.5
    for signal, caught in ((SIGNAL, False), (2 * SIGNAL, True)):
        guesses, right = one_run.guessed(signal * inside + draw.normal(size=CANARIES), inside)
        alarms += (one_run.p_value(CANARIES, guesses, right, 1.99) < one_run.ALARM_ONE_RUN) == caught
    assert alarms == 2


def test_neighbouring_differences_of_noise_have_the_law_that_is_tested() -> None:
    draw = np.random.default_rng(3)
    found = [one_run.too_small(np.diff(draw.normal(size=(3, 500)), axis=0), math.sqrt(2)) for _ in range(300)]
    assert stats.kstest(found, "uniform").pvalue > 1e-4
    assert one_run.too_small(np.zeros((2, 500)), 1.0) == 0.0
