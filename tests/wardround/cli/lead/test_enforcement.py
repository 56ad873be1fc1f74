"""The rule that `plan` and `study create` choose for a limit that names none, and what they say of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from accounting.budget.budget import Budget
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from study_protocol.study.slots import with_slots
from tests.factories.commands import Run
from tests.factories.live_coordinator import Live
from tests.factories.settings import limit, settings
from wardround.cli.lead.enforcement import for_creation, hint, with_tightest

QUESTIONS = {"max_queries": 10, "max_cells": 10}


def study(**changes: Any) -> StudySettings:
    """Sampled, with half of its limit to spare."""
    common: dict[str, Any] = {
        "limits": [limit("instance", epsilon=8.0)],
        "noise_multiplier": 2.0,
        "sampling_rate": 0.1,
        "max_steps": 100,
        "classical_order": 4.0,
    }
    return settings(**common | changes)


def rules(chosen: StudySettings) -> list[str | None]:
    return [limit.enforcement for limit in chosen.privacy.limits]


@pytest.mark.parametrize(
    ("chosen", "rule", "why"),
    [
        (study(), "fixed-plan", "all steps are planned"),
        (study(sampling_rate=1.0, noise_multiplier=20.0), "gaussian-filter", "all records are in every round"),
    ],
    ids=["sampled", "all records"],
)
def test_a_study_is_created_with_the_tightest_rule_and_says_why(chosen: StudySettings, rule: str, why: str) -> None:
    created, (reason,) = for_creation(chosen)
    assert rules(created) == [rule]
    assert f'enforcement = "{rule}", because {why}' in reason
    assert Budget.open(plan_of(created)).authorise().is_allowed
    # Nothing else changes, and a second time nothing does.
    as_before = created.as_json()
    del as_before["privacy"]["limits"][0]["enforcement"]
    assert as_before == chosen.as_json()
    assert for_creation(created) == (created, [])


@pytest.mark.quick("a rule that is named")
@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (study(max_steps=2_000), "rounds would begin at this noise, not"),
        (study(statistics=QUESTIONS), 'enforcement = "fixed-plan" and statistics.share = 0.2 a noise multiplier of'),
        (study(limits=[limit("instance", epsilon=8.0, enforcement="renyi-order")]), None),
    ],
    ids=["max_steps is only a bound", "questions without a share", "a rule that is named"],
)
def test_a_study_that_would_lose_something_is_created_as_it_is(chosen: StudySettings, said: str | None) -> None:
    created, notes = for_creation(chosen)
    assert created == chosen
    assert len(notes) == (said is not None)
    assert (said or "") in " ".join(notes)


def test_questions_beside_a_fixed_plan_get_a_share_and_beside_all_records_none() -> None:
    plan = plan_of(study(statistics=QUESTIONS))
    fixed, reasons = with_tightest(plan)
    assert fixed.queries is not None
    assert (fixed.limits[0].enforcement, fixed.queries.share) == ("fixed-plan", 0.2)
    assert "statistics.share = 0.2" in reasons[-1]
    kept, _ = with_tightest(plan, share=None)
    assert kept.limits[0].enforcement == "renyi-order"
    full, _ = with_tightest(plan_of(study(statistics=QUESTIONS, sampling_rate=1.0, noise_multiplier=20.0)))
    assert full.queries is not None
    assert (full.limits[0].enforcement, full.queries.share) == ("gaussian-filter", None)


def test_no_line_is_said_where_the_tight_rule_gives_nothing() -> None:
    assert hint(plan_of(for_creation(study())[0])) is None
    assert hint(plan_of(study(limits=[limit("instance", epsilon=0.001)]))) is None


@pytest.mark.slow
def test_the_command_creates_it_so(here: Live, run: Run, tmp_path: Path) -> None:
    path, chosen = tmp_path / "study.json", study()
    path.write_text(json.dumps(chosen.as_json()))
    said = run("study", "create", "sepsis", "--settings", str(path), operator=True).stderr
    assert 'enforcement = "fixed-plan", because all steps are planned' in said
    expected = for_creation(with_slots(chosen))[0]  # type: ignore[arg-type]
    assert here.operator("GET", "/v1/studies/sepsis").json()["settings_sha256"] == expected.digest()
