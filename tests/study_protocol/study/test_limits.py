"""Limits of a study, and whom its rounds wait for."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import ValidationError

from accounting.units import Definition, Level
from study_protocol.study.limits import Limit, Schedule
from study_protocol.study.masking import Masking
from study_protocol.wire.signing import encode_public_key
from tests.factories.settings import MASKING, limit, settings


def planned(patients: float, **schedule: Any) -> Any:
    return settings(sampling_rate=0.5, expected_batch_size=patients / 2, schedule=schedule)


@pytest.mark.parametrize("slots", [[2.0, 1.0], [1.0, 1.0], [0.0], [5e-324], [1e-9], [600.0], ["1"]])
def test_slots_that_no_hospital_could_keep_are_refused(slots: list[Any]) -> None:
    with pytest.raises(ValidationError, match="slots"):
        planned(40, slots=slots)


def test_a_slot_ends_before_a_step_of_a_masked_round() -> None:
    with pytest.raises(ValidationError, match=r"schedule.slots: .* below masking.step_deadline_seconds"):
        settings(masked=True, masking=MASKING | {"step_deadline_seconds": 2.0}, schedule={"slots": [2.0]})


def schedule(**values: Any) -> Schedule:
    return Schedule.model_validate({"min_clients": 4, "round_deadline_seconds": 60.0} | values)


def test_a_limit_is_planned_as_it_is_written() -> None:
    plan = Limit.model_validate(limit("instance", "bayesian")).plan()
    assert (plan.level, plan.definition) == (Level.INSTANCE, Definition.BAYESIAN)
    assert (plan.epsilon, plan.delta, plan.estimator_failure_probability) == (40.0, 1e-5, 5e-6)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"epsilon": 0.0}, "greater than 0"),
        ({"epsilon": "8"}, "valid number"),
        ({"delta": 1.0}, "less than 1"),
        ({"level": "ward"}, "Input should be"),
        ({"estimator_failure_probability": 1e-6}, "classical limits none"),
        ({"note": "x"}, "Extra inputs"),
    ],
)
def test_what_bounds_nothing_is_no_limit(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Limit.model_validate(limit("instance") | values)


def test_a_round_must_have_enough_hospitals_for_the_sums_of_its_study() -> None:
    masking = Masking(**MASKING)
    schedule().require_sessions(masking)
    schedule(min_clients=0).require_sessions(None)
    with pytest.raises(ValueError, match="at least min_survivors, 4"):
        schedule(min_clients=3).require_sessions(masking)
    with pytest.raises(ValueError, match="at most 1000: no session has more"):
        schedule(min_clients=1001).require_sessions(masking)


def test_auditors_have_names_and_keys_of_their_own() -> None:
    keys = [encode_public_key(Ed25519PrivateKey.from_private_bytes(bytes([n] * 32)).public_key()) for n in (1, 2)]
    first, other = ({"name": name, "public_key": key} for name, key in zip(("audit", "review"), keys, strict=True))
    assert [witness.name for witness in schedule(witnesses=[first, other]).witnesses] == ["audit", "review"]
    for twin in (first, first | {"name": "review"}, other | {"name": "audit"}):
        with pytest.raises(ValidationError, match="a name and a key of its own"):
            schedule(witnesses=[first, twin])
    with pytest.raises(ValidationError, match="public_key"):
        schedule(witnesses=[first | {"public_key": "A" * 42}])
