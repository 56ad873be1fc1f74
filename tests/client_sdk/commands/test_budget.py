"""The budget as it is printed: enforced numbers first, rounded against the reader's hopes, and what each means."""

from __future__ import annotations

from typing import Any

import pytest

from client_sdk.commands.budget import show
from client_sdk.protocol.study.messages import BudgetLedger, BudgetStatement, LimitStatement


def limit(**given: Any) -> LimitStatement:
    empty: dict[str, Any] = dict.fromkeys(LimitStatement.model_fields) | {"reports": []}
    own = {"level": "instance", "definition": "classical", "state": "within", "enforced_by": "coordinator"}
    return LimitStatement.model_validate(empty | own | given)


def statement(*limits: LimitStatement, **given: Any) -> BudgetStatement:
    return BudgetStatement.model_construct(
        study="sepsis",
        round=3,
        limits=list(limits),
        ledger=BudgetLedger.model_construct(entries=7, head="sha256:ab"),
        **{"can_continue": True, "stop_reason": None, **given},
    )


def test_numbers_are_rounded_up_and_what_is_left_down(capsys: pytest.CaptureFixture[str]) -> None:
    show(statement(limit(spent=1.00001, reserved=0.5, remaining=6.49999, epsilon=8.0, delta=1e-5)))
    shown = capsys.readouterr().out
    assert "sepsis, round 3: may continue" in shown
    assert all(text in shown for text in ("1.001", "0.500", "6.499", "8.000", "1e-05", "coordinator"))
    assert "ledger: 7 entries, head sha256:ab" in shown


def test_a_level_that_nothing_protects_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    show(statement(limit(level="client", state="unbounded")))
    assert "nothing protects this level" in capsys.readouterr().out


def test_an_ended_study_says_why_and_a_certificate_what_it_assumes(capsys: pytest.CaptureFixture[str]) -> None:
    certified = limit(spent=1.0, epsilon=2.0, certificate={"assumption": "records are drawn alike"})
    show(statement(certified, can_continue=False, stop_reason="budget-exhausted"))
    shown = capsys.readouterr().out
    assert "ended: budget-exhausted" in shown
    assert "instance classical: records are drawn alike" in shown
