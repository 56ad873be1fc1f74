import copy

import pytest
from pydantic import ValidationError

from study_protocol.study.settings import StudySettings
from study_protocol.wire.signing import canonical_json
from tests.factories.settings import MASKING, settings_json

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


def masked(scheme, *, min_clients=4, **options):
    return settings_json(
        scheme, **{"masked": True, "bayesian": True, "schedule": {"min_clients": min_clients}} | options
    )


NOISED = {"disclosure": "noised", "histogram_noise": {"std": 6.0, "every": 2}}
ACCOUNTING_SAMPLE = {"accounting_sample": {"records": 50, "source": "members"}}
HELD_OUT = {"accounting_sample": {"records": 50, "source": "held-out"}}
CLASSICAL_ONLY = {"level": "instance", "definition": "classical", "epsilon": 8.0, "delta": 1e-5}
CLIENTS_ONLY = {
    "client_clip_norm": 1.0,
    "limits": [CLASSICAL_ONLY, *(limit | {"level": "client"} for limit in PARALLEL["privacy"]["limits"])],
}
STUDENT = PARALLEL["privacy"]["bayesian"] | {"composition": "holder", "estimator": "student-t"}


@pytest.mark.parametrize(
    ("scheme", "options"),
    [
        ("parallel", {}),
        ("sequential", {}),
        ("joint", {"client_clip_norm": 1.0}),
        ("client", {}),
        ("client", NOISED),
        ("parallel", NOISED | ACCOUNTING_SAMPLE),
        ("sequential", NOISED | HELD_OUT),
        ("joint", NOISED | CLIENTS_ONLY),
        ("joint", HELD_OUT | {"client_clip_norm": 1.0}),
        ("parallel", ACCOUNTING_SAMPLE | {"disclosure": "at-end"}),
        ("parallel", {"masking": MASKING | {"min_survivors": 3, "allow_three": True}}),
    ],
)
def test_every_scheme_may_be_masked(scheme, options):
    assert StudySettings.model_validate(masked(scheme, **options)).privacy.masking.honest_survivors >= 2


def test_noised_accounting_samples_need_no_masks():
    chosen = StudySettings.model_validate(masked("parallel", masking=None, **NOISED, **ACCOUNTING_SAMPLE))
    assert chosen.privacy.accounting_sample.records == 50


