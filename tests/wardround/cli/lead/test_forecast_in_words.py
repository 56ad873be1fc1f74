"""The forecast of a study's accuracy, and warnings about its settings, in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from study_protocol.study.suggestion import AccuracyForecast
from tests.factories.settings import limit
from tests.factories.settings import settings as study_settings
from wardround.cli.lead.forecast_in_words import in_words, loose_delta, warnings


def test_a_delta_of_a_patient_or_more_is_warned_of() -> None:
    """4 hospitals with 20 records a batch at rate 0.5 are 160 patients: 1/160 is the edge."""
    chosen = study_settings(limits=[limit("instance", delta=1 / 161)])
    assert loose_delta(chosen) == []
    (warning,) = loose_delta(study_settings(limits=[limit("instance", delta=1 / 160)]))
    assert "delta 0.00625 is too large for 160 patients" in warning
    assert "one patient in 160" in warning


FORECAST = AccuracyForecast(
    relative_noise=0.5,
    lost=0.012,
    lost_at_most=0.03,
    if_parted=0.08,
    alone=0.05,
    may_be_below_alone=False,
    commonest=0.5,
)


def test_a_forecast_is_said_in_points() -> None:
    lost, alone = in_words(FORECAST)
    assert "expect to lose 1.2 points" in lost
    assert "Four of five studies that were measured lost at most 3.0" in lost
    assert lost.endswith("If the columns tell the classes apart without error, it is up to 8.0")
    assert "without error" not in in_words(replace(FORECAST, if_parted=0.02))[0]
    (nothing,) = in_words(replace(FORECAST, no_better_than_guessing=True))
    assert "no better than guessing" in nothing
    assert "would lose about 5.0 points" in alone


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, []),
        ({"may_be_below_alone": True}, ["a hospital alone, without privacy, may do better"]),
        ({"doubts": ("noise", "classes")}, ["this forecast is not sure. The noise is larger"]),
        ({"commonest": None}, ["the share of the commonest class is not given"]),
    ],
    ids=["none", "alone", "unsure", "unknown"],
)
def test_a_study_that_may_be_of_no_use_is_warned_of(changes: dict[str, Any], words: list[str]) -> None:
    found = warnings(replace(FORECAST, **changes))
    assert len(found) == len(words)
    assert all(part in line for part, line in zip(words, found, strict=True))
