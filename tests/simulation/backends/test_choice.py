"""From a backend's name to the backend, and what is refused."""

from __future__ import annotations

import os

import numpy as np
import pytest

from client_sdk.errors import ConfigurationError
from private_learning.tasks import load
from simulation.backends.base import Loop
from simulation.backends.choice import backend_called, quickest
from simulation.backends.forked import Forked
from simulation.backends.vectorised import Vectorised
from simulation.local_work import LocalWork
from simulation.population import Population
from study_protocol.randomness.source import SeededRandomness
from tests.factories.hospitals import records
from tests.factories.settings import TASK_PARAMETERS, settings


def test_only_the_backend_ray_has_an_address() -> None:
    with pytest.raises(ConfigurationError, match="--backend ray"):
        backend_called("forked", 2, "10.0.0.1:6379")
    assert backend_called("ray", 2, "10.0.0.1:6379")


def test_a_name_that_is_none_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigurationError, match=r"no backend 'abacus'. Backends are auto, loop, forked, ray, vectori"):
        backend_called("abacus")
    with pytest.raises(ConfigurationError, match="--workers is at least 1"):
        backend_called("forked", 0)
    assert backend_called("loop") is Loop
    assert backend_called("vectorised") is Vectorised


@pytest.mark.parametrize(
    ("count", "task", "kind"),
    [(200, "logistic-regression", Vectorised), (199, "logistic-regression", Forked), (200, "mlp", Forked)],
    ids=["many-linear", "few", "many-others"],
)
def test_auto_takes_many_linear_clients_at_once(
    count: int, task: str, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simulation.backends.choice.Forked.__init__", lambda self, work, workers: None)
    assert type(backend_called("auto", 1)(work_of(count, task))) is kind


def work_of(count: int, task: str) -> LocalWork:
    dataset = load(task, TASK_PARAMETERS).dataset(records(count))
    population = Population.split(dataset, [np.array([row]) for row in range(count)])
    chosen = settings(training={"task": task})
    return LocalWork.of(population, chosen, SeededRandomness(1, allow_insecure=True))


def test_a_system_that_does_not_fork_works_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")
    work = work_of(3, "mlp")
    assert [type(made) for made in (backend_called("auto")(work), quickest(work))] == [Loop, Loop]
    with pytest.raises(ConfigurationError, match="does not fork processes: take --backend loop"):
        backend_called("forked")(work)
