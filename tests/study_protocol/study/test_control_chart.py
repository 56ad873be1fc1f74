"""The control chart: its limits keep the stated false alarms, and its statistics are those of a hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from study_protocol.queries.evaluation.binary import AREA
from study_protocol.queries.evaluation.calibration import IN_THE_LARGE, SLOPE
from study_protocol.study.control_chart import (
    MEASURES,
    NET_BENEFIT,
    SHARES,
    WindowFigure,
    alarms_of,
    figures_of,
    limit_of,
    rule_in_words,
    statistics_of,
    threshold_of,
    untold,
    words_of,
)
from tests.factories.monitored_studies import monitoring, window_answer


def figures(*slopes: tuple[float, float]) -> dict[int, dict[str, WindowFigure]]:
    return {
        number: {SLOPE: WindowFigure(value, error, value - 2 * error, value + 2 * error)}
        for number, (value, error) in enumerate(slopes, 1)
    }


@pytest.mark.parametrize(("days", "rate"), [(90, 0.05), (30, 0.1), (365, 0.01), (1, 0.5)])
def test_the_limit_keeps_the_false_alarms_of_a_year(days: int, rate: float) -> None:
    chosen = monitoring(every_days=days, false_alarms=rate)
    count = math.ceil(365.25 / days)
    alone = [1 - (2 * norm.cdf(limit_of(chosen, measure)) - 1) ** count for measure in SHARES]
    assert alone == pytest.approx([0.9 * rate, 0.1 * rate], rel=1e-9)
    assert sum(SHARES.values()) == 1.0


def test_statistics_of_overlapping_pairs_alarm_less_often_than_the_bound() -> None:
    """By the law itself: four means of two of five equal windows, whose neighbours correlate by a half."""
    limit = limit_of(monitoring(), SLOPE)
    covariance = np.eye(4) + 0.5 * (np.eye(4, k=1) + np.eye(4, k=-1))
    law: Any = multivariate_normal(np.zeros(4), covariance)  # pyright: ignore[reportArgumentType]
    inside = law.cdf(np.full(4, limit), lower_limit=np.full(4, -limit))
    assert 0.03 < 1 - inside <= 0.045


def test_the_statistic_is_the_mean_of_two_windows_by_their_precision() -> None:
    by_hand = ((0.9 - 1) / 0.01 + (0.8 - 1) / 0.04) / (1 / 0.01 + 1 / 0.04)
    error = 1 / math.sqrt(1 / 0.01 + 1 / 0.04)
    found = statistics_of(monitoring(), figures((0.9, 0.1), (0.8, 0.2), (1.3, 0.2)), SLOPE)
    assert found == pytest.approx({1: -1.0, 2: by_hand / error, 3: 0.05 / math.sqrt(0.02)})


def test_the_first_window_as_reference_adds_its_own_error() -> None:
    rule = monitoring(reference="first-window")
    found = statistics_of(rule, figures((0.8, 0.1), (0.8, 0.2), (1.0, 0.2)), SLOPE)
    assert found == pytest.approx({2: 0.0, 3: 0.1 / math.sqrt(0.02 + 0.01)})
    # Nothing to hold them against.
    later = {number: figure for number, figure in figures((0.8, 0.1), (0.9, 0.1)).items() if number == 2}
    assert statistics_of(rule, later, SLOPE) == {}


def test_windows_without_an_estimate_are_passed_over() -> None:
    windows = figures((0.9, 0.1), (0.0, 0.1), (0.9, 0.1))
    windows[2] = {SLOPE: WindowFigure(None, None, None, None)}
    assert statistics_of(monitoring(), windows, SLOPE) == pytest.approx({1: -1.0, 3: -math.sqrt(2)})
    # That is no sign of a model that is right, as where it predicts 0 for everybody.
    assert untold(windows | {5: {}}) == [2, 5]


def test_an_alarm_says_which_window_and_how_far() -> None:
    alarms = alarms_of(monitoring(), figures((1.0, 0.1), (0.5, 0.1)))
    assert [(alarm.measure, alarm.window) for alarm in alarms] == [(SLOPE, 2)]
    assert "window 2: the calibration slope is 3.54 standard errors below its reference" in alarms[0].in_words
    assert alarms_of(monitoring(), figures((1.0, 0.1), (0.9, 0.1))) == []
    assert "at most 5 % a year" in rule_in_words(monitoring())


def test_all_four_measures_are_read_off_an_answer() -> None:
    chosen = monitoring()
    assert threshold_of(chosen) == 0.22
    found = figures_of(window_answer(chosen, patients=4000, slope=1.0), threshold_of(chosen))
    assert set(found) == set(MEASURES)
    assert found[SLOPE].estimate == pytest.approx(1.0, abs=0.3)
    assert found[IN_THE_LARGE].estimate == pytest.approx(0.0, abs=0.3)
    assert found[AREA].estimate == pytest.approx(0.75, abs=0.1)
    assert found[NET_BENEFIT].low is not None
    words: list[Any] = words_of(found)
    assert len(words) == len(MEASURES)
    assert all(" to " in word for word in words)
    assert words_of({}) == ["–"] * len(MEASURES)
