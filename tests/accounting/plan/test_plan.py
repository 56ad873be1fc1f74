"""A plan refuses what no budget can be kept for, names the field, and comes back from JSON as it was."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from accounting.errors import InvalidArgument
from accounting.plan.limits import HistogramRelease, LimitPlan, PlanError
from accounting.plan.plan import Plan, total_noise
from accounting.plan.schemes import TRAINING_SCHEMES
from accounting.units import Definition, Level
from tests.accounting.plan.test_schemes import plan


@pytest.mark.parametrize("name", TRAINING_SCHEMES)
@pytest.mark.parametrize("noised", [False, True])
def test_json_and_back(name, noised) -> None:
    study = plan(name, noised=noised, bayesian=True)
    assert Plan.from_dict(json.loads(json.dumps(study.to_dict()))) == study


@pytest.mark.parametrize("damage", [{"limits": [{}]}, {"scheme": "trust"}, {"observer": "nobody"}, {"more": 1}])
def test_what_is_no_plan_is_refused(damage) -> None:
    with pytest.raises(ValueError):
        Plan.from_dict(plan("parallel").to_dict() | damage)


@pytest.mark.parametrize(
    ("name", "field", "change"),
    [
        ("parallel", "client_clip_norm", {"client_clip_norm": 1.0}),
        ("joint", "client_clip_norm", {"client_clip_norm": None}),
        ("client", "honest_survivors", {"honest_survivors": 2}),
        ("parallel", "honest_survivors", {"honest_survivors": 2}),
        ("sequential", "steps_per_round", {"steps_per_round": 2}),
        ("joint", "steps_per_round", {"steps_per_round": 2}),
        ("parallel", "max_steps", {"max_steps": 2}),
        ("parallel", "limits", {"limits": ()}),
        ("parallel", "bayesian", {"bayesian": plan("parallel", bayesian=True).bayesian}),
        ("parallel", "release", {"release": HistogramRelease(3.0, 1)}),
        ("parallel", "release", {"disclosure": "noised"}),
        ("parallel", "release", {"disclosure": "noised", "release": HistogramRelease(3.0, 1)}),
    ],
)
def test_the_field_that_is_wrong_is_named(name, field, change) -> None:
    with pytest.raises(PlanError) as refused:
        replace(plan(name), **change)
    assert refused.value.field == field


@pytest.mark.parametrize("name", TRAINING_SCHEMES)
@pytest.mark.parametrize("norm", [5e-324, 1e-170, 1e170, 1e308])
def test_no_clip_norm_turns_into_noise_that_nobody_adds(name, norm) -> None:
    """1.5 · 1e308 is infinite, and so is the square of 1e170: either would read as next to no ε."""
    fields = [field for field in ("clip_norm", "client_clip_norm") if getattr(plan(name), field) is not None]
    for field in fields:
        with pytest.raises(PlanError, match="must be between") as refused:
            replace(plan(name), **{field: norm})
        assert refused.value.field == field
    with pytest.raises(PlanError, match="must be between"):
        replace(plan(name), noise_multiplier=norm)


@pytest.mark.parametrize("name", TRAINING_SCHEMES)
def test_a_clip_norm_changes_no_noise_multiplier(name) -> None:
    study = plan(name)
    level = study.levels[0]
    for norm in (1e-50, 1e-20, 1e20, 1e50):
        wide = replace(study, clip_norm=norm, client_clip_norm=None if study.client_clip_norm is None else norm)
        assert wide.mechanism(level).noise_multiplier == pytest.approx(
            study.mechanism(level).noise_multiplier, rel=1e-14
        )


def test_a_limit_at_a_level_that_nothing_protects() -> None:
    other = LimitPlan(Level.CLIENT, Definition.CLASSICAL, 1.0, 1e-5, None)
    with pytest.raises(PlanError, match="bounds the instance level only"):
        replace(plan("parallel"), limits=(*plan("parallel").limits, other))
    with pytest.raises(PlanError, match="does not protect level client"):
        plan("parallel").mechanism(Level.CLIENT)


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, -1.0, "1"])
@pytest.mark.parametrize("name", ["clip_norm", "noise_multiplier", "sampling_rate", "classical_order"])
def test_numbers_are_positive_and_finite(name, value) -> None:
    with pytest.raises(InvalidArgument) as refused:
        replace(plan("parallel"), **{name: value})
    assert refused.value.argument == name


def test_a_noise_multiplier_is_never_above_the_noise() -> None:
    for clip in (0.1, 0.3, 0.7, 1.1):
        mechanism = replace(plan("parallel"), clip_norm=clip, noise_multiplier=0.3).mechanism(Level.INSTANCE)
        assert 0.3 * (1 - 1e-15) <= mechanism.noise_multiplier <= 0.3


def test_independent_shares_add_in_squares_rounded_down() -> None:
    assert 5 * (1 - 1e-14) < total_noise([3.0, 4.0]) < 5.0
    for shares in ([], [0.0], [1.0, -1.0], [math.nan]):
        with pytest.raises(InvalidArgument, match="noise_stds"):
            total_noise(shares)


def test_histograms_are_published_in_multiples() -> None:
    noised = replace(plan("parallel", noised=True), release=HistogramRelease(3.0, 4))
    assert [number for number in range(1, 13) if noised.publishes(number)] == [4, 8, 12]
    assert not any(plan("parallel").publishes(number) for number in range(1, 13))
    assert (noised.rounds, noised.steps_per_round, noised.max_steps) == (10, 3, 30)
