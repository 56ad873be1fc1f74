"""The report of `wardround plan`, on forecasts made by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accounting.budget.forecast import Forecast, LimitForecast
from accounting.plan.limits import LimitPlan
from accounting.plan.signal import SignalToNoise
from accounting.units import Definition, Level
from study_protocol.study.plan_of import plan_of
from tests.factories.settings import limit, settings
from wardround.cli.lead.plan_report import (
    note_bounds,
    show_forecast,
    show_notes,
    show_replaced,
    show_signals,
    why_no_round,
)

STUDY = settings()
CLASSICAL = LimitForecast(
    limit=LimitPlan(Level.INSTANCE, Definition.CLASSICAL, 8.0, 1e-5, None),
    enforced_by="filter",
    order=4.0,
    least_order=1.5,
    fixed_term=2.00001,
    first_round=2.50001,
    further_round=0.12341,
    rounds=2,
    enforced=2.6234,
    epsilon=2.6234,
    at_most=2.6234,
    least=None,
    evaluated=None,
    guess=0.77412,
    reports=(),
)


def outlook(**values: Any) -> Forecast:
    whole = Forecast(plan_of(STUDY), 2, 3, "budget-exhausted", (CLASSICAL.limit,), (CLASSICAL,))
    return replace(whole, **values)


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_losses_are_rounded_up_and_the_end_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    show_forecast(outlook())
    out = printed(capsys)
    for words in (
        "2 of 3 within max_steps (at least, and at most 3)",
        "the next round could pass the classical limit at level instance",
        "instance classical: ε ≤ 8 at δ = 1e-05",
        "2.624",
        "2.501 (fixed 2.001)",
        "0.124",
        "4 (at least 1.5)",
        "77.5 % at most",
        "multiplier 1 at clip norm 1",
    ):
        assert words in out


@pytest.mark.parametrize(("rounds", "said"), [(2, "varies"), (1, "│ │")])
def test_a_round_that_costs_no_one_number_varies(rounds: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    show_forecast(outlook(limits=(replace(CLASSICAL, further_round=math.nan, rounds=rounds),)))
    out = printed(capsys)
    assert said in out
    assert "unknown" not in out


def test_what_holds_for_any_data_is_rounded_down(capsys: pytest.CaptureFixture[str]) -> None:
    bayesian = replace(
        CLASSICAL,
        limit=LimitPlan(Level.INSTANCE, Definition.BAYESIAN, 4.0, 1e-5, 1e-6),
        least=1.99999,
        evaluated=0.5001,
    )
    show_forecast(outlook(limits=(bayesian,), at_most_rounds=2, reason="max-steps-reached"))
    out = printed(capsys)
    assert "2.624 at most" in out
    assert "1.999 at least" in out
    assert "patients set aside, all evaluations 0.501" in " ".join(out.replace("│", " ").split())
    assert "2 of 3 within max_steps (certain)" in out
    assert "all steps of max_steps have been taken" in out


SIGNAL = SignalToNoise(records=1000, expected_batch=500.0, signal=500.0, noise=4.0, alone=125.0, together=300.0)


def test_a_model_with_more_parameters_than_the_signal_bears_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """300 / √90,000 is 1, and of 160,000 parameters 0.75."""
    show_signals([SIGNAL], 90_000, STUDY, outlook())
    assert "the noise is larger" not in capsys.readouterr().out
    show_signals([SIGNAL], 160_000, STUDY, outlook())
    assert "0.75, the noise is larger" in printed(capsys)
    show_signals([SIGNAL, replace(SIGNAL, records=None, expected_batch=None)], None, STUDY, outlook())
    out = printed(capsys)
    assert "9.00e+04" in out
    assert "1,000" in out
    assert "The study: 4 such hospitals that all agree, over 2 steps." in out


def test_settings_to_copy_are_printed_or_said_to_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    show_replaced({"privacy.max_steps": 7}, None)
    assert capsys.readouterr().out == "\nSettings to copy:\nprivacy.max_steps = 7\n"
    show_replaced({"privacy.max_steps": 7}, Path("solved.toml"))
    assert capsys.readouterr().out.startswith("\nsolved.toml: written, with\n")
    show_replaced({}, None)
    assert capsys.readouterr().out == ""


def test_questions_beside_another_rule_leave_fewer_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    asked = plan_of(settings(statistics={"max_queries": 10, "max_cells": 10}))
    show_forecast(outlook(plan=asked))
    assert "Each question on all patients leaves room for fewer." in printed(capsys)
    show_forecast(outlook())
    assert "question" not in printed(capsys)


def test_a_clip_norm_that_moves_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    moving = {"quantile": 0.3, "rate": 0.2}
    show_notes(settings(adaptive_clip=moving, expected_batch_size=1_000.0), outlook())
    assert "is that of the first round, and adaptive_clip moves it" in capsys.readouterr().err
    show_notes(STUDY, outlook())
    assert "adaptive_clip" not in capsys.readouterr().err


def test_a_bayesian_limit_that_shows_nothing_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    bayesian = replace(CLASSICAL, limit=LimitPlan(Level.INSTANCE, Definition.BAYESIAN, 4.0, 1e-5, 1e-6), least=2.6234)
    show_notes(STUDY, outlook(limits=(bayesian,)))
    noted = capsys.readouterr().err
    assert "Bayesian numbers are worst cases at the clip norm" in noted
    assert "the Bayesian limit at level instance has no benefit" in noted
    show_notes(STUDY, outlook(limits=(replace(bayesian, least=1.0),)))
    assert "has no benefit" not in capsys.readouterr().err


def test_rounds_that_will_be_abandoned_and_a_task_that_nobody_has_are_noted(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = settings(schedule={"min_clients": 5}, training={"task": "no-such-task"})
    show_notes(chosen, outlook())
    noted = capsys.readouterr().err
    assert "schedule.min_clients is 5, but privacy.expected_clients says that 4" in noted
    assert "no-such-task" in noted


def test_what_a_coordinator_refuses_is_noted_unless_it_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    weak = settings(noise_multiplier=0.1, limits=[limit("instance", epsilon=30.0)])
    note_bounds(weak)
    assert capsys.readouterr().err == ""
    note_bounds(weak.model_copy(update={"beyond_bounds": False}))
    noted = capsys.readouterr().err
    assert "`study create` refuses these settings without --i-know" in noted
    assert "epsilon, 30, is above 20" in noted


def test_why_no_round_can_begin_is_the_budget_s_own_reason() -> None:
    hopeless = settings(limits=[limit("instance", epsilon=0.01)])
    reason = why_no_round(outlook(plan=plan_of(hopeless)))
    assert reason
    assert "instance" in reason
