"""Stages of a noise schedule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import InvalidArgument
from accounting.plan.schedule import NoiseStage, first_rounds, stage_of

stages = st.lists(st.builds(NoiseStage, st.integers(1, 9), st.sampled_from([0.5, 1.0, 2.0])), min_size=1, max_size=5)


@given(stages, st.integers(0, 60))
def test_both_follow_from_the_list_of_all_rounds(planned, rounds):
    places = [place for place, stage in enumerate(planned) for _ in range(stage.rounds)]
    for attempt, place in enumerate(places, start=1):
        assert stage_of(planned, attempt) == place
    assert stage_of(planned, len(places) + 1) == len(planned) - 1
    within = min(rounds, len(places))
    assert first_rounds(planned, within) == tuple(places[:within].count(place) for place in range(len(planned)))
    assert sum(first_rounds(planned, rounds)) == rounds


@pytest.mark.parametrize(
    "wrong", [{"rounds": 0}, {"rounds": 1.5}, {"factor": 0.0}, {"factor": 1e3}, {"factor": float("nan")}]
)
def test_a_wrong_stage_is_refused(wrong):
    with pytest.raises(InvalidArgument) as refused:
        NoiseStage(**{"rounds": 3, "factor": 1.0, **wrong})
    assert refused.value.argument in wrong


@pytest.mark.parametrize("value", [{}, {"rounds": 1}, {"rounds": 1, "factor": 1.0, "more": 1}])
def test_what_is_no_stage_is_refused(value):
    with pytest.raises(InvalidArgument):
        NoiseStage.from_dict(value)
