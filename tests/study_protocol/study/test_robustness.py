"""Bounds on the effect of one hospital."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError
from scipy import stats
from scipy.optimize import brentq

from accounting.plan.schemes import SCHEMES
from study_protocol.study.robustness import Robustness, max_records
from study_protocol.study.settings import StudySettings
from tests.factories.settings import MASKING, settings_json


@pytest.mark.parametrize(
    ("scheme", "robustness", "options", "reason"),
    [
        ("client", {"sum_radius": 5.0}, {}, "clip_norm bounds what a client adds"),
        ("joint", {"sum_radius": 5.0}, {}, "client_clip_norm bounds what a client adds"),
        ("parallel", {"sum_radius": 0.5}, {}, "at least privacy.clip_norm"),
        ("parallel", {"sum_radius": 0.0}, {}, "greater than 0"),
        ("parallel", {"aggregation": "mode"}, {}, "Input should be"),
        ("parallel", {"aggregation": "median", "trim": 1}, {}, "come together"),
        ("parallel", {"aggregation": "trimmed-mean"}, {}, "come together"),
        ("parallel", {"aggregation": "median"}, {}, "min_clients must be at least 3"),
        ("parallel", {"aggregation": "trimmed-mean", "trim": 2}, {"schedule": {"min_clients": 4}}, "at least 5"),
        ("parallel", {"aggregation": "median"}, {"masked": True}, "updates in the clear"),
        ("sequential", {"aggregation": "median"}, {}, "updates in the clear"),
        ("client", {"aggregation": "median"}, {"schedule": {"min_clients": 4}}, "noised by hospitals"),
    ],
)
def test_robustness_that_makes_no_sense_is_refused(scheme, robustness, options, reason):
    with pytest.raises(ValidationError, match=reason):
        StudySettings.model_validate(settings_json(scheme, robustness=robustness, **options))


@pytest.mark.parametrize(
    ("robustness", "options"),
    [
        ({"aggregation": "median"}, {"schedule": {"min_clients": 3}}),
        ({"aggregation": "trimmed-mean", "trim": 1, "sum_radius": 9.0}, {"schedule": {"min_clients": 3}}),
        ({"aggregation": "median"}, {"masked": True, "bayesian": True, "masking": MASKING | {"mask_updates": False}}),
    ],
)
def test_clear_noised_updates_may_be_aggregated_otherwise(robustness, options):
    assert StudySettings.model_validate(settings_json(robustness=robustness, **options))


def test_a_study_that_says_nothing_has_a_radius_that_no_expected_batch_reaches():
    def radius(scheme="parallel", **options):
        return StudySettings.model_validate(settings_json(scheme, **options)).sum_radius

    for expected in (0.5, 1.0, 20.0, 600.0, 1e6):
        most = radius(clip_norm=2.0, expected_batch_size=expected) / 2.0
        assert stats.poisson.sf(most - 1, expected) <= 1e-12
        # And not much more than needed.
        assert stats.poisson.sf(most / 2, expected) > 1e-12 or most < 1.1 * expected
    assert radius(robustness={"sum_radius": 7.0}) == 7.0
    assert radius("joint", client_clip_norm=2.5) == 2.5
    assert radius("client") is None


@pytest.mark.parametrize("expected", [0.0, 0.3, 5.0, 400.0])
def test_a_batch_is_larger_than_the_bound_once_in_ten_to_the_twelve(expected: float) -> None:
    """Bernstein's inequality: the bound t beyond the mean solves t² / (2μ + 2t/3) = ln 10¹²."""
    most = max_records(expected)
    assert stats.poisson.sf(most - 1, expected) <= 1e-12
    beyond = brentq(lambda t: t**2 / (2 * expected + 2 * t / 3) - math.log(1e12), 1e-9, 1e4)
    assert most == math.ceil(expected + beyond)


def test_the_least_number_of_updates_is_that_of_what_is_left_out() -> None:
    """The median of three, and of 2·trim + 1 one is left."""
    rules = SCHEMES["parallel"]
    for chosen, least in ((Robustness(aggregation="median"), 3), (Robustness(aggregation="trimmed-mean", trim=2), 5)):
        chosen.require(rules, 1.0, summed=False, min_clients=least)
        with pytest.raises(ValueError, match=f"min_clients must be at least {least}"):
            chosen.require(rules, 1.0, summed=False, min_clients=least - 1)
    Robustness().require(rules, 1.0, summed=True, min_clients=0)
