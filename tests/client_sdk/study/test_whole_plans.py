"""A study with a fixed plan is admitted whole: its (ε, δ) is reserved once, whatever is killed, restarted or lost."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant

from client_sdk.errors import LostLedger, OwnBudgetExceeded
from client_sdk.guard.admission import admit
from client_sdk.guard.charges import Charge
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.limit_terms import WholePlan
from client_sdk.guard.policy import SitePolicy
from study_protocol.study.settings import StudySettings
from study_protocol.wire import failpoints
from tests.factories.coordinator_in_process import problem
from tests.factories.hospitals import coordinator, hospital, plain_policy, records
from tests.factories.participations import besides_decisions
from tests.factories.settings import limit, settings

# At rate 1 these three steps cost far more than the limit.
PLAN = {"max_steps": 3, "sampling_rate": 0.02, "noise_multiplier": 1.0}


def study(epsilon: float = 8.0, **more: Any) -> StudySettings:
    fixed = limit("instance", epsilon=epsilon, delta=1e-6, enforcement="fixed-plan")
    return settings(**(PLAN | {"limits": [fixed]} | more))


def policy(epsilon: float = 4.0, share: float = 0.5, rule: str = "gaussian") -> SitePolicy:
    own = {"instance": {"epsilon": epsilon, "delta": 1e-5}, "rule": rule, "whole_plans": share}
    return plain_policy(limits=own)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


class Killed(BaseException):
    """Stands for the process that is no more."""


@contextmanager
def killed_at(name: str, nth: int) -> Iterator[list[str]]:
    hits: list[str] = []

    def die(point: str) -> None:
        hits.append(point)
        raise Killed(point)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failpoints, "_die", die)
        patch.setattr(failpoints, "_passages", {})
        patch.setenv("WARDROUND_FAILPOINT", f"{name}:{nth}")
        yield hits


@contextmanager
def ledger_of(directory: Path) -> Iterator[HospitalLedger]:
    with HospitalLedger.open(ledger_path(directory, "icu")) as ledger:
        yield ledger


def join(other: Any, directory: Path, rules: SitePolicy | None = None, name: str = "sepsis", **more: Any) -> Any:
    here = hospital(other, directory)
    return here.join(name, None, records(), policy=rules or policy(), dataset="icu", **more)


@pytest.mark.slow
def test_the_reserved_number_is_the_plan_s_by_an_independent_library(tmp_path: Path) -> None:
    outcome = join(coordinator(study()), tmp_path)
    assert (outcome.rounds_sent, outcome.rounds_refused) == (3, 0)
    peer = PLDAccountant()
    peer.compose(PoissonSampledDpEvent(0.02, GaussianDpEvent(1.0)), 3)
    with ledger_of(tmp_path) as ledger:
        (reserved,) = ledger.whole_plans().values()
        assert (reserved.level, reserved.delta, reserved.steps) == ("instance", 1e-6, 3)
        exact = peer.get_epsilon(1e-6)
        assert exact - 1e-4 <= reserved.epsilon <= exact * 1.002
        # Nothing of it is charged again, and every round is known.
        assert ledger.charges() == []
        assert ledger.rounds_known("sepsis") == {1, 2, 3}
        assert len(ledger.sent("sepsis")) == 3


@pytest.mark.quick("after-charge-2")
@pytest.mark.parametrize(
    ("point", "nth"),
    [("after-terms", 1), ("after-joining", 1), ("after-charge", 2), ("after-bytes", 1), ("after-settle", 3)],
)
def test_killed_and_started_again_it_is_reserved_once(tmp_path: Path, point: str, nth: int) -> None:
    other = coordinator(study())
    with killed_at(f"hospital.{point}", nth) as hits, pytest.raises(Killed):
        join(other, tmp_path)
    assert hits
    join(other, tmp_path)
    with ledger_of(tmp_path) as ledger:
        entries = [(entry.kind, entry.body["study"]) for entry in besides_decisions(ledger) if entry.round is None]
        declared = [("declared", "/terms"), ("declared", "/records")]
        assert entries == [*declared, ("opened", "sepsis"), ("finished", "sepsis")]
        assert list(ledger.whole_plans()) == ["sepsis"]
        assert ledger.charges() == []
        assert len(ledger.sent("sepsis")) == 3


@pytest.mark.slow
def test_a_lost_ledger_reserves_it_again_and_counts_what_was_lost(tmp_path: Path) -> None:
    other = coordinator(study())
    with killed_at("hospital.after-answer", 2), pytest.raises(Killed):
        join(other, tmp_path)
    with ledger_of(tmp_path) as ledger:
        before = ledger.whole_plans()
    for file in ledger_path(tmp_path, "icu").parent.iterdir():
        file.unlink()
    with pytest.raises(LostLedger):
        join(other, tmp_path)
    outcome = join(other, tmp_path, accept_lost_ledger=True)
    assert outcome.rounds_sent == 1
    with ledger_of(tmp_path) as ledger:
        assert ledger.whole_plans() == before
        assert ledger.charges() == []
        assert sum(charge.steps for charge in ledger.sent("sepsis")) == 3


def test_a_second_installation_does_not_join_beside_the_first(tmp_path: Path) -> None:
    other = coordinator(study())
    with killed_at("hospital.after-answer", 2), pytest.raises(Killed):
        join(other, tmp_path)
    second = tmp_path / "copy"
    (second / "studies").mkdir(parents=True)
    for file in (tmp_path / "identity.key", *(tmp_path / "studies").iterdir()):
        target = second / file.relative_to(tmp_path)
        target.write_bytes(file.read_bytes())
        target.chmod(0o600)
    with pytest.raises(LostLedger, match="second installation"):
        join(other, second)


def test_what_is_set_aside_is_used_up_by_studies_and_not_by_rounds(tmp_path: Path) -> None:
    """The first study takes most of the part for whole plans. The next is charged round by round, or refused."""
    rules = policy(epsilon=2.0, rule="renyi")
    join(coordinator(study()), tmp_path, rules)
    with ledger_of(tmp_path) as ledger:
        left = 1.0 - ledger.whole_plans()["sepsis"].epsilon
    assert 0 < left < 0.5
    dear = study(noise_multiplier=0.7)
    with pytest.raises(OwnBudgetExceeded, match=r"share of 0\.5 is set aside"):
        join(coordinator(dear, study="stroke"), tmp_path, rules, "stroke")
    cheap = study(noise_multiplier=8.0, sampling_rate=0.5, limits=[limit("instance", delta=1e-6)])
    join(coordinator(cheap, study="burns"), tmp_path, policy(epsilon=8.0, rule="renyi"), "burns")
    with ledger_of(tmp_path) as ledger:
        assert list(ledger.whole_plans()) == ["sepsis"]
        assert [charge.noise_multiplier for charge in ledger.charges()] == [8.0] * 3


def test_the_reserved_parts_never_pass_what_is_set_aside(tmp_path: Path) -> None:
    rules, delta, epsilon = policy(epsilon=6.0), 0.0, 0.0
    for name in ("sepsis", "stroke", "burns"):
        join(coordinator(study(), study=name), tmp_path, rules, name)
        with ledger_of(tmp_path) as ledger:
            delta = sum(plan.delta for plan in ledger.whole_plans().values())
            epsilon = sum(plan.epsilon for plan in ledger.whole_plans().values())
        assert delta <= 0.5e-5
        assert epsilon <= 3.0
    assert delta == pytest.approx(3e-6)


def test_a_policy_that_is_lowered_counts_what_is_reserved_already(tmp_path: Path) -> None:
    """The rest keeps no share of its own beside a reserved part that is most of the new limit."""
    join(coordinator(study()), tmp_path, policy(epsilon=4.0))
    with ledger_of(tmp_path) as ledger:
        reserved, lowered = ledger.whole_plans()["sepsis"].epsilon, policy(epsilon=1.0)
        assert 0.5 < reserved < 1.0
        (rest,) = ledger.own_limits(lowered)
        assert rest.epsilon == pytest.approx(1.0 - reserved)
        (nothing,) = ledger.own_limits(policy(epsilon=0.5))
        cheap = Charge("instance", 40.0, 1.0, 1)
        with pytest.raises(OwnBudgetExceeded):
            ledger.charge("burns", 1, cheap, (nothing,), "a" * 64)
        ledger.charge("burns", 1, cheap, (rest,), "a" * 64)
        # As before, where it was not lowered.
        assert [limit.epsilon for limit in ledger.own_limits(policy(epsilon=4.0))] == [pytest.approx(2.0)]


@pytest.mark.parametrize(("rule", "noise"), [("gaussian", 1.25), ("renyi", 1.4)])
def test_a_policy_that_is_lowered_counts_what_its_rest_has_spent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, rule: str, noise: float
) -> None:
    """Most of 8 went round by round. Of a limit of 4 nothing is left for a whole plan."""
    before, lowered = policy(epsilon=8.0, rule=rule), policy(epsilon=4.0, rule=rule)
    with ledger_of(tmp_path) as ledger:
        ledger.fix_terms(before.limits)
        ledger.open_study("burns", {})
        ledger.charge("burns", 1, Charge("instance", noise, 1.0, 1), ledger.own_limits(before), "a" * 64)
        assert admit(before, ledger, "sepsis", study()) is not None
        caplog.set_level(logging.INFO)
        with pytest.raises(OwnBudgetExceeded):
            admit(lowered, ledger, "sepsis", study())
        assert "that are left for it in whole_plans" in caplog.text


def test_a_plan_that_passes_its_own_limit_is_refused_before_anything(tmp_path: Path) -> None:
    other = coordinator(study())
    # A coordinator that opened a plan which this hospital would not.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("accounting.budget.accounts.FixedPlanLimit.is_feasible", False)
        with pytest.raises(OwnBudgetExceeded, match=r"plans 3 steps, which spend epsilon 0\.88") as refused:
            join(other, tmp_path)
    assert refused.value.code == "study-limit-exceeded"
    assert not any("/assignment" in request for request in other.requests)


def test_a_policy_without_the_share_charges_round_by_round(tmp_path: Path) -> None:
    join(coordinator(study()), tmp_path, policy(epsilon=20.0, share=0.0, rule="renyi"))
    with ledger_of(tmp_path) as ledger:
        assert ledger.whole_plans() == {}
        assert len(ledger.charges()) == 3
        assert "whole_plan" not in dict(ledger.opened("sepsis") or {})


def test_a_plan_larger_than_what_is_set_aside_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    join(coordinator(study()), tmp_path, policy(epsilon=20.0, share=0.01, rule="renyi"))
    assert "each round is charged by itself, by rule renyi" in caplog.text
    assert "admitted whole" not in caplog.text


def test_entries_of_earlier_versions_are_no_whole_plans(tmp_path: Path) -> None:
    with ledger_of(tmp_path) as ledger:
        ledger.open_study("sepsis", {"settings_sha256": "s"})
        assert ledger.whole_plans() == {}
        ledger.open_study("stroke", {"whole_plan": WholePlan("instance", 1.0, 1e-6, 3).to_dict()})
        assert ledger.whole_plans() == {"stroke": WholePlan("instance", 1.0, 1e-6, 3)}


def test_an_abandoned_round_used_a_step_of_the_plan(tmp_path: Path) -> None:
    """The coordinator gives round 1 back after the vector has left, and asks for three more rounds."""
    other = coordinator(study())

    def meddle(request: httpx.Request) -> httpx.Response | None:
        if "/rounds/1/updates/" not in request.url.path:
            return None
        if other.budget.pending == 1:
            other.budget.cancel(1, "too-few-clients")
            other._append("cancelled", 1, {"reason": "too-few-clients"})
        return problem(410, "round-closed")

    other.meddle = meddle
    outcome = join(other, tmp_path)
    assert (outcome.rounds_sent, outcome.rounds_refused) == (2, 1)
    assert sorted(number for number, sent in other.updates.items() if sent) == [2, 3]
    assert other.refusals[4]["mercy"].code == "max-steps-exceeded"
