"""A rule of the site policy: the first one that is not met is the refusal, by its code and its text."""

from __future__ import annotations

import pytest

from client_sdk.errors import PolicyRefused
from client_sdk.guard.policy import SitePolicy
from client_sdk.guard.rule import PolicyRule
from client_sdk.guard.rules import require_allowed, rules
from tests.factories.settings import settings


def rules_of(policy: SitePolicy) -> list[PolicyRule]:
    return list(rules(policy, "sepsis", "icu", settings(), roster_pinned=False))


def test_rules_that_are_met_refuse_nothing() -> None:
    policy = SitePolicy.model_validate({"largest_epsilon": 50.0})
    assert {rule.is_met for rule in rules_of(policy)} == {True}
    require_allowed(policy, "sepsis", "icu", settings(), roster_pinned=False)


def test_the_first_rule_that_is_not_met_is_the_refusal() -> None:
    policy = SitePolicy.model_validate({"datasets": ["ward"], "least_noise_multiplier": 1.5, "largest_epsilon": 1.0})
    unmet = [rule for rule in rules_of(policy) if not rule.is_met]
    assert [rule.code for rule in unmet] == ["policy-dataset", "policy-noise", "policy-epsilon"]
    with pytest.raises(PolicyRefused) as refused:
        require_allowed(policy, "sepsis", "icu", settings(), roster_pinned=False)
    assert refused.value.code == unmet[0].code
    assert str(refused.value).endswith(unmet[0].text)
