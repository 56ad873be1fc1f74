"""A cluster of two nodes gives what forked processes give; without Ray the backend says what it needs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from client_sdk.errors import ConfigurationError
from simulation.backends.forked import Forked
from simulation.backends.ray import Ray
from simulation.engine import Engine, OpenBackend, SimulationOutcome
from tests.simulation.test_service import SEED, population, study_of

# In the clear, with accounts that clients keep; under masks; words for some of it and updates for the rest.
NAMES = ("client-some", "client-bayesian", "parallel-bayesian", "parallel-costs", "sequential", "joint")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    pytest.importorskip("ray", reason="needs Ray: pip install 'wardround[ray]'")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    yield cluster.address
    cluster.shutdown()


def outcome(name: str, backend: OpenBackend) -> SimulationOutcome:
    chosen = study_of(name)
    return Engine(chosen, population(chosen), SEED, backend).run()


def bytes_of(weights: Any) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in weights.items()}


# Ray leaves files and processes for the collector to close.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_cluster_of_two_gives_the_bytes_of_forked(name: str, address: str) -> None:
    here, there = outcome(name, lambda work: Forked(work, 2)), outcome(name, partial(Ray, address=address))
    assert bytes_of(there.weights) == bytes_of(here.weights)
    assert there.statements == here.statements
    assert there.events == here.events
    assert there.rounds == here.rounds


def test_without_ray_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigurationError, match=r"wardround\[ray\]"):
        outcome("client-some", Ray)
