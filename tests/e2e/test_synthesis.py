"""Synthetic records from four masked hospitals over real HTTP, each stage with a hospital and a worker that die."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import dp_accounting
import numpy as np
import pandas as pd
import pytest

from accounting.budget.budget import replay
from accounting.budget.ledger import Entry
from accounting.plan.queries import QueryCost
from client_sdk.api.answered import Answered
from private_learning.records import Table
from server.db.ledger_store import entries
from server.db.rows import find_study
from study_protocol.study.any_settings import settings_from
from study_protocol.study.queries import SignedAnswer
from study_protocol.study.synthesis import Synthesis
from synthesis.chain import follow
from synthesis.file import made, verify, write
from tests.e2e.test_queries_dropouts import DIES_AT, Deaths, Scene
from tests.factories.asking import NAMES, Site, answering_policy, drive, enrolled, operator
from tests.factories.databases import SQLITE_FIRST
from tests.factories.dying import Killed, dying_at
from tests.factories.live_coordinator import Live, live
from tests.factories.settings import statistics_settings
from tests.factories.studies import FakeClock
from tests.harness import laws
from tests.harness.dying_processes import HIT_SECONDS, Stage
from tests.harness.forked import ForkedProcesses
from wardround.demo.live import embedded_postgres, open_study
from wardround.demo.processes import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
COLUMNS = [
    {"column": "age", "edges": [20, 40, 60, 80]},
    {"column": "rate", "edges": [2.5, 5.0, 7.5]},
    {"column": "ill", "categories": ["0", "1"]},
]
SECTION = {"columns": COLUMNS, "outcome": "ill", "allowance": 0.5, "patients": 5000, "rows": 1000}


def associated(seed: int) -> Table:
    """The rate follows the age, so that this pair is worth its noise, and a third question is asked."""
    chance = np.random.default_rng(seed)
    age = chance.uniform(10, 90, 400)
    columns = {"age": age, "rate": age / 9, "ill": chance.integers(0, 2, 400).astype(str)}
    return Table.of({**columns, "patient": [f"p{number}" for number in range(400)]}, patient_column="patient")


# A hospital dies at one of these in each stage, and the worker at another.
DYING = (
    ("hospital.after-charge", "worker.before-reserve"),
    ("hospital.after-bytes", "worker.before-answer"),
    ("hospital.after-settle", "worker.after-answer"),
)


@SQLITE_FIRST
@pytest.mark.parametrize("hospitals", [4, 5])
def test_three_stages_end_in_a_file_whatever_dies(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hospitals: int
) -> None:
    clock, points = FakeClock(), [hospital for hospital, _ in DYING]
    chosen = statistics_settings(epsilon=5.0, synthesis=SECTION)
    synthesis = Synthesis.model_validate(SECTION)

    def come(name: str) -> None:
        if points and name == points[0] and threading.current_thread().name == NAMES[3]:
            points.pop(0)
            raise Killed(name)

    monkeypatch.setattr("client_sdk.study.work.failpoint", come)
    with live(tmp_path / "home", time_of_day=clock, database_url=database_url, long_poll_seconds=0.2) as here:
        # Nobody is asked again: who joined has agreed to the rule.
        asking = answering_policy(statistics={"queries": "ask"})
        sites = enrolled(here, tmp_path, chosen, names=NAMES[:hospitals], data=associated, policy=asking)
        for site in sites:
            site.start()
        with operator(here) as lead:
            lead.ask_query("registry", synthesis.first_question())
            for number, (_, worker) in enumerate(DYING, 1):
                for each in (worker, ""):
                    _drive_past(
                        here, sites, each, clock, lambda n=number: lead.query("registry", n).state == "answered"
                    )
            results = [lead.ask("registry", lead.query("registry", number).document) for number in (1, 2, 3)]
            assert len(lead.queries("registry").queries) == 3
            exported = laws.whole_ledger(lead, "registry")
        assert not points
        answers: list[SignedAnswer] = [_signed(result) for result in results]
        chain = follow(synthesis, {one.published.sha256: one.published for one in answers}.get)
        assert chain.document is None
        budget, epsilon = replay(exported), recomputed(exported)
        assert budget.charged_queries == 3
        assert epsilon <= budget.accounts[0].epsilon() <= epsilon * (1 + 1e-6)
        # What was agreed when they joined is what it cost, and no more.
        agreed = dp_accounting.get_epsilon_gaussian(synthesis.allowance**-0.5, 1e-5)
        assert epsilon <= agreed <= epsilon * (1 + 1e-3)
        path = tmp_path / "synthetic.csv"
        write(path, made("registry", chosen.digest(), synthesis, answers, results[0].key))
        assert verify(path).synthesis == synthesis


def recomputed(ledger: Sequence[Entry]) -> float:
    """ε at δ = 1e-5 of the ledger's questions, by dp-accounting. Their squares add up to one Gaussian mechanism."""
    costs = [QueryCost.from_dict(entry.body["cost"]) for entry in ledger if entry.kind == "asked"]
    squares = sum((cost.sensitivity / cost.noise_std) ** 2 for cost in costs)
    return dp_accounting.get_epsilon_gaussian(squares**-0.5, 1e-5)


