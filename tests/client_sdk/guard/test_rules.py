"""The studies that a site policy allows, rule by rule."""

from pathlib import Path
from typing import Any

import pytest

from client_sdk.errors import PolicyRefused
from client_sdk.guard.policy import SitePolicy
from client_sdk.guard.rules import require_allowed
from study_protocol.study.settings import StudySettings
from tests.factories.settings import settings

# Of the factory's studies.
WIDE = {"largest_epsilon": 50.0}


BACKSTOP = {"level": "instance", "definition": "classical", "epsilon": 8.0, "delta": 1e-5}


CLIENT_LIMIT = {"level": "client", "definition": "classical", "epsilon": 50.0, "delta": 1e-5}


def check(policy: SitePolicy, chosen: StudySettings, *, pinned: bool = False) -> None:
    require_allowed(policy, "sepsis", "icu", chosen, roster_pinned=pinned)


@pytest.mark.parametrize(
    ("wanted", "hospitals", "allowed"), [(2, 3, True), (3, 3, False), (3, 4, True), (3, None, True)]
)
def test_more_witnesses_than_there_can_be_are_refused_before_a_round(
    wanted: int, hospitals: int | None, allowed: bool
) -> None:
    policy = SitePolicy.model_validate(WIDE | {"min_witnesses": wanted})
    if allowed:
        require_allowed(policy, "sepsis", "icu", settings(), roster_pinned=True, expected=hospitals)
        return
    with pytest.raises(PolicyRefused, match="hospitals: 2, auditors: 0") as refused:
        require_allowed(policy, "sepsis", "icu", settings(), roster_pinned=True, expected=hospitals)
    assert refused.value.code == "policy-witnesses"


@pytest.mark.parametrize(
    ("rules", "study", "code"),
    [
        ({"studies": ["stroke"]}, {}, "policy-study"),
        ({"datasets": ["ward"]}, {}, "policy-dataset"),
        ({"least_noise_multiplier": 1.5}, {}, "policy-noise"),
        ({"needs_masking": True}, {}, "policy-masking"),
        ({"least_colluders": 2, "unpinned_roster": "laboratory"}, {"masked": True}, "policy-masking"),
        ({"unpinned_roster": "refused"}, {}, "policy-roster"),
        ({}, {"masked": True}, "policy-roster"),
        ({"largest_epsilon": 49.0}, {}, "policy-epsilon"),
        ({"largest_delta": 9e-6}, {}, "policy-delta"),
        ({}, {"bayesian": True}, "policy-disclosure"),
        ({}, {"scheme": "client", "limits": [CLIENT_LIMIT]}, "policy-unnoised"),
        ({"limits": {"client": {"epsilon": 9.0, "delta": 1e-5}}}, {}, "policy-limits"),
        (
            {"unpinned_roster": "laboratory", "limits": {"instance": {"epsilon": 1.0, "delta": 1e-5}}},
            {"scheme": "client-distributed"},
            "policy-limits",
        ),
        (
            {"unpinned_roster": "laboratory", "individual": {"epsilon": 1.0, "delta": 1e-6}},
            {"scheme": "client-distributed"},
            "policy-limits",
        ),
        (
            {"unnoised_updates": True, "limits": {"instance": {"epsilon": 1.0, "delta": 1e-5}}},
            {"scheme": "client", "limits": [CLIENT_LIMIT]},
            "policy-unnoised",
        ),
    ],
)
def test_every_rule_says_no_by_its_name(rules: dict[str, Any], study: dict[str, Any], code: str) -> None:
    with pytest.raises(PolicyRefused) as caught:
        check(SitePolicy.model_validate(WIDE | rules), settings(**study))
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("rules", "study"),
    [
        ({}, {}),
        # Updates leave with noise: unnoised_updates is not needed, and whole hospitals are counted.
        ({"unpinned_roster": "laboratory"}, {"scheme": "client-distributed"}),
        (
            {"unpinned_roster": "laboratory", "limits": {"client": {"epsilon": 9.0, "delta": 1e-5}}},
            {"scheme": "client-distributed"},
        ),
        ({"studies": ["sepsis", "stroke"], "datasets": ["icu"]}, {}),
        ({"least_noise_multiplier": 1.0}, {}),
        ({"plain_disclosure": True}, {"bayesian": True}),
        ({}, {"bayesian": True, "disclosure": "at-end"}),
        ({"unnoised_updates": True}, {"scheme": "client", "limits": [CLIENT_LIMIT]}),
        ({"limits": {"instance": {"epsilon": 1.0, "delta": 1e-5}}}, {}),
    ],
)
def test_what_is_allowed_passes(rules: dict[str, Any], study: dict[str, Any]) -> None:
    check(SitePolicy.model_validate(WIDE | rules), settings(**study))
    check(SitePolicy.model_validate(WIDE | rules | {"unpinned_roster": "refused"}), settings(**study), pinned=True)


ABSURD = {"noise_multiplier": 0.001, "limits": [BACKSTOP | {"epsilon": 1e12, "delta": 0.999}]}


@pytest.mark.parametrize(
    ("study", "code"),
    [
        (ABSURD, "policy-noise"),
        ({"noise_multiplier": 0.29, "limits": [BACKSTOP]}, "policy-noise"),
        ({"limits": [BACKSTOP | {"epsilon": 20.001}]}, "policy-epsilon"),
        ({"limits": [BACKSTOP | {"delta": 0.0011}]}, "policy-delta"),
        # Whatever the operator says.
        ({"limits": [BACKSTOP | {"epsilon": 20.001}], "beyond_bounds": True}, "policy-epsilon"),
    ],
)
def test_without_a_written_rule_there_are_floors(study: dict[str, Any], code: str, tmp_path: Path) -> None:
    said = study.pop("beyond_bounds", False) if "beyond_bounds" in study else False
    chosen = settings(**study).model_copy(update={"beyond_bounds": said})
    (tmp_path / "policy.toml").write_text("")
    for policy in (SitePolicy(), SitePolicy.in_force(tmp_path)):
        with pytest.raises(PolicyRefused) as caught:
            check(policy, chosen)
        assert caught.value.code == code


def test_at_the_floors_a_study_is_allowed_and_beyond_them_only_in_writing(tmp_path: Path) -> None:
    edge = {"noise_multiplier": 0.3, "limits": [BACKSTOP | {"epsilon": 20.0, "delta": 1e-3}]}
    check(SitePolicy(), settings(**edge))
    wide = settings(limits=[BACKSTOP | {"epsilon": 50.0}])
    (tmp_path / "policy.toml").write_text("largest_epsilon = 50.0\n")
    check(SitePolicy.in_force(tmp_path), wide)


def test_the_noise_that_counts_is_what_is_sure_in_a_sum() -> None:
    """Sequential: three honest survivors of four. Joint: over what a whole hospital may move, too."""
    shared = settings("sequential", noise_multiplier=0.2, limits=[BACKSTOP])
    check(SitePolicy(), shared, pinned=True)
    with pytest.raises(PolicyRefused, match=r"sure of 0\.346"):
        check(SitePolicy(least_noise_multiplier=0.35), shared, pinned=True)
    limits = [BACKSTOP, CLIENT_LIMIT | {"epsilon": 20.0}]
    both = settings("joint", noise_multiplier=0.2, limits=limits, client_clip_norm=2.0)
    with pytest.raises(PolicyRefused, match=r"sure of 0\.173"):
        check(SitePolicy(), both, pinned=True)
