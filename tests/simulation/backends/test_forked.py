"""Forked workers: the numbers of the plain loop, and a worker that dies."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest

from simulation.backends.base import Backend, Loop
from simulation.backends.forked import Forked, WorkerLost
from simulation.coordinator import SimulatedCoordinator
from simulation.engine import Engine, RoundShown, initial_weights
from simulation.local_work import ClientStopped, ClientTask, LocalWork, Orders
from study_protocol.randomness.source import SeededRandomness
from tests.factories.settings import limit, settings
from tests.simulation.test_engine import clients


def test_a_worker_that_dies_is_told() -> None:
    chosen = settings(max_steps=50, limits=[limit("instance", epsilon=900.0)])
    opened: list[Forked] = []

    def backend(work: LocalWork) -> Backend:
        opened.append(Forked(work, 2))
        return opened[0]

    def kill(_: RoundShown) -> None:
        process = opened[0]._workers[0].process
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()

    with pytest.raises(WorkerLost, match="exit code -9"):
        Engine(chosen, clients(4), 1, backend).run(kill)
    assert opened[0]._workers == []


@pytest.mark.parametrize("options", [{}, {"bayesian": True, "masked": True}], ids=["clear", "masked"])
def test_two_workers_give_the_numbers_of_the_plain_loop(options: dict[str, Any]) -> None:
    chosen = settings(max_steps=2, **options)
    weights = initial_weights(chosen, 1)
    work = LocalWork.of(clients(5), chosen, SeededRandomness(1, allow_insecure=True))
    vectors = SimulatedCoordinator(
        chosen, work.population.names, weights, SeededRandomness(1, allow_insecure=True)
    ).begin()
    assert vectors is not None
    orders = Orders(1, weights, None, None, vectors.vectors, 1e9)
    tasks = [ClientTask(place, None, False) for place in (0, 2, 3, 4)]
    expected = Loop(work).run(orders, tasks)
    forked = Forked(work, 2)
    try:
        done = forked.run(orders, tasks)
        assert done.findings == expected.findings
        assert done.accounts == expected.accounts
        assert done.sums.keys() == expected.sums.keys()
        assert all(np.array_equal(done.sums[name], words) for name, words in expected.sums.items())
        assert len(done.updates) == len(expected.updates)
        for ours, theirs in zip(done.updates, expected.updates, strict=True):
            for name, (shape, _) in theirs.spec.items():
                size = int(np.prod(shape))
                assert np.array_equal(ours.piece(name, 0, size), theirs.piece(name, 0, size))
    finally:
        forked.close()
    assert forked._workers == []


def test_the_first_client_that_stops_is_named_whichever_worker_is_quicker() -> None:
    chosen = settings()
    weights = {name: np.full_like(array, np.nan) for name, array in initial_weights(chosen, 1).items()}
    forked = Forked(LocalWork.of(clients(4), chosen, SeededRandomness(1, allow_insecure=True)), 2)
    try:
        tasks = [ClientTask(place, None, False) for place in range(4)]
        with pytest.raises(ClientStopped, match="h0 stopped in round 1"):
            forked.run(Orders(1, weights, None, None, (), 1e9), tasks)
    finally:
        forked.close()


def test_there_are_no_more_workers_than_clients() -> None:
    forked = Forked(LocalWork.of(clients(2), settings(), SeededRandomness(1, allow_insecure=True)), 9)
    try:
        assert len(forked._workers) == 2
    finally:
        forked.close()


def test_workers_end_by_themselves_and_none_has_to_be_killed() -> None:
    forked = Forked(LocalWork.of(clients(3), settings(), SeededRandomness(1, allow_insecure=True)), 3)
    processes = [worker.process for worker in forked._workers]
    forked.close()
    assert [process.exitcode for process in processes] == [0, 0, 0]