# Of five, one falls silent before each of these, in the three questions in turn.
@pytest.mark.parametrize("steps", [("keys", "shares", "masked"), ("consistency", "unmask", "keys")], ids=str)
def test_a_hospital_that_is_lost_at_any_step_of_a_question_stops_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database_url: str, steps: tuple[str, ...]
) -> None:
    clock, deaths = FakeClock(), Deaths()
    for module in ("client_sdk.secure_sum.round", "client_sdk.study.verifier"):
        monkeypatch.setattr(f"{module}.failpoint", deaths.come)
    monkeypatch.setattr("client_sdk.study.participation._PAUSE_SECONDS", 0.05)
    with live(tmp_path / "home", time_of_day=clock, database_url=database_url, long_poll_seconds=0.2) as here:
        sites = enrolled(
            here, tmp_path, statistics_settings(epsilon=5.0, synthesis=SECTION), names=NAMES, data=associated
        )
        scene = Scene(here, clock, deaths, {site.name: site for site in sites})
        lost = frozenset({NAMES[2]})
        deaths.who, deaths.at = set(lost), DIES_AT[steps[0]]
        for site in sites:
            site.start()
        with operator(here) as lead:
            number = lead.ask_query("registry", Synthesis.model_validate(SECTION).first_question()).number
        for step, after in zip(steps, (*steps[1:], ""), strict=True):
            query = scene.follow(number, lost, step)
            assert query.state == "answered", (step, query.reason)
            assert query.answered is not None
            assert query.answered.published.hospitals == (5 if step in ("consistency", "unmask") else 4)
            number += 1
            # Who came back dies in the question that followed.
            deaths.gone = set()
            deaths.at = DIES_AT.get(after, "")
        found = here.coordinator.database.read("look", lambda tx: entries(tx, find_study(tx, "registry").id, 0, 10_000))
        assert [entry.kind for entry in found if entry.kind in ("asked", "settled")] == ["asked", "settled"] * 3


def test_a_hospital_that_forbids_a_column_stays_out_and_the_others_answer(tmp_path: Path, database_url: str) -> None:
    clock = FakeClock()
    with live(tmp_path / "home", time_of_day=clock, database_url=database_url, long_poll_seconds=0.2) as here:
        sites = enrolled(
            here, tmp_path, statistics_settings(epsilon=5.0, synthesis=SECTION), names=NAMES, data=associated
        )
        sites[4].set_policy(statistics={"queries": "ask", "denied_columns": ["rate"]})
        for site in sites:
            site.start()
        with operator(here) as lead:
            lead.ask_query("registry", Synthesis.model_validate(SECTION).first_question())
            for number in (1, 2, 3):
                drive(here, lambda n=number: lead.query("registry", n).allowed == 4, sites=sites[:4])
                # The fifth, who says nothing, has been waited for long enough.
                clock.seconds += 61.0
                drive(here, lambda n=number: lead.query("registry", n).state == "answered", sites=sites[:4])
            sites[4].join(30)
            assert "denied_columns names rate" in str(sites[4].error)
            assert _signed(lead.ask("registry", lead.query("registry", 3).document)).published.hospitals == 4


