"""The section `privacy`: what protects nothing is refused, and every scheme may be masked."""

import pytest
from pydantic import ValidationError

from study_protocol.study.settings import StudySettings
from tests.factories.settings import MASKING, settings_json

PARALLEL = settings_json(bayesian=True)


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
        (
            "joint",
            {"training": {"algorithm": "fedavg"}},
            "joint .* one noisy step a round: set training.algorithm",
        ),
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
        ("client", NOISED | {"masking": None}, "sums under masks: set masking"),
        ("parallel", NOISED, "needs accounting_sample"),
        ("sequential", NOISED, "needs accounting_sample"),
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


def test_each_stage_of_the_schedule_has_its_own_noise():
    """The noise multiplier times the factor of the stage, and nothing else differs."""
    stages = [{"rounds": 2, "factor": 2.0}, {"rounds": 1, "factor": 0.5}]
    privacy = StudySettings.model_validate(settings_json(noise_multiplier=3.0, noise_schedule=stages)).privacy
    assert [stage.noise_multiplier for stage in privacy.by_stage] == [6.0, 1.5]
    constant = StudySettings.model_validate(settings_json(noise_multiplier=1.5)).privacy
    assert privacy.by_stage[1] == constant
    assert constant.by_stage == (constant,)


def test_a_model_may_not_name_a_parameter_like_the_sum_of_the_bits():
    adaptive = {"adaptive_clip": {"quantile": 0.5, "rate": 0.2}, "noise_multiplier": 0.5}
    privacy = StudySettings.model_validate(settings_json(**adaptive)).privacy
    (name,) = set(privacy.sent({"w": ((2,), "float32")})) - {"w"}
    with pytest.raises(ValueError, match=f"adaptive_clip: the model has a parameter '{name}'"):
        privacy.sent({name: ((2,), "float32")})
    assert set(StudySettings.model_validate(PARALLEL).privacy.sent({name: ((2,), "float32")})) == {name}
