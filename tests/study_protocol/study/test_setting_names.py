"""Errors about settings name the section and the entry, whichever part of the program finds them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

import accounting
from accounting.budget.budget import Budget
from accounting.errors import AccountingError, InvalidArgument
from accounting.plan.limits import PlanError
from study_protocol.study.any_settings import StatisticsSettings
from study_protocol.study.plan_of import plan_of
from study_protocol.study.setting_names import SETTINGS, naming_settings
from study_protocol.study.settings import StudySettings
from study_protocol.wire.wrong_entries import models_in, wrong_entries
from tests.factories.settings import MASKING, limit, settings, settings_json, statistics_settings

STATISTICS = {"max_queries": 5, "max_cells": 10}
ADAPTIVE = {"quantile": 0.3, "rate": 0.2}
FIXED = [limit("instance", epsilon=8.0, enforcement="fixed-plan")]
PATH = {"adversary": "path"}
FEDAVG = {"algorithm": "fedavg", "local_steps": 4}
EVALUATION = {"share": 0.2, "every": 1, "question": {"prediction": "binary", "noise_multiplier": 5.0, "bins": 4}}
MULTIPLE = [limit("instance"), limit("instance")]


def is_setting(name: str) -> bool:
    """Whether a dotted name is that of a section or an entry of the settings."""
    sections: list[type[BaseModel]] = [StudySettings]
    for part in name.split("."):
        if part.isdecimal():
            continue
        fields = [section.model_fields[part] for section in sections if part in section.model_fields]
        if not fields:
            return False
        sections = [model for field in fields for model in models_in(field)]
    return True


def named_settings(line: str) -> list[str]:
    """Return the entries that a line names with their section, such as `training.local_steps: …`.

    A rule of one section may also begin with its entry: `training: local_steps must …`.
    """
    names = re.findall(r"[a-z_]+(?:\.[a-z0-9_]+)+", line)
    first = re.match(r"([a-z0-9_.]+): ([a-z_]+)", line)
    names += [] if first is None else [f"{first[1]}.{first[2]}"]
    return [name for name in names if is_setting(name)]


def test_every_plan_field_has_a_setting_that_exists() -> None:
    assert [name for name in SETTINGS.values() if not is_setting(name)] == []
    root = Path(str(accounting.__file__)).parent
    text = "\n".join(path.read_text("utf-8") for path in sorted(root.rglob("*.py")))
    fields = set(re.findall(r'PlanError\(\s*"(\w+)"', text))
    assert {"share", "noise_schedule", "enforcement"} <= fields
    # Of one limit: its place in the settings is known before the plan is.
    assert fields - set(SETTINGS) == {"definition", "estimator_failure_probability"}


@pytest.mark.parametrize(
    "broken",
    [
        settings_json(max_steps=3, training=FEDAVG),
        settings_json(masked=True, schedule={"min_clients": 2}),
        settings_json(masked=True, schedule={"slots": [90.0]}),
        settings_json("sequential", training=FEDAVG),
        settings_json(noise_schedule=[{"rounds": 2, "factor": 1.0}]),
        settings_json(noise_schedule=[{"rounds": 3, "factor": 1e9}]),
        settings_json(bayesian=True, noise_schedule=[{"rounds": 3, "factor": 1.0}]),
        settings_json(limits=FIXED, statistics=STATISTICS),
        settings_json(limits=FIXED, statistics=STATISTICS | {"share": 1.0}),
        settings_json(statistics=STATISTICS | {"share": 0.2}),
        settings_json(statistics=STATISTICS | {"allowance": 0.2}),
        settings_json(bayesian=PATH, statistics=STATISTICS),
        settings_json(statistics=STATISTICS | {"max_queries": 1}, evaluation=EVALUATION),
        settings_json("client", training={"clipping": "per-layer"}),
        settings_json("client", training={"clipping_centre": "previous-update"}),
        settings_json(training=FEDAVG | {"clipping_centre": "previous-update"}, max_steps=4),
        settings_json(training={"local_steps": 2}),
        settings_json(training={"local_optimiser": {"name": "adam"}}),
        settings_json(schedule={"slots": [2.0, 1.0]}),
        settings_json(schedule={"slots": [900.0]}),
        settings_json(evaluation={"share": 0.2, "every": 2}, statistics=STATISTICS),
        settings_json(adaptive_clip=ADAPTIVE, noise_multiplier=0.5, training=FEDAVG, max_steps=4),
        settings_json(adaptive_clip=ADAPTIVE, noise_multiplier=0.5, training={"clipping": "per-layer"}),
        settings_json(adaptive_clip=ADAPTIVE | {"min": 2.0}, noise_multiplier=0.5),
        settings_json(adaptive_clip=ADAPTIVE | {"max": 0.5}, noise_multiplier=0.5),
        settings_json(adaptive_clip=ADAPTIVE, noise_multiplier=50.0),
        settings_json("client", adaptive_clip=ADAPTIVE),
        settings_json(bayesian=True, adaptive_clip=ADAPTIVE),
        settings_json(robustness={"aggregation": "median"}),
        settings_json(robustness={"aggregation": "median"}, masked=True),
        settings_json(robustness={"trim": 1}),
        settings_json(robustness={"sum_radius": 0.5}),
        settings_json("client", robustness={"sum_radius": 5.0}),
        settings_json(limits=MULTIPLE),
        settings_json("joint", client_clip_norm=None),
        settings_json("sequential", masking=None),
        settings_json(masking=MASKING | {"mask_updates": False}),
        settings_json(masking=MASKING | {"min_survivors": 3}),
        settings_json(bayesian=True, limits=[limit("instance")]),
        settings_json("client", bayesian={"composition": "running"}),
        settings_json(bayesian=True, disclosure="noised"),
        settings_json(accounting_sample={"records": 10, "source": "held-out"}),
        settings_json(limits=[limit("instance", enforcement="fixed-plan", estimator_failure_probability=1e-6)]),
    ],
)
def test_every_refusal_names_the_section_and_the_entry(broken: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as error:
        StudySettings.model_validate(broken)
    lines = wrong_entries(error.value, StudySettings)
    assert lines
    assert [line for line in lines if not named_settings(line)] == []


@pytest.mark.parametrize("entry", ["share", "allowance"])
def test_so_does_a_study_of_questions_alone(entry: str) -> None:
    values = statistics_settings().as_json()
    with pytest.raises(ValidationError) as error:
        StatisticsSettings.model_validate(values | {"statistics": values["statistics"] | {entry: 0.2}})
    (line,) = wrong_entries(error.value, StatisticsSettings)
    assert named_settings(line) == [f"statistics.{entry}"]


@pytest.mark.parametrize(
    ("chosen", "name"),
    [
        (settings(limits=[limit("instance", enforcement="gaussian-filter")]), "privacy.limits.enforcement"),
        (settings(noise_multiplier=1e-60), "privacy.noise_multiplier"),
        (settings(limits=[limit("instance", epsilon=0.1, enforcement="fixed-plan")]), "privacy.max_steps"),
        (settings(limits=[limit("instance", epsilon=0.1)]), "privacy.classical_order"),
    ],
)
def test_so_do_settings_that_no_budget_can_be_kept_for(chosen: StudySettings, name: str) -> None:
    with pytest.raises(PlanError) as refused, naming_settings():
        Budget.open(plan_of(chosen))
    assert refused.value.field == name
    assert str(refused.value).startswith(f"{name}: ")


def test_arguments_that_are_no_settings_keep_their_names() -> None:
    for argument, name in (("max_steps", "privacy.max_steps"), ("cells", "cells")):
        with pytest.raises(AccountingError) as refused, naming_settings():
            raise InvalidArgument(argument, "is wrong")
        assert str(refused.value) == f"{name}: is wrong"
