import copy
import json

import pytest
from pydantic import ValidationError

from client_sdk.protocol.canonical import canonical_json
from client_sdk.protocol.settings import StudySettings

PARALLEL = {
    "training": {"task": "logistic", "algorithm": "fedsgd", "local_steps": 1},
    "privacy": {
        "scheme": "parallel",
        "limits": [
            {"level": "instance", "notion": "bayesian", "epsilon": 1.0, "delta": 1e-5, "failure": 1e-6},
            {"level": "instance", "notion": "classical", "epsilon": 8.0, "delta": 1e-5},
        ],
        "clip_norm": 1.0,
        "client_clip_norm": None,
        "noise_multiplier": 2.0,
        "sampling_rate": 0.1,
        "nominal_batch": 10.0,
        "client_sampling_rate": 1.0,
        "expected_clients": 4.0,
        "horizon": 100,
        "classical_order": 8.0,
        "bayesian": {
            "orders": [4.0, 8.0],
            "filter_order": 8.0,
            "estimator": "betting",
            "composition": "running",
            "adversary": "path",
            "conversion": "improved",
        },
        "disclosure": "plain",
        "histogram_noise": None,
        "masking": None,
    },
    "schedule": {"min_clients": 2, "round_deadline_seconds": 60.0},
}


def changed(path, value):
    settings = copy.deepcopy(PARALLEL)
    *parents, last = path.split(".")
    target = settings
    for name in parents:
        target = target[int(name)] if isinstance(target, list) else target[name]
    if value is ...:
        del target[last]
    else:
        target[int(last) if isinstance(target, list) else last] = value
    return settings


def test_settings_come_back_with_the_same_digest():
    settings = StudySettings.model_validate(PARALLEL)
    again = StudySettings.model_validate_json(canonical_json(settings.as_json()))
    assert (again, again.digest()) == (settings, settings.digest())
    assert settings.digest() != StudySettings.model_validate(changed("privacy.horizon", 101)).digest()


@pytest.mark.parametrize("field", sorted(PARALLEL["privacy"]))
def test_no_privacy_setting_has_a_default(field):
    with pytest.raises(ValidationError, match=field):
        StudySettings.model_validate(changed(f"privacy.{field}", ...))


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("privacy.noise_multiplier", 0.0, "greater than 0"),
        ("privacy.noise_multiplier", float("nan"), "finite"),
        ("privacy.clip_norm", float("inf"), "finite"),
        ("training.optimiser", {"name": "momentum", "momentum": -0.0}, "negative zero"),
        ("privacy.sampling_rate", 1.01, "less than or equal to 1"),
        ("privacy.limits", [], "at least 1"),
        ("privacy.limits.1", ..., "classical limit"),
        ("privacy.limits.0", ..., "come together"),
        ("privacy.bayesian", None, "come together"),
        ("privacy.limits.1.level", "client", "bounds the instance level only"),
        ("privacy.limits.0.failure", 1e-5, "below its delta"),
        ("privacy.limits.0.failure", ..., "below its delta"),
        ("privacy.limits.1.failure", 1e-6, "Bayesian limits only"),
        ("privacy.bayesian.orders", [8.0, 4.0], "strictly increasing"),
        ("privacy.horizon", 0, "greater than or equal to 1"),
        ("privacy.scheme", "trust-me", "Input should be"),
        ("privacy.unheard_of", 1, "Extra inputs"),
        ("training.local_steps", 2, "one gradient a round"),
        ("schedule.round_deadline_seconds", 0.0, "greater than 0"),
    ],
)
def test_settings_that_promise_nothing_are_refused(path, value, reason):
    settings = changed(path, value) if not (path.startswith("privacy.limits.") and value is ...) else _without(path)
    with pytest.raises(ValidationError, match=reason):
        StudySettings.model_validate(settings)


def _without(path):
    settings = copy.deepcopy(PARALLEL)
    parts = path.split(".")
    if len(parts) == 3:
        del settings["privacy"]["limits"][int(parts[2])]
    else:
        del settings["privacy"]["limits"][int(parts[2])][parts[3]]
    return settings


def test_a_round_longer_than_the_horizon_is_refused():
    settings = changed("training", {"task": "t", "algorithm": "fedavg", "local_steps": 101})
    with pytest.raises(ValidationError, match="shorter than one round"):
        StudySettings.model_validate(settings)


def test_canonical_json_is_one_string_for_one_value():
    value = {"b": [1.0, 0.1], "a": "é"}
    assert canonical_json(value) == canonical_json(json.loads(canonical_json(value)))
    assert canonical_json(value) == '{"a":"é","b":[1.0,0.1]}'.encode()
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"x": float("inf")})