# In each question the hospital's process dies at the first, and then the coordinator's at the second.
KILLED = (
    ("hospital.after-charge", "worker.before-settle"),
    ("hospital.after-octets", "worker.after-answer"),
    ("hospital.after-consistency", "worker.before-answer"),
)
TINY = {
    "columns": [
        {"column": "x0", "edges": [-0.5, 0.0, 0.5]},
        {"column": "x1", "edges": [0.0]},
        {"column": "y", "categories": ["0", "1"]},
    ],
    "outcome": "y",
    "allowance": 0.5,
    "patients": 5000,
    "rows": 500,
}


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_processes_that_are_killed_in_each_question_end_in_one_file(tmp_path: Path, database: str) -> None:
    names = ("alpha", "beta", "gamma", "delta")
    values = statistics_settings(epsilon=5.0, synthesis=TINY).as_json()
    values["privacy"]["masking"] |= {"step_deadline_seconds": 900.0, "expiry_seconds": 3600.0}
    chosen = settings_from(values | {"schedule": {"min_clients": 4, "round_deadline_seconds": 3600.0}})
    policy = 'studies = ["ward"]\nlargest_delta = 1e-3\n[statistics]\nqueries = "ask"\n'
    url = nullcontext(None) if database == "sqlite" else embedded_postgres()
    with url as address, ForkedProcesses() as processes:
        stage = Stage(tmp_path, address, processes, dict.fromkeys(names, 400))
        for hospital in stage.hospitals.values():
            # One column follows the other, so that this pair is worth its noise, and a third question is asked.
            records = pd.read_csv(hospital.data)
            records.assign(x1=records["x0"]).to_csv(hospital.data, index=False)
        stage.coordinator.prepare()
        stage.serve()
        stage.coordinator.wait_ready()
        with stage.coordinator.operator() as lead:
            open_study(lead, "ward", "Ward", chosen, stage.hospitals, stage.coordinator.origin, policy=policy)
            lead.ask_query("ward", Synthesis.model_validate(TINY).first_question())
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
            assert until(lambda: lead.query("ward", 3).state == "answered", seconds=HIT_SECONDS, check=lambda: None)
            results = [lead.ask("ward", lead.query("ward", number).document) for number in (1, 2, 3)]
            lead.move_study("ward", "stop")
            homes = {name: hospital.home for name, hospital in stage.hospitals.items()}
            assert laws.check(lead, "ward", homes).charged_queries == 3
        records = made(
            "ward", chosen.digest(), Synthesis.model_validate(TINY), [_signed(each) for each in results], results[0].key
        )
        write(tmp_path / "synthetic.parquet", records)
        verify(tmp_path / "synthetic.parquet")


def _drive_past(here: Live, sites: list[Site], point: str, clock: FakeClock, done: Callable[[], bool]) -> None:
    """Drive until `done`, or until the worker dies at `point`. The last hospital comes back when it has died."""

    def came_back() -> bool:
        if isinstance(sites[3].error, Killed):
            sites[3] = sites[3].again()
            sites[3].start()
        return done()

    if not point:
        drive(here, came_back, seconds=120.0, sites=sites[:3])
        return
    with dying_at(point) as death, pytest.raises(Killed):
        drive(here, lambda: came_back() and death.hit, seconds=120.0, sites=sites[:3])
    clock.seconds += 10.0


def _signed(result: Answered) -> SignedAnswer:
    assert result.query.answered is not None
    return result.query.answered
