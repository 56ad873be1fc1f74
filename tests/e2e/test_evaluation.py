"""Released models on the hospitals' own patients, over real HTTP: set aside for ever, on a schedule, charged once."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from accounting.budget.budget import replay
from client_sdk.errors import ConflictError, NotFoundError, PolicyRefused
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.policy import SitePolicy
from client_sdk.study.evaluated import EvaluatedPatients
from private_learning import tasks
from private_learning.records import Table
from private_learning.training import LocalTraining
from private_learning.training.weights import load_weights
from server.db.ledger_store import entries
from server.db.rows import find_study
from study_protocol.cells import Column
from study_protocol.study.queries import Query
from study_protocol.study.settings import StudySettings
from tests.factories.asking import Site, answered, answering_policy, document, drive, enrolled, operator
from tests.factories.dying import Killed, dying_at
from tests.factories.hospitals import records
from tests.factories.live_coordinator import Live, live
from tests.factories.settings import limit, settings, statistics_settings
from tests.factories.studies import FakeClock

pytestmark = pytest.mark.timeout(300)

# So little noise that counts are exact: below a half by more than ten standard deviations, five of them together.
SCHEDULED = {"prediction": "binary", "noise_multiplier": 0.02}
ROUNDS = 3


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def here(tmp_path: Path, clock: FakeClock) -> Iterator[Live]:
    with live(tmp_path / "home", time_of_day=clock, long_poll_seconds=0.2) as coordinator:
        yield coordinator


def study(*, masked: bool, every: int | None = 2, epsilon: float = 1e6, max_queries: int = 2) -> StudySettings:
    schedule: Mapping[str, Any] = {} if every is None else {"every": every, "question": SCHEDULED}
    return settings(
        masked=masked,
        statistics={"max_queries": max_queries, "max_cells": 100},
        evaluation={"share": 0.3, **schedule},
        limits=[limit("instance", epsilon=epsilon)],
        max_steps=ROUNDS,
        schedule={"min_clients": 4},
    )


def policy_that(queries: str = "allow") -> SitePolicy:
    return answering_policy(statistics={"queries": queries, "least_noise_multiplier": 1e-3})


class Seen:
    """Whom training and evaluations were made of, by hospital, since the last look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.trained: dict[str, list[frozenset[str]]] = defaultdict(list)
        self.evaluated: dict[str, list[frozenset[str]]] = defaultdict(list)
        train, evaluate = LocalTraining.contribution, EvaluatedPatients.columns

        def contribution(training: LocalTraining, *args: Any, **options: Any) -> Any:
            self.trained[training.party].append(frozenset(training.dataset.patients))
            return train(training, *args, **options)

        def columns(patients: EvaluatedPatients, *args: Any) -> Any:
            self.evaluated[patients.training.party].append(frozenset(patients.identifiers))
            return evaluate(patients, *args)

        monkeypatch.setattr(LocalTraining, "contribution", contribution)
        monkeypatch.setattr(EvaluatedPatients, "columns", columns)


def queries(here: Live) -> list[Query]:
    with operator(here) as lead:
        return [lead.query("registry", one.number) for one in lead.queries("registry").queries]


def wait_for_the_end(here: Live, sites: list[Site]) -> None:
    drive(here, lambda: not any(site.is_alive() for site in sites), sites=sites, seconds=120.0)


def side(site: Site, data: Table, *, evaluated: bool) -> Table:
    """Whose records the hospital's own ledger puts on this side."""
    with HospitalLedger.open(ledger_path(site.directory, "icu"), read_only=True) as own:
        chosen = own.split("registry", 0.3).set_aside(data.patients)
    return data.take(np.flatnonzero(chosen == evaluated))


def confusion(here: Live, model: int, sites: list[Site], data: list[Table]) -> list[float]:
    """Without outcome, below and above a half; with it, below and above: of the patients set aside, by the model."""
    with operator(here) as lead:
        weights, chosen = load(lead.model("registry", model)), lead.study("registry").settings
    task = tasks.load(chosen.training.task, chosen.training.task_parameters)
    module = task.model().eval()
    load_weights(module, weights)
    found = np.zeros((2, 2))
    for site, own in zip(sites, data, strict=True):
        dataset = task.dataset(side(site, own, evaluated=True))
        above = (module(dataset.inputs).detach().numpy()[:, 0] >= 0).astype(int)
        np.add.at(found, (dataset.targets.numpy(), above), 1)
    return found.ravel().tolist()


def cells(query: Query) -> list[float]:
    assert query.answered is not None
    table = next(one for one in query.answered.published.answer.tables if one.name == "cells")
    place = table.columns.index("raw")
    return [float(row[place]) for row in table.rows]


