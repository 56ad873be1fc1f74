"""A regression over real HTTP, masked: asked once, approved once, and followed to its last answer."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import dp_accounting
import pytest

from accounting.budget.budget import replay
from accounting.plan.queries import QueryCost
from client_sdk.api.client import Client
from client_sdk.guard.approvals import Approvals
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from server.db.rows import find_study
from server.services.queries import ask
from server.services.queries.schedule import queue
from study_protocol.study.any_settings import settings_from
from study_protocol.study.queries import Consent, QueryDocument
from tests.factories.asking import NAMES, Site, answering_policy, drive, enrolled, operator
from tests.factories.dying import Killed, dying_at
from tests.factories.live_coordinator import live
from tests.factories.settings import statistics_settings
from tests.factories.studies import FakeClock
from tests.harness import laws
from tests.harness.dying_processes import HIT_SECONDS, Stage
from tests.harness.forked import ForkedProcesses
from wardround.demo.live import embedded_postgres, open_study
from wardround.demo.processes import until

pytestmark = pytest.mark.slow

REGRESSION: dict[str, Any] = {
    "kind": "glm",
    "family": "logistic",
    "outcome": {"column": "ill", "categories": ["1"]},
    "predictors": [{"column": "age", "low": 0, "high": 100}],
    "noise_multiplier": 2.0,
    "steps": 3,
}
ASKED = QueryDocument.model_validate({"question": REGRESSION})
STEPS = ASKED.steps
# In each step the coordinator dies at the next of these.
DYING = ("worker.before-answer", "worker.after-answer", "worker.before-settle")


def test_people_approve_once_and_every_step_is_answered_and_charged_once(tmp_path: Path, database_url: str) -> None:
    clock, policy = FakeClock(), answering_policy(statistics={"queries": "ask"})
    with (
        live(tmp_path / "home", time_of_day=clock, database_url=database_url, long_poll_seconds=0.2) as here,
        operator(here) as lead,
    ):
        sites = enrolled(here, tmp_path, statistics_settings(epsilon=5.0), names=NAMES, policy=policy)
        for site in sites:
            site.start()
        lead.ask_query("registry", ASKED)
        approve(sites)
        for number, point in enumerate(DYING, 1):
            with dying_at(point) as death, pytest.raises(Killed):
                drive(here, lambda death=death: death.hit, seconds=120.0, sites=sites)
            clock.seconds += 10.0
            drive(here, lambda n=number: lead.query("registry", n).state == "answered", seconds=120.0, sites=sites)
        result = lead.ask("registry", ASKED)
        assert (result.query.document.step, result.tables[0].name) == (STEPS, "coefficients")
        assert len(lead.queries("registry").queries) == STEPS
        lead.move_study("registry", "stop")
        exported = laws.whole_ledger(lead, "registry")
        for site in sites:
            site.join(30)
            assert charged(site) == STEPS
    assert replay(exported).charged_queries == STEPS
    costs = [QueryCost.from_dict(entry.body["cost"]) for entry in exported if entry.kind == "asked"]
    mu = sum((cost.sensitivity / cost.noise_std) ** 2 for cost in costs) ** 0.5
    # What was forecast is what it cost: one Gaussian release with the question's own noise.
    spent = dp_accounting.get_epsilon_gaussian(1 / mu, 1e-5)
    assert spent <= dp_accounting.get_epsilon_gaussian(2.0, 1e-5) <= spent * (1 + 1e-3)
    assert all(isinstance(row[1], float) for row in result.tables[0].rows)


def test_a_coordinator_that_asks_for_more_sums_of_a_step_than_were_approved_is_refused(tmp_path: Path) -> None:
    """It asks the last step once more, with coefficients of its own, and says that every hospital consented."""
    policy = answering_policy(statistics={"queries": "ask", "max_sessions_per_approval": 1})
    with live(tmp_path / "home", time_of_day=FakeClock(), long_poll_seconds=0.2) as here, operator(here) as lead:
        sites = enrolled(here, tmp_path, statistics_settings(epsilon=5.0), names=NAMES, policy=policy)
        approve(sites)
        for site in sites:
            site.start()
        lead.ask_query("registry", ASKED)
        drive(here, lambda: lead.query("registry", 1).state == "answered", seconds=120.0, sites=sites)
        for number in range(2, STEPS + 1):
            drive(here, lambda n=number: lead.query("registry", n).state == "answered", seconds=120.0, sites=sites)
        entries = lead.query("registry", STEPS).document.model_dump(mode="json")
        entries["question"]["at"] = [0.25, -0.5]
        forged = QueryDocument.model_validate(entries)
        here.coordinator.database.write("forge", lambda tx: queue(tx, find_study(tx, "registry"), forged))
        for site in sites:
            ask.consent(here.coordinator, "registry", STEPS + 1, site.name, Consent(allowed=True))
        drive(here, lambda: lead.query("registry", STEPS + 1).state == "failed", seconds=120.0, sites=sites)
        shown = lead.rounds("registry").rounds[-1]
        codes = {client.refusal.code for client in shown.clients or [] if client.refusal is not None}
        assert codes == {"not-approved"}
        lead.move_study("registry", "stop")
        for site in sites:
            site.join(30)
            assert charged(site) == STEPS


# In each step the hospital's process dies at the first, and then the coordinator's at the second.
KILLED = (
    ("hospital.after-charge", "worker.after-answer"),
    ("hospital.after-octets", "worker.before-answer"),
)


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_processes_that_are_killed_in_each_step_end_in_one_result(tmp_path: Path, database: str) -> None:
    names = ("alpha", "beta", "gamma", "delta")
    values = statistics_settings(epsilon=5.0).as_json()
    values["privacy"]["masking"] |= {"step_deadline_seconds": 900.0, "expiry_seconds": 3600.0}
    chosen = settings_from(values | {"schedule": {"min_clients": 4, "round_deadline_seconds": 3600.0}})
    policy = 'studies = ["ward"]\nlargest_delta = 1e-3\n[statistics]\nqueries = "allow"\n'
    predictors = [{"column": "x0", "low": -3.0, "high": 3.0}]
    outcome = {"column": "y", "categories": ["1"]}
    question = REGRESSION | {"outcome": outcome, "predictors": predictors, "steps": len(KILLED)}
    asked = QueryDocument.model_validate({"question": question})
    url = nullcontext(None) if database == "sqlite" else embedded_postgres()
    with url as address, ForkedProcesses() as processes:
        stage = Stage(tmp_path, address, processes, dict.fromkeys(names, 400))
        stage.coordinator.prepare()
        stage.serve()
        stage.coordinator.wait_ready()
        with stage.coordinator.operator() as lead:
            open_study(lead, "ward", "Ward", chosen, stage.hospitals, stage.coordinator.origin, policy=policy)
            lead.ask_query("ward", asked)
        for name in names[1:]:
            stage.join(name, "ward")
        for hospital, worker in KILLED:
            # All four are needed, so that nothing begins without this one.
            stage.wait_dead(stage.join("alpha", "ward", hospital), hospital)
            stage.stop_coordinator()
            dying = stage.serve(worker)
            stage.join("alpha", "ward")
            stage.wait_dead(dying, worker)
            stage.joined["alpha"].kill()
            stage.serve()
        with stage.coordinator.operator(patience_seconds=HIT_SECONDS) as lead:
            assert until(lambda: _is_answered(lead, len(KILLED)), seconds=HIT_SECONDS, check=lambda: None)
            result = lead.ask("ward", asked)
            assert (result.query.number, result.tables[0].name) == (len(KILLED), "coefficients")
            lead.move_study("ward", "stop")
            homes = {name: hospital.home for name, hospital in stage.hospitals.items()}
            assert laws.check(lead, "ward", homes).charged_queries == len(KILLED)


def _is_answered(lead: Client, number: int) -> bool:
    queries = lead.queries("ward").queries
    return len(queries) == number and queries[-1].state == "answered"


def approve(sites: list[Site]) -> None:
    for site in sites:
        Approvals(site.directory, "registry").decide(ASKED.digest(), approved=True, words="a regression")


def charged(site: Site) -> int:
    with HospitalLedger.open(ledger_path(site.directory, "icu"), read_only=True) as own:
        return len(own.charges())
