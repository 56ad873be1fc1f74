"""Stages of a noise schedule: the place that each attempt has, and the plans that may have them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import InvalidArgument
from accounting.plan.limits import PlanError
from accounting.plan.plan import Plan
from accounting.plan.schedule import MOST_STAGES, NoiseStage, first_attempts, first_rounds, stage_of
from tests.accounting.budget.plans import plan

LENGTHS = st.lists(st.integers(1, 6), min_size=1, max_size=6)


def of(*lengths: int) -> tuple[NoiseStage, ...]:
    return tuple(NoiseStage(length, 1.0 + place) for place, length in enumerate(lengths))


@given(LENGTHS)
def test_the_stages_are_the_list_of_attempts_in_runs(lengths: list[int]) -> None:
    stages = of(*lengths)
    listed = [place for place, length in enumerate(lengths) for _ in range(length)]
    assert [stage_of(stages, attempt) for attempt in range(1, len(listed) + 1)] == listed
    assert [listed.index(place) + 1 for place in range(len(lengths))] == first_attempts(stages)
    for rounds in range(len(listed) + 1):
        assert first_rounds(stages, rounds) == tuple(listed[:rounds].count(place) for place in range(len(lengths)))


@pytest.mark.parametrize(
    ("stages", "reason"),
    [
        (of(100), "has 100 rounds in all, and max_steps allows 150: make the two equal"),
        (of(100, 51), "has 151 rounds in all"),
        ((), f"has 1 to {MOST_STAGES} stages, not 0"),
        (of(*[1] * (MOST_STAGES + 1)), f"not {MOST_STAGES + 1}"),
    ],
)
def test_a_schedule_is_as_long_as_its_study(stages: tuple[NoiseStage, ...], reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        plan(definitions=("classical",), noise_schedule=stages)


def test_a_bayesian_limit_needs_equal_steps() -> None:
    with pytest.raises(PlanError, match="Bayesian limit: leave one of them out"):
        plan(noise_schedule=of(150))


@pytest.mark.parametrize("stage", [(0, 1.0), (-1, 1.0), (1, 0.0), (1, -1.0), (1, 1e3), (1, 1e-3), (1, float("nan"))])
def test_a_stage_has_rounds_and_a_moderate_factor(stage: tuple[int, float]) -> None:
    with pytest.raises(InvalidArgument):
        NoiseStage(*stage)


def test_a_plan_is_read_back_with_its_schedule_and_written_as_before_without() -> None:
    falling = plan(definitions=("classical",), noise_schedule=of(50, 100))
    assert Plan.from_dict(falling.to_dict()) == falling
    assert "noise_schedule" not in replace(falling, noise_schedule=None).to_dict()


def test_the_least_noise_of_all_stages_is_what_is_sure() -> None:
    falling = plan(definitions=("classical",), noise_schedule=(NoiseStage(50, 1.4), NoiseStage(100, 0.8)))
    (level,) = falling.levels
    assert falling.least_noised(level) == falling.mechanism(level, 1)
    assert falling.noise_of(1) == 2.0 * 0.8


@pytest.mark.parametrize("value", [{}, {"rounds": 1}, {"rounds": 1, "factor": 1.0, "more": 1}])
def test_what_is_no_stage_is_refused(value: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument):
        NoiseStage.from_dict(value)
