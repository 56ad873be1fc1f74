"""The setting `noise_schedule`: what it allows, what it leaves as it was, and the settings of one round under it."""

from typing import Any

import pytest
from pydantic import ValidationError

from accounting.plan.schedule import NoiseStage
from study_protocol.study.bounds import guaranteed_noise_multiplier
from study_protocol.study.messages import AssignmentBody
from study_protocol.study.noise_schedule import schedule_in_words
from study_protocol.study.plan_of import plan_of, require_plan
from study_protocol.study.settings import StudySettings
from study_protocol.versions import min_protocol, needed_for
from tests.factories.settings import settings

FALLING = [{"rounds": 1, "factor": 1.4}, {"rounds": 2, "factor": 1.0}]
TWO_STEPS = {"algorithm": "fedavg", "local_steps": 2, "learning_rate": 0.3}


def test_settings_without_a_schedule_are_written_as_before() -> None:
    assert "noise_schedule" not in settings().as_json()["privacy"]
    assert settings(noise_schedule=None).digest() == settings().digest()
    assert "noise_schedule" not in plan_of(settings()).to_dict()


def test_a_schedule_is_in_the_settings_and_in_their_plan() -> None:
    chosen = settings(noise_schedule=FALLING)
    assert chosen.as_json()["privacy"]["noise_schedule"] == FALLING
    assert StudySettings.model_validate(chosen.as_json()).digest() == chosen.digest() != settings().digest()
    plan = plan_of(chosen)
    assert plan.noise_schedule == (NoiseStage(1, 1.4), NoiseStage(2, 1.0))
    assert require_plan(chosen.as_json(), plan.to_dict()) == chosen


@pytest.mark.parametrize("scheme", ["parallel", "sequential", "joint", "client", "client-distributed"])
def test_a_round_has_the_noise_that_its_plan_accounts(scheme: str) -> None:
    chosen = settings(scheme, noise_multiplier=3.3, noise_schedule=FALLING)
    plan = plan_of(chosen)
    for attempt in (1, 2, 3):
        seen = chosen.at_attempt(attempt)
        assert seen.privacy.noise_multiplier == plan.noise_of(plan.stage_of(attempt))
        assert seen.privacy.noise_schedule is None
        assert seen.model_copy(update={"privacy": chosen.privacy}) == chosen
    assert guaranteed_noise_multiplier(chosen) == guaranteed_noise_multiplier(settings(scheme, noise_multiplier=3.3))


def test_without_a_schedule_all_rounds_see_the_settings() -> None:
    assert settings().at_attempt(None) == settings()


def test_a_round_under_a_schedule_has_a_place() -> None:
    with pytest.raises(ValueError, match="names its place"):
        settings(noise_schedule=FALLING).at_attempt(None)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"noise_schedule": FALLING[:1]}, "has 1 rounds in all, and max_steps allows 3: make the two equal"),
        ({"noise_schedule": [{"rounds": 4, "factor": 1.0}]}, "has 4 rounds in all, and max_steps allows 3"),
        ({"noise_schedule": FALLING, "max_steps": 6}, "has 3 rounds in all, and max_steps allows 6"),
        ({"noise_schedule": FALLING, "training": TWO_STEPS}, "has 3 rounds in all, and max_steps allows 1"),
        ({"noise_schedule": FALLING, "bayesian": True}, "needs equal steps for a Bayesian limit"),
        ({"noise_schedule": [{"rounds": 0, "factor": 1.0}]}, "greater than or equal to 1"),
        ({"noise_schedule": [{"rounds": -3, "factor": 1.0}]}, "greater than or equal to 1"),
        ({"noise_schedule": [{"rounds": 3, "factor": 0.0}]}, "greater than 0"),
        ({"noise_schedule": [{"rounds": 3, "factor": -1.0}]}, "greater than 0"),
        ({"noise_schedule": [{"rounds": 3, "factor": float("inf")}]}, "finite"),
        ({"noise_schedule": [{"rounds": 3, "factor": 1e6}]}, "factor: must be between 0.01 and 100"),
        ({"noise_schedule": [{"rounds": 3, "factor": 1e-6}]}, "factor: must be between 0.01 and 100"),
        ({"noise_schedule": [{"rounds": 1, "factor": 1.0}] * 65, "max_steps": 65}, "at most 64 items"),
        ({"noise_schedule": []}, "at least 1 item"),
        ({"noise_schedule": [{"rounds": 3}]}, "factor"),
    ],
)
def test_wrong_schedules_are_refused_in_words(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        settings(**options)


def test_every_stage_has_noise_that_can_be_drawn() -> None:
    settings("client-distributed", noise_multiplier=1e6)
    loud = [{"rounds": 1, "factor": 1.0}, {"rounds": 2, "factor": 100.0}]
    with pytest.raises(ValidationError, match="noise_multiplier: the noise is too large to be drawn"):
        settings("client-distributed", noise_multiplier=1e6, noise_schedule=loud)


def test_stages_in_words() -> None:
    words = schedule_in_words((NoiseStage(10, 1.4), NoiseStage(1, 1.0)))
    assert words == "10 rounds at 1.4 times, 1 round at 1 times the noise multiplier, in this order"


def test_a_hospital_of_an_older_version_refuses_a_schedule() -> None:
    assert min_protocol(settings(noise_schedule=FALLING).as_json()) == 3
    assert min_protocol(settings().as_json()) < 3
    assert needed_for(settings(noise_schedule=FALLING).as_json(), 2) == ["a noise schedule"]


def test_assignments_without_a_place_keep_their_bytes() -> None:
    assert "attempt" not in AssignmentBody.model_construct(attempt=None).model_dump(mode="json", warnings=False)
