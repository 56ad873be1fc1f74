"""How well numbers order records: areas, concordance and the Brier score, pair by pair."""

from __future__ import annotations

import numpy as np
import pytest

from private_learning.tasks.ranking import area, brier_at_end, concordance


def test_concordance_is_the_share_of_known_pairs_in_the_right_order() -> None:
    draw = np.random.default_rng(5)
    time, event = draw.integers(1, 12, 60) / 12, draw.random(60) < 0.6
    risk = np.round(draw.normal(size=60) - time, 1)
    right, pairs = 0.0, 0
    for i in range(60):
        for j in range(60):
            if event[i] and (time[i] < time[j] or (time[i] == time[j] and not event[j])):
                pairs += 1
                right += 1.0 if risk[i] > risk[j] else 0.5 if risk[i] == risk[j] else 0.0
    assert concordance(risk, time, event) == pytest.approx(right / pairs, rel=1e-12)
    assert concordance(risk, time, np.zeros(60, bool)) is None
    assert concordance(-time, time, np.ones(60, bool)) == 1.0


def test_brier_without_censoring_is_the_mean_square_and_weighs_censoring_out() -> None:
    draw = np.random.default_rng(6)
    time, event = draw.random(50), np.ones(50, bool)
    time[:20], event[:20] = 1.0, False
    survival = draw.random(50)
    alive = np.arange(50) < 20
    assert brier_at_end(survival, time, event, 1.0) == pytest.approx(np.mean((survival - alive) ** 2))
    # Four patients: at 0.5 one of the three left is censored, so those after it count 3/2 each.
    time, event = np.array([0.2, 0.5, 0.8, 1.0]), np.array([True, False, True, False])
    found = brier_at_end(np.full(4, 0.5), time, event, 1.0)
    assert found == pytest.approx((0.25 + 1.5 * 0.25 + 1.5 * 0.25) / 4)


def test_brier_comes_to_that_of_patients_who_are_not_censored() -> None:
    # The estimate's standard deviation here is about 0.0015: five of them are a false alarm once in 10⁶.
    draw = np.random.default_rng(8)
    dies, gone = draw.exponential(1.0, 40_000), draw.exponential(2.0, 40_000)
    survival = np.clip(0.4 + 0.2 * draw.normal(size=40_000), 0, 1)
    full = np.mean((survival - (dies > 1)) ** 2)
    time = np.minimum(np.minimum(dies, gone), 1.0)
    event = (dies <= gone) & (dies <= 1)
    assert brier_at_end(survival, time, event, 1.0) == pytest.approx(full, abs=0.0075)


def test_the_area_is_the_share_of_pairs_in_which_the_positive_is_above() -> None:
    draw = np.random.default_rng(4)
    score, positive = np.round(draw.normal(size=50), 1), draw.random(50) < 0.4
    pairs = [(a > b) + 0.5 * (a == b) for a in score[positive] for b in score[~positive]]
    assert area(score, positive) == pytest.approx(np.mean(pairs), rel=1e-12)
    assert area(positive.astype(float), positive) == 1.0
    assert area(np.zeros(50), positive) == 0.5


def test_pairs_are_counted_in_blocks_as_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(7)
    risk, time, event = draw.normal(size=40), draw.integers(1, 9, 40) / 9, draw.random(40) < 0.5
    whole = concordance(risk, time, event)
    monkeypatch.setattr("private_learning.tasks.ranking._BLOCK", 50)
    assert concordance(risk, time, event) == pytest.approx(whole, rel=1e-12)


def test_where_everybody_is_censored_before_a_death_there_is_no_brier_score() -> None:
    time, event = np.array([0.2, 0.3, 0.5]), np.array([False, False, True])
    assert brier_at_end(np.full(3, 0.5), time, event, 1.0) is not None
    last = np.array([0.2, 0.3]), np.array([False, False])
    assert brier_at_end(np.full(2, 0.5), *last, 1.0) == 0.0
