"""Own limits without room for a whole study are named at once, with what would do."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mpmath
import pytest

from accounting.accountants.classical import ClassicalAccountant
from client_sdk.errors import ConfigurationError, OwnBudgetExceeded
from client_sdk.guard.admission import admit, min_epsilon, own_limit_in_words
from client_sdk.guard.charges import Charge
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.limit_terms import WholePlan
from client_sdk.guard.policy import SitePolicy
from tests.factories.settings import limit, settings

STUDY = settings()
ROUND = Charge.of(STUDY)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[HospitalLedger]:
    with HospitalLedger.open(tmp_path / "ledgers" / "icu.db") as opened:
        yield opened


def policy(entry: str, epsilon: float, *, delta: float = 1e-6, order: float | None = None, **terms: Any) -> SitePolicy:
    values = {"epsilon": epsilon, "delta": delta} | ({} if order is None else {"order": order})
    return SitePolicy.model_validate(
        {"individual": values} if entry == "individual" else {"limits": {entry: values, **terms}}
    )


def needed(ledger: HospitalLedger, entry: str, **more: Any) -> float:
    with pytest.raises(OwnBudgetExceeded, match=rf"\[(limits\.)?{entry}\] epsilon = 0\.01 in policy\.toml") as refused:
        admit(policy(entry, 0.01, **more), ledger, "sepsis", STUDY)
    number = re.search(r"at least ([0-9.]+)", refused.value.detail)
    assert number is not None
    return float(number[1])


@pytest.mark.parametrize("more", [{}, {"order": 8.0}])
@pytest.mark.parametrize("entry", ["instance", "individual"])
def test_the_number_that_is_named_is_enough_and_little_less_is_not(
    ledger: HospitalLedger, entry: str, more: dict[str, Any]
) -> None:
    least = needed(ledger, entry, **more)
    admit(policy(entry, least, **more), ledger, "sepsis", STUDY)
    with pytest.raises(OwnBudgetExceeded):
        admit(policy(entry, 0.98 * least, **more), ledger, "sepsis", STUDY)


def test_it_is_the_accountants_number_for_all_rounds(ledger: HospitalLedger) -> None:
    account = ClassicalAccountant(delta=1e-6, method="rdp", order=8.0)
    account.step(noise_multiplier=1.0, sampling_rate=0.5, count=3)
    assert 1.0 <= needed(ledger, "instance", order=8.0) / account.epsilon() < 1.02


def stated(ledger: HospitalLedger, rules: SitePolicy) -> tuple[str, float]:
    words = own_limit_in_words(rules, ledger, "sepsis", STUDY)
    spent = re.search(r"(With all rounds of this study|What is charged so far).* at ([0-9.]+) by that rule", words)
    assert spent is not None
    return spent[1], float(spent[2])


def test_a_hospital_reads_before_it_agrees_what_the_study_takes_of_its_own_limit(ledger: HospitalLedger) -> None:
    def spent(rounds: int, delta: float) -> float:
        account = ClassicalAccountant(delta=delta, method="rdp", order=8.0)
        account.step(noise_multiplier=1.0, sampling_rate=0.5, count=rounds)
        return account.epsilon()

    def is_rounded_up(shown: float, exact: float) -> bool:
        return exact <= shown <= exact + 1.01e-3

    rules = policy("instance", 20.0, order=8.0)
    assert own_limit_in_words(SitePolicy(), ledger, "sepsis", STUDY).startswith("none for instance (policy.toml")
    ledger.fix_terms(rules.limits)
    words, shown = stated(ledger, rules)
    assert (words, is_rounded_up(shown, spent(3, 1e-6))) == ("With all rounds of this study", True)
    # Another study was admitted whole, and its part is reserved beside what is charged round by round.
    ledger.open_study("burns", {"whole_plan": WholePlan("instance", 1.5, 1e-7, 10).to_dict()})
    assert is_rounded_up(stated(ledger, rules)[1], 1.5 + spent(3, 1e-6 - 1e-7))
    ledger.open_study("sepsis", {})
    ledger.charge("sepsis", 1, ROUND, (), "a" * 64)
    words, shown = stated(ledger, rules)
    assert (words, is_rounded_up(shown, 1.5 + spent(1, 1e-6 - 1e-7))) == ("What is charged so far", True)


def test_other_rounds_on_the_same_records_count(ledger: HospitalLedger) -> None:
    before = needed(ledger, "instance", order=8.0)
    ledger.open_study("stroke", {})
    for number in range(1, 6):
        ledger.charge("stroke", number, ROUND, (), "a" * 64)
    assert needed(ledger, "instance", order=8.0) > before


@pytest.mark.parametrize("rule", ["renyi", "gaussian"])
def test_the_rounds_that_are_said_to_fit_are_those_that_would_begin(ledger: HospitalLedger, rule: str) -> None:
    study, rules = settings(max_steps=40, sampling_rate=1.0, noise_multiplier=8.0), policy("instance", 3.0, rule=rule)
    with pytest.raises(OwnBudgetExceeded, match=r"leaves room for (\d+) of the 40 rounds") as refused:
        admit(rules, ledger, "sepsis", study)
    said = re.search(r"room for (\d+) of", refused.value.detail)
    assert said is not None
    ledger.fix_terms(rules.limits)
    ledger.open_study("sepsis", {})
    begun, limits, once = int(said[1]), rules.own_limits(ledger.terms(rules.limits)), Charge.of(study)
    for number in range(1, begun + 1):
        ledger.charge("sepsis", number, once, limits, "a" * 64)
    with pytest.raises(OwnBudgetExceeded):
        ledger.charge("sepsis", begun + 1, once, limits, "a" * 64)
    shorter = settings(max_steps=begun, sampling_rate=1.0, noise_multiplier=8.0)
    with HospitalLedger.open(_beside(ledger)) as fresh:
        admit(rules, fresh, "sepsis", shorter)


def _beside(ledger: HospitalLedger) -> Path:
    (row,) = ledger._connection.execute("PRAGMA database_list").fetchall()
    return Path(row[2]).with_name("fresh.db")


def test_the_gaussian_rule_is_the_closed_form_and_says_what_it_does_not_credit(ledger: HospitalLedger) -> None:
    """25 steps at noise 8: Σ 1/σ² in 60 digits (Balle & Wang 2018, Theorem 8)."""
    study = settings(max_steps=25, sampling_rate=0.1, noise_multiplier=8.0)
    with pytest.raises(OwnBudgetExceeded, match="counts a sampled step as one of all patients") as refused:
        admit(policy("instance", 0.5, rule="gaussian"), ledger, "sepsis", study)
    named = re.search(r"at least ([0-9.]+)", refused.value.detail)
    assert named is not None
    with mpmath.workdps(60):
        mu = mpmath.sqrt(mpmath.mpf(25) / 64)

        def delta(epsilon: float) -> mpmath.mpf:
            return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)

        assert delta(float(named[1])) <= mpmath.mpf("1e-6")
        assert delta(float(named[1]) * 0.98) > mpmath.mpf("1e-6")


@pytest.mark.parametrize("rule", ["renyi", "gaussian"])
def test_rounds_of_a_lost_ledger_are_not_counted_twice(ledger: HospitalLedger, rule: str) -> None:
    least = needed(ledger, "instance", rule=rule)
    rules = policy("instance", least, rule=rule)
    ledger.fix_terms(rules.limits)
    ledger.accept_loss("sepsis", 2, [ROUND, ROUND])
    assert admit(rules, ledger, "sepsis", STUDY) is None
    limits = rules.own_limits(ledger.terms(rules.limits))
    ledger.charge("sepsis", 3, ROUND, limits, "a" * 64)
    with pytest.raises(OwnBudgetExceeded):
        ledger.charge("sepsis", 4, ROUND, limits, "a" * 64)


def test_rounds_that_the_study_s_own_limit_never_lets_begin_are_not_asked_for(ledger: HospitalLedger) -> None:
    """max_steps 1,000 is a bound: the study's own limit of 3 ends it long before."""
    study = settings(max_steps=1000, noise_multiplier=4.0, limits=[limit("instance", epsilon=3.0)], classical_order=8.0)
    admit(policy("instance", 3.2, delta=1e-5, order=8.0), ledger, "sepsis", study)
    with pytest.raises(OwnBudgetExceeded, match=r"room for \d+ of the \d\d rounds"):
        admit(policy("instance", 2.5, delta=1e-5, order=8.0), ledger, "sepsis", study)


