"""What docs/hospital.md and docs/site-policy.toml promise exists."""

import re
from pathlib import Path

from client_sdk.api.config import ClientSettings
from client_sdk.guard.policy import SitePolicy
from client_sdk.guard.policy_limits import Limits
from private_learning.tasks import load
from study_protocol.wire.variables import PREFIX
from wardround.cli.shared.settings_file import read_settings

DOCS = Path(__file__).parents[2] / "docs"


def test_the_example_policy_is_valid_and_names_every_entry() -> None:
    policy = SitePolicy.read(DOCS / "site-policy.toml")
    assert [(limit.level, limit.epsilon) for limit in policy.own_limits()] == [("instance", 8.0)]
    text = (DOCS / "site-policy.toml").read_text()
    assert all(f"{name} = " in text or re.search(rf"^\[{name}[.\]]", text, re.M) for name in SitePolicy.model_fields)
    assert set(Limits.model_fields) == {"instance", "client", "rule", "whole_plans"}


def test_the_example_study_is_one_whose_task_is_installed() -> None:
    training = read_settings(DOCS / "study.toml").training
    assert load(training.task, training.task_parameters).model() is not None


def test_every_environment_variable_of_the_guide_is_read() -> None:
    named = set(re.findall(rf"{PREFIX}[A-Z_]+", (DOCS / "hospital.md").read_text()))
    assert named <= {PREFIX + name.upper() for name in ClientSettings.model_fields}
    assert len(named) == 4
