from pathlib import Path
from typing import Any

import pytest

from client_sdk.errors import ConfigurationError, PolicyRefused
from client_sdk.guard.own_budget import OwnLimit
from client_sdk.guard.policy import SitePolicy
from client_sdk.protocol.study.settings import StudySettings
from tests.factories.settings import settings

CLIENT_LIMIT = {"level": "client", "definition": "classical", "epsilon": 50.0, "delta": 1e-5}


def check(policy: SitePolicy, chosen: StudySettings, *, pinned: bool = False) -> None:
    policy.check("sepsis", "icu", chosen, roster_pinned=pinned)


@pytest.mark.parametrize(
    ("rules", "study", "code"),
    [
        ({"studies": ["stroke"]}, {}, "policy-study"),
        ({"datasets": ["ward"]}, {}, "policy-dataset"),
        ({"least_noise_multiplier": 1.5}, {}, "policy-noise"),
        ({"needs_masking": True}, {}, "policy-masking"),
        ({"pinned_roster": True}, {}, "policy-roster"),
        ({}, {"bayesian": True}, "policy-disclosure"),
        ({}, {"scheme": "client", "limits": [CLIENT_LIMIT]}, "policy-unnoised"),
        ({"limits": {"client": {"epsilon": 9.0, "delta": 1e-5}}}, {}, "policy-limits"),
        (
            {"unnoised_updates": True, "limits": {"instance": {"epsilon": 1.0, "delta": 1e-5}}},
            {"scheme": "client", "limits": [CLIENT_LIMIT]},
            "policy-unnoised",
        ),
    ],
)
def test_every_rule_says_no_by_its_name(rules: dict[str, Any], study: dict[str, Any], code: str) -> None:
    with pytest.raises(PolicyRefused) as caught:
        check(SitePolicy.model_validate(rules), settings(**study))
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("rules", "study"),
    [
        ({}, {}),
        ({"studies": ["sepsis", "stroke"], "datasets": ["icu"]}, {}),
        ({"least_noise_multiplier": 1.0}, {}),
        ({"plain_disclosure": True}, {"bayesian": True}),
        ({}, {"bayesian": True, "disclosure": "at-end"}),
        ({"unnoised_updates": True}, {"scheme": "client", "limits": [CLIENT_LIMIT]}),
        ({"limits": {"instance": {"epsilon": 1.0, "delta": 1e-5}}}, {}),
    ],
)
def test_what_is_allowed_passes(rules: dict[str, Any], study: dict[str, Any]) -> None:
    check(SitePolicy.model_validate(rules), settings(**study))
    check(SitePolicy.model_validate(rules | {"pinned_roster": True}), settings(**study), pinned=True)


def test_a_file_is_read_with_the_list_beside_it(tmp_path: Path) -> None:
    (tmp_path / "withdrawn.txt").write_text("p1\n\n p7 \n")
    path = tmp_path / "policy.toml"
    path.write_text(
        'studies = ["sepsis"]\nexcluded_patients_file = "withdrawn.txt"\nexcluded_patients = ["p3"]\n'
        "[limits.instance]\nepsilon = 2.0\ndelta = 1e-6\n[limits.client]\nepsilon = 4.0\ndelta = 1e-5\norder = 3.0\n"
    )
    policy = SitePolicy.read(path)
    assert policy.excluded_patients == ("p3", "p1", "p7")
    assert policy.own_limits() == (
        OwnLimit("instance", 2.0, 1e-6, OwnLimit.usual_order(2.0, 1e-6)),
        OwnLimit("client", 4.0, 1e-5, 3.0),
    )
    assert not policy.unnoised_updates
    assert not policy.plain_disclosure
    assert "p7" not in repr(policy)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("study = ['sepsis']", "study"),
        ("least_noise_multiplier = 0.0", "least_noise_multiplier"),
        ("least_noise_multiplier = nan", "least_noise_multiplier"),
        ("least_noise_multiplier = inf", "least_noise_multiplier"),
        ("studies = []", "studies"),
        ("[limits.instance]\nepsilon = -1.0\ndelta = 1e-5", "limits.instance.epsilon"),
        ("[limits.instance]\nepsilon = 1.0", "limits.instance.delta"),
        ("[limits.hospital]\nepsilon = 1.0\ndelta = 0.1", "limits.hospital"),
        ("unnoised_updates = 'patient-17'", "unnoised_updates"),
        ("studies = [", "TOML"),
        ("excluded_patients_file = 'nowhere.txt'", "cannot be read"),
    ],
    ids=[
        "misspelt",
        "no noise",
        "noise NaN",
        "noise infinite",
        "no studies",
        "epsilon below zero",
        "no delta",
        "unknown unit",
        "text for a switch",
        "no TOML",
        "no list",
    ],
)
def test_a_mistake_in_the_file_is_named_and_never_ignored(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=named) as caught:
        SitePolicy.read(path)
    assert "patient-17" not in str(caught.value)


def test_a_missing_file_is_an_error_not_an_open_door(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        SitePolicy.read(tmp_path / "policy.toml")
