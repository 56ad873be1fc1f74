"""Settings from public numbers: what the one number means, and which way everything moves with it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from study_protocol.study import suggestion
from study_protocol.study.suggestion import (
    PublicNumbers,
    additive_learning_rate,
    forecast_accuracy,
    learning_rate,
    offers_curves,
    relative_noise,
)

NUMBERS = PublicNumbers(hospitals=4, patients=120.0, largest=200.0, parameters=11)


@pytest.mark.parametrize("rate", [1.0, 0.25])
def test_the_relative_noise_is_its_length_beside_the_longest_way_of_the_data(rate: float) -> None:
    multiplier, rounds, clip, draws = 12.0, 30, 0.7, 4000
    random = np.random.default_rng(1)
    # Every round adds one noise of each hospital to the sum: of all, 4 · 30 in each of 11 coordinates.
    noise = random.normal(scale=multiplier * clip * math.sqrt(4 * rounds), size=(draws, 11))
    longest = rounds * rate * 480 * clip
    measured = math.sqrt(np.mean(np.square(noise).sum(axis=1))) / longest
    # The mean of 44,000 squares is off by 0.7 %, its root by 0.34 %: 2 % is six deviations.
    assert relative_noise(NUMBERS, multiplier, rounds, rate) == pytest.approx(measured, rel=0.02)


def test_more_noise_means_shorter_steps_and_a_worse_forecast() -> None:
    noises = np.geomspace(1e-4, 2.0, 60)
    rates = [learning_rate(noise, 100) for noise in noises]
    lost = [forecast_accuracy(NUMBERS, noise).lost for noise in noises]
    assert rates == sorted(rates, reverse=True)
    assert lost == sorted(lost)
    # A step of a larger clip norm is as long with a smaller rate.
    assert learning_rate(0.05, 100, clip_norm=1.0) == pytest.approx(
        learning_rate(0.05, 100, clip_norm=0.5) / 2, rel=0.05
    )
    assert max(rates) * suggestion.CLIP_NORM == suggestion.LONGEST_STEP
    assert all(0 <= share <= 1 for share in lost)


@pytest.mark.parametrize("classes", [2, 10])
def test_nobody_is_expected_to_do_worse_than_to_guess(classes: int) -> None:
    found = forecast_accuracy(PublicNumbers(2, 1.0, 1.0, 2, classes=classes), 100.0)
    assert found.lost == found.lost_at_most == found.if_parted == 1 - 1 / classes
    assert found.no_better_than_guessing
    assert not forecast_accuracy(NUMBERS, 0.03).no_better_than_guessing


def test_a_forecast_of_many_classes_is_worse() -> None:
    ten = PublicNumbers(hospitals=4, patients=120.0, largest=200.0, parameters=11, classes=10)
    two, many = forecast_accuracy(NUMBERS, 0.05), forecast_accuracy(ten, 0.05)
    constant = suggestion.LOST_FLOOR + suggestion.LOST_BY_RANGES
    by_noise = (many.lost - constant) / (two.lost - constant)
    assert by_noise == pytest.approx(math.sqrt(5))


@pytest.mark.parametrize(
    ("noise", "largest", "commonest", "alone", "majority"),
    [
        (0.11, 200, None, True, False),
        (0.005, 30, None, False, False),
        (0.11, 200, 0.92, True, True),
        (0.005, 30, 0.5, False, False),
    ],
    ids=["much noise", "little noise", "a rare outcome", "an even outcome"],
)
def test_where_a_study_may_be_of_no_use_it_is_said(
    noise: float, largest: int, commonest: float | None, alone: bool, majority: bool
) -> None:
    numbers = PublicNumbers(4, 30.0, float(largest), 11, commonest=commonest)
    found = forecast_accuracy(numbers, noise)
    assert found.lost <= found.lost_at_most
    assert (found.may_be_below_alone, found.may_be_below_commonest) == (alone, majority)


def test_columns_that_are_described_better_are_forecast_better() -> None:
    ranges, typical = (forecast_accuracy(replace(NUMBERS, ranges=share), 0.03) for share in (1.0, 0.0))
    assert typical.lost < ranges.lost
    assert typical.lost_at_most < ranges.lost_at_most
    assert (ranges.doubts, typical.doubts) == (("ranges",), ())


@pytest.mark.parametrize(
    ("changes", "noise", "doubts"),
    [
        ({}, 0.03, ()),
        ({"ranges": 0.5}, 0.03, ("ranges",)),
        ({"classes": 3}, 0.03, ("classes",)),
        ({}, 0.2, ("noise",)),
    ],
)
def test_a_forecast_says_where_it_is_not_sure(changes: dict[str, Any], noise: float, doubts: tuple[str, ...]) -> None:
    found = forecast_accuracy(replace(NUMBERS, **({"ranges": 0.0} | changes)), noise)
    assert found.doubts == doubts


def test_an_additive_model_steps_by_the_noise_of_one_weight_and_never_too_far() -> None:
    # Half the noise, twice the step; a hundred times less noise, the longest step.
    assert additive_learning_rate(1e-3, 100) == 12.0
    assert additive_learning_rate(5e-4, 100) == 24.0
    assert additive_learning_rate(1e-5, 100) == 30.0 == suggestion.ADDITIVE_LONGEST_STEP / suggestion.CLIP_NORM
    assert additive_learning_rate(1e-3, 100, clip_norm=1.0) == 6.0


def test_curves_are_offered_by_public_numbers_alone() -> None:
    numbers = PublicNumbers(4, 2500, 2500, 20, ranges=0.6)
    assert offers_curves(numbers, 7e-4)
    assert not offers_curves(numbers, 9e-4)
    assert not offers_curves(replace(numbers, ranges=0.4), 7e-4)
    assert not offers_curves(replace(numbers, classes=3), 7e-4)
    assert not offers_curves(replace(numbers, patients=700), 7e-4)
    assert offers_curves(replace(numbers, commonest=0.76), 7e-4)
    assert not offers_curves(replace(numbers, commonest=0.93), 7e-4)
