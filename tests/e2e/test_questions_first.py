"""Four masked hospitals where people take their time: questions before, during and after training, none of which fails.

With real processes over HTTP. The coordinator is killed while a question is undecided. ε of the exported ledger is
computed by dp-accounting.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from client_sdk.api.client import Client
from client_sdk.guard.approvals import Approvals
from client_sdk.study.hospital import Hospital
from study_protocol.study.messages import InvitationCreate, StudyCreate
from study_protocol.study.queries import Query, QueryDocument
from study_protocol.study.reasons import QUESTIONS_FIRST
from study_protocol.study.settings import StudySettings
from tests.e2e.test_failpoints import _initial_model
from tests.factories.recomputed import require_tight
from tests.harness import tiny
from tests.harness.dying_processes import Stage
from wardround.demo.live import compare_and_pin, site_policy
from wardround.demo.processes import Processes, until

# Many processes on few cores: generous, because a slow machine is no failure.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

STUDY = "first"
NAMES = ("alpha", "beta", "gamma", "delta")
# People take minutes. Several rounds of training begin and end in this time as well.
DECIDE_SECONDS = float(os.environ.get("WARDROUND_TEST_DECIDE_SECONDS", "8"))
END_SECONDS = 600.0


def chosen(rule: str) -> StudySettings:
    limit = {"level": "instance", "definition": "classical", "epsilon": 3.0, "delta": 1e-5, "enforcement": rule}
    base = tiny.settings(
        "parallel",
        clients=len(NAMES),
        # A sum of squares ends the study by its budget, a plan by its steps.
        rounds=40 if rule == "gaussian-filter" else 8,
        bayesian=False,
        deadline_seconds=tiny.DEADLINE_SECONDS,
        step_seconds=tiny.STEP_SECONDS,
        limits=[limit],
        sampling_rate=1.0,
        expected_batch_size=20.0,
        noise_multiplier=4.3,
    )
    statistics: dict[str, Any] = {"max_queries": 20, "max_cells": 100, "decision_deadline_seconds": 3600.0}
    if rule == "fixed-plan":
        statistics["share"] = 0.1
    return StudySettings.model_validate(base.as_json() | {"statistics": statistics})


class Scene(Stage):
    def __init__(self, folder: Path, processes: Processes, settings: StudySettings) -> None:
        super().__init__(folder, None, processes, dict.fromkeys(NAMES, 20))
        self.settings, self.threads = settings, list[threading.Thread]()

    def open(self) -> None:
        self.coordinator.prepare()
        self.serve()
        self.coordinator.wait_ready()
        policy = site_policy(STUDY, self.settings) + '[statistics]\nqueries = "ask"\n'
        with self.coordinator.operator() as operator:
            operator.create_study(StudyCreate(study=STUDY, title="questions first", settings=self.settings))
            operator.put_initial_model(STUDY, _initial_model(self.settings))
            for name, hospital in self.hospitals.items():
                token = operator.invite(STUDY, InvitationCreate(client=name)).token
                hospital.enrol(self.coordinator.origin, token, policy)
            compare_and_pin(STUDY, [Hospital.open(hospital.home) for hospital in self.hospitals.values()])
            shown = operator.move_study(STUDY, "start", questions_first=True)
        assert shown.pause_reason is not None
        assert shown.pause_reason.code == QUESTIONS_FIRST
        for name in NAMES:
            self.join(name, STUDY)

    def ask(self, operator: Client, title: str) -> Query:
        """At each hospital a person decides, each some time after the one before."""
        query = operator.ask_query(STUDY, question(title))
        for place, hospital in enumerate(self.hospitals.values(), 1):
            seconds = DECIDE_SECONDS * place / len(self.hospitals)
            approvals = Approvals(hospital.home, STUDY)
            thread = threading.Thread(target=decide, args=(approvals, query, seconds), daemon=True)
            thread.start()
            self.threads.append(thread)
        return query

    def wait_for(self, is_so: Callable[[], bool], what: str) -> None:
        assert until(is_so, seconds=END_SECONDS, check=lambda: None, every=0.3), what


def question(title: str) -> QueryDocument:
    return QueryDocument.model_validate({"question": {"kind": "count", "noise_multiplier": 12.0, "title": title}})


def decide(approvals: Approvals, query: Query, seconds: float) -> None:
    time.sleep(seconds)
    approvals.decide(query.approved_digest, approved=True, words="a count")


@pytest.mark.parametrize("rule", ["gaussian-filter", "fixed-plan"])
def test_no_question_fails_because_others_were_charged(tmp_path: Path, rule: str) -> None:
    with Processes() as processes:
        scene = Scene(tmp_path, processes, chosen(rule))
        scene.open()
        with scene.coordinator.operator(patience_seconds=120) as operator:

            def state(query: Query) -> str:
                shown = operator.query(STUDY, query.number)
                assert shown.state != "failed", shown.reason
                return shown.state

            def answered(*queries: Query) -> bool:
                return all(state(query) == "answered" for query in queries)

            def trained() -> int:
                return sum(view.query is None and view.state == "released" for view in operator.rounds(STUDY).rounds)

            before = [scene.ask(operator, title) for title in ("one", "two")]
            scene.stop_coordinator()
            scene.serve()
            scene.coordinator.wait_ready()
            assert [state(query) for query in before] == ["waiting", "waiting"]
            scene.wait_for(lambda: answered(*before), "no answer before training")
            assert trained() == 0

            operator.move_study(STUDY, "train")
            scene.wait_for(lambda: trained() >= 1, "no round is released")
            between, after = scene.ask(operator, "three"), operator.ask_query(STUDY, question("four"))
            scene.wait_for(lambda: answered(between), "no answer between rounds")
            scene.wait_for(lambda: operator.budget(STUDY).takes_questions or trained() >= 7, "it trains for ever")
            # Undecided while training used all that it may.
            assert state(after) == "waiting"
            scene.stop_coordinator()
            scene.serve()
            scene.coordinator.wait_ready()
            assert scene.ask(operator, "four").number == after.number
            scene.wait_for(lambda: answered(after), "no answer after training")
            scene.wait_for(lambda: operator.budget(STUDY).takes_questions, "it trains for ever")

            budget, ledger = operator.budget(STUDY), operator.ledger(STUDY)
            assert ledger.next is None
            operator.move_study(STUDY, "stop")
        entries = [entry.model_dump(mode="json") for entry in ledger.entries]
        require_tight(budget.model_dump(mode="json"), entries)
        (limit,) = [limit for limit in budget.limits if limit.epsilon is not None]
        assert limit.running is not None
        assert limit.running.epsilon is not None
        assert limit.running.epsilon <= 3.0
        assert sum(entry["kind"] == "asked" for entry in entries) == 4
        assert not any(entry["kind"] in ("cancelled", "charged-in-full") for entry in entries)
        for process in scene.joined.values():
            assert process.wait(END_SECONDS) == 0, process.log.read_text()[-2000:]
