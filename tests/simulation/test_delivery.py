"""What is delivered in memory is taken, refused and released as the coordinator does it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from client_sdk import tasks
from client_sdk.errors import ConfigurationError
from client_sdk.protocol.randomness.discrete_gaussian import DiscreteGaussianNoise
from client_sdk.protocol.randomness.source import SeededRandomness
from client_sdk.protocol.wire.tensors import TensorError
from client_sdk.study.delivery import Delivery
from client_sdk.training import Contribution, LocalTraining, weights_of
from server.domain.errors import Rejected
from simulation.delivery import MemoryStudy
from tests.factories.hospitals import records
from tests.factories.settings import TASK_PARAMETERS, settings

TASK = tasks.load("logistic-regression", TASK_PARAMETERS)
START = weights_of(TASK.model())
CLIENT_LIMIT = {"level": "client", "definition": "classical", "epsilon": 50.0, "delta": 1e-5}


def study(**privacy: Any) -> MemoryStudy:
    seeded = SeededRandomness(7, allow_insecure=True)
    return MemoryStudy(settings(expected_clients=2.0, **privacy), START, DiscreteGaussianNoise(seeded).of)


def contribution(chosen: MemoryStudy, name: str, seed: int, round: int = 1) -> Contribution:
    data = TASK.dataset(records(seed=seed))
    randomness = SeededRandomness(seed, allow_insecure=True)
    return LocalTraining(TASK, data, chosen.settings, randomness, party=name).contribution(
        chosen.weights, None, round=round
    )


def deliver(chosen: MemoryStudy, name: str, made: Contribution, round: int = 1) -> None:
    way: Delivery = chosen.delivery(name)
    way.send(round, way.body(round, (), made, None))


def test_the_release_is_the_step_along_the_mean_of_what_was_delivered() -> None:
    here = study()
    made = {name: contribution(here, name, seed) for seed, name in enumerate(("alpha", "beta"))}
    for name in reversed(made):
        deliver(here, name, made[name])
    new = here.release(1)
    rate = here.settings.training.optimiser.learning_rate
    for name, before in START.items():
        mean = sum(one.update[name].astype(np.float64) for one in made.values()) / 2.0
        np.testing.assert_allclose(new[name], before - rate * mean, rtol=1e-6, atol=1e-9)
        assert not np.array_equal(new[name], before)


def test_two_runs_of_several_rounds_give_the_same_bytes_whoever_comes_first() -> None:
    names = ["a", "b"]

    def run() -> dict[str, bytes]:
        here = study(scheme="client", limits=[CLIENT_LIMIT])
        for round in (1, 2, 3):
            for name in names:
                deliver(here, name, contribution(here, name, names.index(name), round), round)
            here.release(round)
        return {name: array.tobytes() for name, array in here.weights.items()}

    assert run() == run()
    here, other = study(), study()
    made = {name: contribution(here, name, seed) for seed, name in enumerate("abc")}
    for name in "abc":
        deliver(here, name, made[name])
    for name in "cab":
        deliver(other, name, made[name])
    first, second = here.release(1), other.release(1)
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)


def test_a_body_sent_again_counts_once() -> None:
    here, other = study(), study()
    made = contribution(here, "alpha", 1)
    deliver(here, "alpha", made)
    deliver(here, "alpha", made)
    deliver(other, "alpha", made)
    first, second = here.release(1), other.release(1)
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_what_the_coordinator_would_not_take_is_not_taken() -> None:
    here = study(scheme="client", limits=[CLIENT_LIMIT])
    long = Contribution({name: np.full(array.shape, 9.0, np.float32) for name, array in START.items()}, None)
    with pytest.raises(Rejected) as rejected:
        deliver(here, "alpha", long)
    assert rejected.value.code == "clip-exceeded"
    broken = Contribution({name: np.full(array.shape, np.nan, np.float32) for name, array in START.items()}, None)
    with pytest.raises(TensorError):
        deliver(here, "alpha", broken)
    assert here.findings == {}


def test_masks_are_refused_in_words() -> None:
    chosen = settings(masked=True)
    with pytest.raises(ConfigurationError, match="without masks"):
        MemoryStudy(chosen, START, DiscreteGaussianNoise().of)


def test_one_long_update_is_refused_in_memory_too() -> None:
    here = study()
    long = Contribution({name: np.full(array.shape, 1e30, np.float32) for name, array in START.items()}, None)
    with pytest.raises(Rejected) as rejected:
        deliver(here, "alpha", long)
    assert rejected.value.code == "norm-exceeded"
    assert here.findings == {}