def test_scheduled_evaluations_are_part_of_the_study(ledger: HospitalLedger) -> None:
    evaluation = {"share": 0.2, "every": 1, "question": {"prediction": "binary", "noise_multiplier": 0.6}}
    asked = {"statistics": {"max_queries": 10, "max_cells": 1000}, "evaluation": evaluation}
    rules = policy("instance", 13.0, order=4.0)
    admit(rules, ledger, "sepsis", STUDY)
    with pytest.raises(OwnBudgetExceeded, match=r"limits\.instance"):
        admit(rules, ledger, "sepsis", settings(**asked))


def test_questions_without_a_budget_of_their_own_are_said_to_come_later(
    ledger: HospitalLedger, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    admit(policy("instance", 20.0), ledger, "sepsis", settings(statistics={"max_queries": 9, "max_cells": 10}))
    assert "compared with its training alone" in caplog.text


def test_another_rule_than_the_ledger_s_is_refused(ledger: HospitalLedger) -> None:
    ledger.open_study("stroke", {})
    with pytest.raises(ConfigurationError, match='set rule = "renyi"'):
        admit(policy("instance", 20.0, rule="gaussian"), ledger, "sepsis", STUDY)


def test_no_number_is_named_where_none_would_do() -> None:
    assert min_epsilon(lambda _: False, 0.5) is None
    assert min_epsilon(lambda epsilon: epsilon >= math.e, 0.5) == 2.72


@pytest.mark.parametrize(("delta", "differs"), [(1e-6, True), (1e-5, False)])
def test_another_delta_than_the_studys_is_said_before_the_first_round(
    ledger: HospitalLedger, delta: float, differs: bool
) -> None:
    study = settings(limits=[limit("instance", epsilon=2.0, delta=1e-5)])
    words = own_limit_in_words(policy("instance", 4.0, delta=delta), ledger, "sepsis", study)
    assert f"instance epsilon 4 at delta {delta:g}, over all studies" in words
    assert ("The study's delta is 1e-05, and ε at different delta cannot be compared" in words) == differs
