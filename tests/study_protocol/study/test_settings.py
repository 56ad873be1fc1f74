import copy

import pytest
from pydantic import ValidationError

from study_protocol.study.settings import StudySettings
from study_protocol.wire.signing import canonical_json
from tests.factories.settings import settings_json

PARALLEL = settings_json(bayesian=True)


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
    assert settings.digest() != StudySettings.model_validate(changed("privacy.max_steps", 101)).digest()


@pytest.mark.parametrize("field", sorted(set(PARALLEL["privacy"]) - {"central_noise"}))
def test_no_privacy_setting_has_a_default(field):
    with pytest.raises(ValidationError, match=field):
        StudySettings.model_validate(changed(f"privacy.{field}", ...))


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("privacy.noise_multiplier", 0.0, "greater than 0"),
        ("privacy.noise_multiplier", float("nan"), "finite"),
        ("privacy.clip_norm", float("inf"), "finite"),
        ("privacy.clip_norm", 1e-12, "greater than or equal to 0.000001"),
        ("training.optimiser", {"name": "momentum", "momentum": -0.0}, "negative zero"),
        ("privacy.sampling_rate", 1.01, "less than or equal to 1"),
        ("privacy.sampling_rate", True, "valid number"),
        ("privacy.limits.1.epsilon", "8", "valid number"),
        ("privacy.max_steps", True, "valid integer"),
        ("privacy.max_steps", "100", "valid integer"),
        ("privacy.limits", [], "at least 1"),
        ("privacy.limits.1", ..., "classical limit"),
        ("privacy.limits.0", ..., "come together"),
        ("privacy.bayesian", None, "come together"),
        ("privacy.limits.1.level", "client", "bounds the instance level only"),
        ("privacy.limits.0.estimator_failure_probability", 1e-5, "must be below delta"),
        ("privacy.limits.0.estimator_failure_probability", ..., "Bayesian limits have one"),
        ("privacy.limits.1.estimator_failure_probability", 1e-6, "classical limits none"),
        ("privacy.bayesian.orders", [8.0, 4.0], "strictly increasing"),
        ("privacy.max_steps", 0, "greater than or equal to 1"),
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
    with pytest.raises(ValidationError, match="at least the steps of one round"):
        StudySettings.model_validate(settings)


def test_settings_that_name_an_audit_say_whose_statement_it_is_and_others_keep_their_digest():
    plain = StudySettings.model_validate(PARALLEL)
    named = StudySettings.model_validate(PARALLEL | {"audit_sha256": "ab" * 32})
    assert "audit_sha256" not in plain.as_json()
    assert plain.audit_in_words is None
    assert named.digest() != plain.digest()
    assert named.audit_in_words is not None
    assert "The study lead states" in named.audit_in_words
    assert "ab" * 32 in named.audit_in_words
    with pytest.raises(ValidationError, match="audit_sha256"):
        StudySettings.model_validate(PARALLEL | {"audit_sha256": "audit.html"})
