"""What is kept for windows of later patients: the numbers of a hand, and windows that do not fit together."""

from __future__ import annotations

import math

import pytest

from accounting.budget.budget import Budget
from accounting.plan.limits import PlanError
from study_protocol.documents.kept_windows import kept_for_windows, kept_in_words, require_windows
from study_protocol.study.plan_of import plan_of
from tests.client_sdk.guard.test_monitored_charges import closed_form
from tests.factories.monitored_studies import SECTION, monitored_study
from tests.factories.settings import limit, settings


@pytest.mark.parametrize("enforcement", ["gaussian-filter", "fixed-plan"])
@pytest.mark.parametrize("windows", [1, 4, 9])
def test_epsilon_of_one_and_of_all_windows_is_that_of_a_hand(windows: int, enforcement: str) -> None:
    limits = [limit("instance", epsilon=20.0, enforcement=enforcement)]
    statistics = {"max_queries": 9, "max_cells": 100, "share": 0.2}
    chosen = monitored_study(
        SECTION | {"windows": windows},
        limits=limits,
        noise_multiplier=200.0,
        sampling_rate=1.0,
        statistics=statistics if enforcement == "fixed-plan" else {"max_queries": 9, "max_cells": 100},
    )
    (kept,) = kept_for_windows(chosen)
    for stated, count in ((kept.each, 1), (kept.every, windows)):
        by_hand = closed_form(math.sqrt(count / 13.3**2))
        assert by_hand <= stated <= by_hand * 1.01
    (line,) = kept_in_words(chosen)
    assert line.startswith(f"Kept for {windows} windows of later patients, due from 2026-04-01 to ")


def test_a_study_without_windows_keeps_nothing() -> None:
    assert kept_for_windows(settings()) == []
    assert kept_in_words(settings()) == []
    require_windows(settings(), Budget(plan_of(settings())))


def test_windows_fit_up_to_the_limit_and_not_beyond() -> None:
    four = closed_form(math.sqrt(4 / 13.3**2))
    for epsilon, fits in ((four * 1.02, True), (four * 0.98, False)):
        limits = [limit("instance", epsilon=epsilon, enforcement="gaussian-filter")]
        chosen = monitored_study(limits=limits, noise_multiplier=200.0, sampling_rate=1.0)
        budget = Budget(plan_of(chosen))
        if fits:
            require_windows(chosen, budget)
            continue
        with pytest.raises(PlanError, match="the 4 windows could together pass a limit"):
            require_windows(chosen, budget)