@pytest.mark.slow
@pytest.mark.parametrize("masked", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_scheduled_evaluations_count_the_patients_set_aside_and_nobody_who_is_trained_on(
    here: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, masked: bool
) -> None:
    seen = Seen(monkeypatch)
    # With `ask` nobody has to approve what stands in the settings.
    policy = policy_that("ask")
    sites = enrolled(here, tmp_path, study(masked=masked), policy=policy)
    for site in sites:
        site.start()
    wait_for_the_end(here, sites)
    asked = queries(here)
    assert [query.state for query in asked] == ["answered"] * 2
    with operator(here) as lead:
        shown = lead.study("registry")
        assert (shown.state, shown.stop_reason) == ("finished", "max-steps-reached")
        models = [one.round for one in lead.rounds("registry").rounds if one.state == "released" and one.query is None]
    # After two released models, and after the last one, whatever numbers the queries themselves took.
    assert [query.document.question.model_number for query in asked] == [models[1], models[2]]
    data = [records(seed=seed) for seed in range(len(sites))]
    for query in asked:
        number = query.document.question.model_number
        assert number is not None
        assert cells(query) == pytest.approx(confusion(here, number, sites, data), abs=0.5)
    for site, own in zip(sites, data, strict=True):
        trained, evaluated = set(seen.trained[site.name]), set(seen.evaluated[site.name])
        # The same people in every round, and everybody on exactly one side.
        assert len(trained) == len(evaluated) == 1
        assert trained.pop() == set(side(site, own, evaluated=False).patients)
        assert evaluated.pop() == set(side(site, own, evaluated=True).patients)
        with HospitalLedger.open(ledger_path(site.directory, "icu"), read_only=True) as ledger:
            assert [one.bears for one in ledger.charges()].count("trained") == ROUNDS
            assert [one.bears for one in ledger.charges()].count("evaluated") == 2
    found = here.coordinator.database.read("look", lambda tx: entries(tx, find_study(tx, "registry").id, 0, 10_000))
    budget = replay(found)
    assert (budget.charged_rounds, budget.charged_queries) == (ROUNDS, 2)


@pytest.mark.slow
def test_a_restarted_hospital_keeps_everybody_on_the_same_side(
    here: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Seen(monkeypatch)
    sites = enrolled(here, tmp_path, study(masked=False), policy=policy_that())
    armed = [sites[0].name]

    def die(name: str) -> None:
        if name == "hospital.after-settle" and threading.current_thread().name in armed:
            armed.clear()
            raise Killed(name)

    monkeypatch.setattr("client_sdk.study.work.failpoint", die)
    for site in sites:
        site.start()
    drive(here, lambda: not armed and not sites[0].is_alive(), sites=sites[1:])
    assert isinstance(sites[0].error, Killed)
    # One patient more than before, last of all: nobody else moves.
    more = records(count=41)
    before = seen.trained[sites[0].name][0]
    first = records(seed=0)
    last = more.take([40])
    grown = Table(
        {name: Column.joined([column, last.columns[name]]) for name, column in first.columns.items()},
        (*first.patients, *last.patients),
    )
    sites[0] = sites[0].again(grown)
    sites[0].start()
    wait_for_the_end(here, sites)
    trained, evaluated = seen.trained[sites[0].name], seen.evaluated[sites[0].name]
    assert all(part - {"p40"} == before for part in trained)
    assert all(part - {"p40"} == set(first.patients) - before for part in evaluated)
    assert all(len(part & {"p40"}) + len(trained[-1] & {"p40"}) == 1 for part in evaluated)


@pytest.mark.slow
def test_the_worker_dies_around_the_release_and_the_evaluation_is_asked_once(
    here: Live, tmp_path: Path, clock: FakeClock
) -> None:
    sites = enrolled(here, tmp_path, study(masked=False), policy=policy_that())
    for site in sites:
        site.start()
    for point in ("worker.before-release", "worker.after-release", "worker.before-answer", "worker.after-answer"):
        with dying_at(point) as death, pytest.raises(Killed):
            drive(here, lambda d=death: d.hit, sites=sites)
        # Past the dead worker's lease.
        clock.seconds += 10.0
    wait_for_the_end(here, sites)
    asked = queries(here)
    assert [query.state for query in asked] == ["answered"] * 2
    assert len({query.document.question.model_number for query in asked}) == 2
    for site in sites:
        with HospitalLedger.open(ledger_path(site.directory, "icu"), read_only=True) as ledger:
            assert [one.bears for one in ledger.charges()].count("evaluated") == 2


@pytest.mark.slow
def test_an_evaluation_that_could_overspend_asks_nobody_and_training_goes_on(here: Live, tmp_path: Path) -> None:
    sites = enrolled(here, tmp_path, study(masked=False, every=None, epsilon=30.0), policy=policy_that())
    with operator(here) as lead:
        with pytest.raises(ConflictError, match="would fit") as refused:
            lead.ask_query("registry", document(kind="evaluation", model=0, **SCHEDULED))
        assert refused.value.code == "query-overspends"
        with pytest.raises(NotFoundError, match="no model 7"):
            lead.ask_query("registry", document(kind="evaluation", model=7, **SCHEDULED))
        for site in sites:
            site.start()
        gentle = document(kind="evaluation", model=0, prediction="binary", noise_multiplier=3.0)
        found = answered(here, sites, gentle)
        assert found.state == "answered", found.reason
        drive(here, lambda: lead.budget("registry").round >= ROUNDS + 1, sites=sites)
        assert len(lead.queries("registry").queries) == 1
        lead.move_study("registry", "stop")
    wait_for_the_end(here, sites)


@pytest.mark.slow
def test_where_nobody_is_set_aside_a_model_is_not_evaluated(here: Live, tmp_path: Path) -> None:
    statistics = {"max_queries": 5, "max_cells": 100}
    enrolled(here, tmp_path, settings(statistics=statistics, schedule={"min_clients": 4}), names=NAMES_OF_FOUR)
    enrolled(here, tmp_path / "other", statistics_settings(), study="questions")
    with operator(here) as lead:
        for name in ("registry", "questions"):
            with pytest.raises(ConflictError, match="aside") as refused:
                lead.ask_query(name, document(kind="evaluation", model=0, prediction="binary", noise_multiplier=5.0))
            assert refused.value.code == "no-evaluation"


NAMES_OF_FOUR = ("alpha", "beta", "gamma", "delta")


def test_a_hospital_that_answers_no_questions_does_not_join_a_study_that_evaluates(here: Live, tmp_path: Path) -> None:
    policy = policy_that("refuse")
    sites = enrolled(here, tmp_path, study(masked=False), names=NAMES_OF_FOUR, policy=policy)
    sites[0].start()
    sites[0].join(30)
    assert isinstance(sites[0].error, PolicyRefused)
    assert "evaluation.question" in str(sites[0].error)
