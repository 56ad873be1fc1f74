"""Beyond what bounds a study is not opened."""

from __future__ import annotations

from typing import Any

import pytest

from study_protocol.study.bounds import beyond_bounds, guaranteed_noise_multiplier
from tests.factories.settings import settings

EDGE = {"level": "instance", "definition": "classical", "epsilon": 20.0, "delta": 1e-3}


@pytest.mark.parametrize(
    ("study", "said"),
    [
        ({"noise_multiplier": 0.3, "limits": [EDGE]}, []),
        ({"noise_multiplier": 0.2999, "limits": [EDGE]}, ["the noise multiplier that is sure, 0.3, is below 0.3"]),
        ({"limits": [EDGE | {"epsilon": 21.0}]}, ["the classical limit's epsilon, 21, is above 20"]),
        ({"limits": [EDGE | {"delta": 0.002}]}, ["the classical limit's delta, 0.002, is above 0.001"]),
    ],
)
def test_every_bound_that_is_passed_is_named(study: dict[str, Any], said: list[str]) -> None:
    assert beyond_bounds(settings(**study)) == said


@pytest.mark.parametrize("clip_norm", [1e-3, 0.7, 3.0, 1e6])
def test_the_clip_norm_is_a_scale_and_changes_nothing(clip_norm: float) -> None:
    assert guaranteed_noise_multiplier(settings(noise_multiplier=0.3, clip_norm=clip_norm)) == 0.3
