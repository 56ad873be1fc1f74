"""The cost of a query before a person decides: in the study's limits, and in the hospital's own."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scipy.optimize import brentq
from scipy.special import ndtr

from client_sdk.errors import Refused
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.policy import SitePolicy
from study_protocol.queries.question import BaseQuestion
from study_protocol.study.limit_statement import LimitProgress, LimitStatement, PlannedSteps, SumOfSquares
from study_protocol.study.queries import LimitAfter
from tests.factories.signed_answers import document, shown
from wardround.cli.hospital.query_cost import cost_in_words

ASKED = document()


def client(progress: LimitProgress | None, *, after: float | None = 2.0, knows: bool = True) -> Any:
    """A coordinator that states one limit."""

    def forecast(*_: object) -> Any:
        if not knows:
            raise Refused("forbidden", "operators alone")
        limit = LimitAfter(level="instance", definition="classical", epsilon=2.0, before=1.23401, after=after)
        return SimpleNamespace(limits=[limit])

    stated = LimitStatement.model_construct(level="instance", definition="classical", progress=progress)
    return SimpleNamespace(forecast_query=forecast, budget=lambda _: SimpleNamespace(limits=[stated]))


def of_plan(used: float, allowed: float) -> LimitProgress:
    steps = PlannedSteps(used=1, reserved=0, allowed=10)
    squares = SumOfSquares(used=used, reserved=0.0, allowed=allowed)
    return LimitProgress(enforcement="fixed-plan", steps=steps, squares=squares)


@pytest.mark.parametrize(("used", "allowed"), [(0.0, 1.0), (0.123, 0.7), (1e-9, 3.0), (0.1, 0.1 + 1 / 36)])
def test_the_share_for_questions_is_never_shown_smaller_than_it_is(tmp_path: Path, used: float, allowed: float) -> None:
    (line,) = cost_in_words(client(of_plan(used, allowed)), tmp_path, shown(ASKED))
    assert "(of the whole plan). Used of the share for questions: " in line
    noise = Decimal(ASKED.cost().noise_multiplier)
    exact = [Decimal(used) / Decimal(allowed), (Decimal(used) + 1 / noise**2) / Decimal(allowed)]
    texts = line.rpartition(": ")[2].split(" → ")
    for text, share in zip(texts, exact, strict=True):
        assert Decimal(0) <= Decimal(text.removesuffix(" %")) - 100 * share + Decimal("1e-9") < Decimal("0.1001")


def test_epsilon_is_rounded_up_and_a_limit_that_is_passed_has_no_number(tmp_path: Path) -> None:
    (line,) = cost_in_words(client(None, after=None), tmp_path, shown(ASKED))
    assert line == "cost for each patient in this study (instance classical): ε 1.235 → unbounded, at most 2"


def test_an_evaluation_takes_nothing_of_the_share_for_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BaseQuestion, "bears", "evaluated")
    (line,) = cost_in_words(client(of_plan(0.0, 1.0)), tmp_path, shown(ASKED))
    assert line.endswith("(of the whole plan)")


def test_an_older_coordinator_and_a_query_that_is_over_give_no_line(tmp_path: Path) -> None:
    assert cost_in_words(client(None, knows=False), tmp_path, shown(ASKED)) == []
    over = shown(ASKED).model_copy(update={"state": "failed"})
    assert cost_in_words(client(None), tmp_path, over) == []


def test_the_own_budget_is_that_of_the_data_sets_that_take_part(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(
        '[limits]\nrule = "gaussian"\n[limits.instance]\nepsilon = 4.0\ndelta = 1e-5\n'
    )
    rules, query = SitePolicy.read(tmp_path / "policy.toml"), shown(ASKED)
    for name, study in (("records", query.study), ("other", "stroke")):
        with HospitalLedger.open(ledger_path(tmp_path, name)) as ledger:
            ledger.fix_terms(rules.limits)
            ledger.open_study(study, {})
    lines = cost_in_words(client(None), tmp_path, query)
    (own,) = [line for line in lines if line.startswith("cost in this hospital's own budget of ")]
    assert own.startswith("cost in this hospital's own budget of records (instance): ε 0.000 → ")
    assert own.endswith(", at most 4")
    assert lines[-1].startswith("the two differ: the own budget counts all studies on these records")
    # One Gaussian release with μ = 1 / noise (Balle and Wang 2018, theorem 8). A hundredth of δ is for discrete noise.
    mu = 1 / ASKED.cost().noise_multiplier
    exact: Any = brentq(
        lambda e: ndtr(mu / 2 - e / mu) - math.exp(e) * ndtr(-mu / 2 - e / mu) - 0.99e-5, 0.01, 4.0, xtol=1e-12
    )
    assert exact <= float(own.split(" → ")[1].split(",")[0]) < exact + 2e-3