@pytest.mark.parametrize(
    ("scheme", "options", "reason"),
    [
        ("parallel", {"masking": MASKING | {"min_survivors": 3}}, "three honest clients"),
        ("parallel", {"masking": MASKING | {"colluders": 2, "allow_three": True, "min_survivors": 3}}, "three honest"),
        ("parallel", {"masking": MASKING | {"expiry_seconds": 0.0}}, "greater than 0"),
        ("parallel", {"masking": MASKING | {"neighbours": 3}}, "at least 2: .* // 2 may"),
        ("parallel", {"masking": MASKING | {"neighbours": 0}}, "number k, at least 2"),
        ("parallel", {"masking": MASKING | {"neighbours": 1002}}, "less than or equal to 1000"),
        (
            "parallel",
            {"masking": MASKING | {"colluders": 4, "min_survivors": 7, "neighbours": 4}, "min_clients": 7},
            "number k, at least 6",
        ),
        ("parallel", {"masking": {k: v for k, v in MASKING.items() if k != "neighbours"}}, "Field required"),
        ("parallel", {"min_clients": 3}, "min_clients must be at least min_survivors"),
        ("sequential", {"masking": None}, "it needs masked updates"),
        ("sequential", {"masking": MASKING | {"mask_updates": False}}, "it needs masked updates"),
        ("sequential", {"training": {"algorithm": "fedavg"}}, "one noisy step a round"),
        ("joint", {"training": {"algorithm": "fedavg"}}, "joint .* one noisy step a round: set algorithm to fedsgd"),
        (
            "joint",
            {"training": {"algorithm": "fedavg", "local_steps": 3}},
            "a record has moved the point",
        ),
        ("joint", {"client_clip_norm": None}, "client_clip_norm belongs to scheme joint"),
        ("parallel", {"client_clip_norm": 2.0}, "client_clip_norm belongs to scheme joint"),
        ("joint", {"client_clip_norm": 0.5}, "at least clip_norm"),
        ("client", {"masking": MASKING | {"mask_updates": False}}, "mask both or neither"),
        (
            "parallel",
            {"masking": MASKING | {"mask_updates": False}, "bayesian": None, "limits": [CLASSICAL_ONLY]},
            "needs a Bayesian limit",
        ),
        ("client-distributed", {"masking": None}, "it needs masked updates"),
        ("client-distributed", {"masking": MASKING | {"mask_updates": False}}, "it needs masked updates"),
        ("client-distributed", {"client_clip_norm": 2.0}, "client_clip_norm belongs to scheme joint"),
        ("client-distributed", {"training": {"clipping": "per-layer"}}, "clips whole updates"),
        ("client-distributed", {"robustness": {"sum_radius": 5.0}}, "clip_norm bounds what a client adds"),
        ("client-distributed", {"robustness": {"aggregation": "median"}}, "needs updates in the clear"),
        ("parallel", {"central_noise": "distributed"}, "central_noise belongs to scheme client"),
        ("sequential", {"central_noise": "coordinator"}, "central_noise belongs to scheme client"),
        ("client", {"central_noise": "everybody"}, "Input should be"),
        ("client", {"bayesian": PARALLEL["privacy"]["bayesian"]}, "needs composition holder"),
        ("client", {"disclosure": "noised"}, "come together"),
        ("client", NOISED | {"disclosure": "plain"}, "come together"),
        ("client", NOISED | {"bayesian": STUDENT}, "betting or band"),
        ("client", NOISED | {"masking": None}, "summed over them under masks"),
        ("parallel", NOISED, "needs an accounting sample"),
        ("sequential", NOISED, "needs an accounting sample"),
        (
            "parallel",
            NOISED | ACCOUNTING_SAMPLE | {"bayesian": STUDENT | {"estimator": "betting"}},
            "a histogram a step",
        ),
        (
            "parallel",
            NOISED | ACCOUNTING_SAMPLE | {"bayesian": STUDENT | {"composition": "running"}},
            "betting or band",
        ),
        ("joint", NOISED | ACCOUNTING_SAMPLE | {"client_clip_norm": 1.0}, "std 528"),
        ("joint", NOISED | CLIENTS_ONLY | {"histogram_noise": {"std": 5.0, "every": 2}}, "at least 3"),
        ("joint", ACCOUNTING_SAMPLE | CLIENTS_ONLY, "at instance level, and there is none"),
        ("parallel", ACCOUNTING_SAMPLE | {"bayesian": STUDENT}, "betting or band"),
        ("client", ACCOUNTING_SAMPLE, "at instance level, and there is none"),
        ("parallel", {"accounting_sample": {"records": 2, "source": "members"}}, "greater than or equal to 3"),
        ("parallel", {"accounting_sample": {"records": 50, "source": "public"}}, "members"),
        ("client", NOISED | {"histogram_noise": {"std": 5.19, "every": 2}}, "at least 3"),
    ],
)
def test_masks_that_protect_nothing_are_refused(scheme, options, reason):
    with pytest.raises(ValidationError, match=reason):
        StudySettings.model_validate(masked(scheme, **options))


@pytest.mark.parametrize("left_out", [True, False])
def test_under_masks_the_central_noise_comes_in_shares_unless_settings_say_otherwise(left_out):
    """Left out, or null: the same settings, written out in the same form."""
    for masking, chosen, scheme in ((MASKING, "distributed", "client-distributed"), (None, "coordinator", "client")):
        values = settings_json("client", masking=masking, schedule={"min_clients": 4})
        given = values["privacy"] | {"central_noise": None}
        if left_out:
            del given["central_noise"]
        found = StudySettings.model_validate(values | {"privacy": given})
        assert (found.privacy.central_noise, found.privacy.rules.id) == (chosen, scheme)
        assert found.as_json()["privacy"]["central_noise"] == chosen
    masked_by_hand = StudySettings.model_validate(settings_json("client", masked=True))
    assert (masked_by_hand.privacy.central_noise, masked_by_hand.privacy.rules.id) == ("coordinator", "client")
    assert StudySettings.model_validate(PARALLEL).privacy.central_noise is None


def test_several_local_steps_are_one_noised_step_where_whole_updates_are_clipped():
    training = {"algorithm": "fedavg", "local_steps": 5}
    chosen = StudySettings.model_validate(settings_json("client-distributed", training=training))
    assert (chosen.steps_per_round, chosen.rounds, chosen.sum_radius) == (1, 3, None)


@pytest.mark.parametrize(
    ("scheme", "options", "exact"),
    [
        ("client", {}, True),
        ("client", NOISED, True),
        ("client-distributed", {"bayesian": False}, False),
        ("client-distributed", NOISED, False),
        # The distances are counted without noise: two sums of them would tell a hospital's.
        ("client-distributed", {"disclosure": "plain"}, True),
        ("client-distributed", {"disclosure": "at-end"}, True),
        ("sequential", {}, False),
    ],
)
def test_a_second_sum_from_one_model_is_opened_only_where_everything_in_it_has_noise(scheme, options, exact):
    assert StudySettings.model_validate(masked(scheme, **options)).privacy.sums_exact_values is exact
