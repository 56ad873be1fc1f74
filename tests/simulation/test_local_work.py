"""One client's round: the hospital's own step, and why a client stops."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from client_sdk.errors import TrainingStopped
from private_learning.records import DataError
from private_learning.tasks import load
from private_learning.training import LocalTraining
from simulation.backends.base import Loop
from simulation.backends.vectorised import Vectorised
from simulation.engine import Engine, initial_weights
from simulation.local_work import ClientStopped, ClientTask, LocalWork, Orders
from simulation.population import Population
from study_protocol.randomness.source import SeededRandomness
from tests.factories.hospitals import records
from tests.factories.settings import TASK_PARAMETERS, settings
from tests.simulation.test_engine import clients, forked


@pytest.mark.slow
@pytest.mark.parametrize("backend", [Loop, forked], ids=["loop", "forked"])
def test_a_client_whose_training_overflows_ends_the_run_by_name(backend: Any) -> None:
    weights = {"weight": np.full((1, 2), np.float32(3e38)), "bias": np.full(1, np.float32(np.inf))}
    with pytest.raises(ClientStopped, match="h0 stopped in round 1"):
        Engine(settings(), clients(4), 1, backend, weights=weights).run()


HELD_OUT = {"accounting_sample": {"records": 39, "source": "held-out"}, "bayesian": True, "max_steps": 1}


@pytest.mark.quick("loop", "vectorised")
@pytest.mark.parametrize("backend", [Loop, forked, Vectorised], ids=["loop", "forked", "vectorised"])
def test_a_client_with_too_few_records_ends_the_run_by_name(backend: Any) -> None:
    task = load("logistic-regression", TASK_PARAMETERS)
    sizes = {"h0": 60, "h1": 60, "h2": 30, "h3": 60}
    some = Population.of({name: task.dataset(records(size, seed=size)) for name, size in sizes.items()})
    with pytest.raises(ClientStopped, match="h2 stopped in round 1: accounting sample: 39 records are held out"):
        Engine(settings(**HELD_OUT), some, 1, backend).run()


def orders(weights: Any, **changes: Any) -> Orders:
    plain = {"round": 3, "weights": weights, "previous": None, "total_records": None, "vectors": (), "longest": 1e9}
    return Orders(**plain | changes)


def test_a_part_is_the_update_of_the_hospital_s_own_training() -> None:
    chosen, population = settings(), clients(3)
    randomness = SeededRandomness(5, allow_insecure=True)
    work = LocalWork.of(population, chosen, randomness)
    weights = initial_weights(chosen, 5)
    part = work.part(ClientTask(1, None, False), orders(weights))
    task = load("logistic-regression", TASK_PARAMETERS)
    alone = LocalTraining(task, population.records_of(1), chosen, randomness).of_client("h1", population.records_of(1))
    expected = alone.contribution(weights, None, round_number=3).update
    assert part.update is not None
    assert {name.removeprefix("update/") for name in part.update} == set(expected)
    assert all(np.array_equal(part.update[f"update/{name}"], array) for name, array in expected.items())
    assert part.findings is not None
    assert (part.words, part.accounts) == ({}, None)


def test_another_client_and_another_round_draw_other_noise() -> None:
    chosen = settings()
    work = LocalWork.of(clients(3), chosen, SeededRandomness(5, allow_insecure=True))
    weights = initial_weights(chosen, 5)
    parts = [
        work.part(ClientTask(place, None, False), orders(weights, round=number))
        for place, number in ((0, 1), (0, 2), (1, 1))
    ]
    assert len({part.update["update/weight"].tobytes() for part in parts if part.update is not None}) == 3


def test_accounts_of_the_turn_before_are_gone_on_with() -> None:
    chosen = settings(bayesian=True)
    work = LocalWork.of(clients(3), chosen, SeededRandomness(5, allow_insecure=True))
    weights = initial_weights(chosen, 5)
    first = work.part(ClientTask(0, None, False), orders(weights, round=1))
    second = work.part(ClientTask(0, first.accounts, True), orders(weights, round=2))
    assert first.findings is not None
    assert second.findings is not None
    before, after = first.findings.log_moments, second.findings.log_moments
    assert before is not None
    assert after is not None
    # Running sums: the second round's are no smaller, at every order.
    assert all(b <= a for b, a in zip(before.moments, after.moments, strict=True))
    assert after.filter > before.filter > 0


def test_a_stop_travels_between_processes_with_its_words() -> None:
    stopped = pickle.loads(pickle.dumps(ClientStopped("h2", 4, "too few records")))
    assert (stopped.client, stopped.round, stopped.reason) == ("h2", 4, "too few records")
    assert str(stopped) == "h2 stopped in round 4: too few records"
    assert "NaN or an infinity in the update. Try a smaller learning rate" in str(
        ClientStopped.by(TrainingStopped("the update"), "h2", 4)
    )
    assert ClientStopped.by(DataError("no rows"), "h2", 4).reason == "no rows"
