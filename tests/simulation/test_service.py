"""A simulated study gives what the service gives over HTTP: released bytes, and every field of every guarantee.

Six hospitals join a coordinator on a real socket, both sides seeded; the same settings and records are then simulated.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.numpy import load

from client_sdk.api.config import Connection
from client_sdk.errors import WardroundError
from client_sdk.study.hospital import Hospital
from simulation.backends.base import Backend, Done, Loop, OpenBackend
from simulation.backends.forked import Forked
from simulation.engine import Engine, SimulationOutcome, initial_weights
from simulation.local_work import ClientTask, LocalWork, Orders
from simulation.population import Population
from study_protocol.randomness.source import SeededRandomness
from study_protocol.study.settings import StudySettings
from study_protocol.wire.signing import canonical_json
from study_protocol.wire.tensors import encode
from tests.factories.hospitals import plain_policy, records
from tests.factories.live_coordinator import Live, live
from tests.factories.settings import TASK_PARAMETERS, limit, settings
from tests.factories.trainings import prepared_training

SEED, ROUNDS = 11, 10
NAMES = ("ash", "birch", "cedar", "elder", "fir", "hazel")
CLIENT_LIMITS = [limit("client", epsilon=900.0)]

Json = dict[str, Any]


def fedavg(**more: Any) -> Json:
    return {"algorithm": "fedavg", "local_steps": 2, "learning_rate": 0.3} | more


HISTOGRAM = {
    "accounting_sample": {"records": 16, "source": "members"},
    "disclosure": "noised",
    "histogram_noise": {"std": 6.0, "every": 2},
}
MOMENTUM = {"optimiser": {"name": "momentum", "learning_rate": 0.5}}
# A prior that the coordinator adds after the noise, in a sum that nobody sees parts of.
POSTERIOR = MOMENTUM | {
    "task": "bayesian-logistic-regression",
    "task_parameters": TASK_PARAMETERS | {"prior-std": 2.5, "patients": 180},
}
FALLING = [{"rounds": 2, "factor": 1.5}, {"rounds": 5, "factor": 1.25}, {"rounds": 3, "factor": 1.0}]
ADAM = {"optimiser": {"name": "adam", "learning_rate": 0.1}}
# The bits of an adaptive norm are heard through the noise of their round.
HALVED = [{"rounds": 4, "factor": 1.0}, {"rounds": 6, "factor": 0.5}]
# From far too large a norm, which falls from round to round.
ADAPTIVE = {
    "adaptive_clip": {"quantile": 0.5, "rate": 0.5},
    "clip_norm": 8.0,
    "noise_multiplier": 0.5,
    "limits": [limit("instance", epsilon=900.0)],
}
STUDIES: dict[str, tuple[str, Json]] = {
    "client": ("client", {"training": fedavg(), "limits": CLIENT_LIMITS}),
    "client-some": ("client", {"client_sampling_rate": 0.6, "limits": CLIENT_LIMITS, "training": MOMENTUM}),
    "client-bayesian": ("client", {"bayesian": True, "training": ADAM}),
    "client-masked": ("client", {"masked": True, "limits": CLIENT_LIMITS}),
    "shares": ("client-distributed", {"limits": CLIENT_LIMITS, "training": fedavg()}),
    "shares-bayesian": ("client-distributed", {"bayesian": True}),
    "parallel": ("parallel", {"training": fedavg(local_optimiser={"name": "adam"})}),
    "parallel-bayesian": ("parallel", {"bayesian": True, "training": fedavg()}),
    "parallel-costs": ("parallel", {"bayesian": True, "masked": True}),
    "parallel-noised": ("parallel", {"bayesian": True, "masked": True} | HISTOGRAM),
    "parallel-centred": ("parallel", {"training": {"clipping_centre": "previous-update"}, "masked": False}),
    "sequential": ("sequential", {"bayesian": True}),
    "sequential-at-end": ("sequential", {"bayesian": True, "disclosure": "at-end"}),
    "sequential-posterior": ("sequential", {"bayesian": True, "masked": True, "training": POSTERIOR}),
    "parallel-adaptive": ("parallel", ADAPTIVE | {"robustness": {"aggregation": "median", "sum_radius": 20.0}}),
    "parallel-adaptive-masked": ("parallel", ADAPTIVE | {"masked": True, "training": ADAM}),
    "sequential-adaptive": ("sequential", ADAPTIVE | {"training": MOMENTUM}),
    "sequential-adaptive-falling": ("sequential", ADAPTIVE | {"noise_schedule": HALVED}),
    "joint": ("joint", {"bayesian": True}),
    "client-falling": ("client", {"client_sampling_rate": 0.6, "limits": CLIENT_LIMITS, "noise_schedule": FALLING}),
    "shares-falling": ("client-distributed", {"limits": CLIENT_LIMITS, "noise_schedule": FALLING}),
    "parallel-falling": ("parallel", {"training": fedavg(), "noise_schedule": FALLING}),
    "sequential-falling": ("sequential", {"noise_schedule": FALLING}),
    "joint-classical": ("joint", {}),
}


# Every scheme, masked and in the clear; the others run with the longer tests.
FIRST = ("client-some", "client-masked", "shares", "parallel", "parallel-noised", "sequential", "joint")


def study_of(name: str) -> StudySettings:
    scheme, options = STUDIES[name]
    chosen: Json = {"expected_clients": 6.0, "schedule": {"min_clients": 4}, **options}
    steps = chosen.get("training", {}).get("local_steps", 1)
    of_updates = scheme.startswith("client")
    return settings(scheme, **chosen | {"max_steps": ROUNDS * (1 if of_updates else steps)})


class Site(threading.Thread):
    """One hospital that joins the study and stays."""

    def __init__(self, here: Live, directory: Path, name: str) -> None:
        super().__init__(name=name)
        self.here, self.directory = here, directory
        self.error: WardroundError | None = None

    def connection(self, _: str) -> Connection:
        return Connection(url=self.here.url, patience_seconds=30.0)

    def run(self) -> None:
        randomness = SeededRandomness(SEED, allow_insecure=True)
        try:
            hospital = Hospital.enrol(
                self.here.url,
                self.here.invite("sepsis", self.name),
                directory=self.directory,
                connection=self.connection,
            )
            data = records(seed=NAMES.index(self.name))
            hospital.join(
                "sepsis", None, data, policy=plain_policy(unnoised_updates=True), dataset="icu", randomness=randomness
            )
        except WardroundError as error:
            self.error = error


def served(chosen: StudySettings, first: Mapping[str, Any], home: Path) -> tuple[dict[int, bytes], Json, list[Any]]:
    """The released models by version, the budget statement, and the ledger, of the service."""
    seeded = SeededRandomness(SEED, allow_insecure=True)
    with live(home / "coordinator", randomness=seeded, long_poll_seconds=1.0) as here:
        here.open_study("sepsis", chosen, model=False)
        assert here.operator("PUT", "/v1/studies/sepsis/models/0", content=encode(first)).status_code == 201
        sites = [Site(here, home / name, name) for name in NAMES]
        for site in sites:
            site.start()
        while here.operator("GET", "/v1/studies/sepsis").json()["clients"] < len(NAMES):
            assert all(site.is_alive() for site in sites), [site.error for site in sites]
            time.sleep(0.02)
        assert here.operator("POST", "/v1/studies/sepsis/start").status_code == 200
        end = time.monotonic() + 240
        while any(site.is_alive() for site in sites):
            assert time.monotonic() < end
            here.work()
            time.sleep(0.01)
        assert [site.error for site in sites] == [None] * len(sites)
        entries = here.operator("GET", "/v1/studies/sepsis/ledger").json()["entries"]
        released = [entry["round"] for entry in entries if entry["kind"] == "settled"]
        models = {v: here.operator("GET", f"/v1/studies/sepsis/models/{v}").content for v in released}
        return models, here.operator("GET", "/v1/studies/sepsis/budget").json(), entries


def population(chosen: StudySettings) -> Population:
    clients = {
        name: prepared_training(records(seed=place), plain_policy(), chosen, party=name).dataset
        for place, name in enumerate(NAMES)
    }
    return Population.of(clients)


class Watched:
    """A backend, and the weights that every round begins with: what the rounds before released."""

    def __init__(self, backend: Backend) -> None:
        self.exact, self._backend = backend.exact, backend
        self.begun: list[Mapping[str, Any]] = []
        self.norms: list[float | None] = []

    def run(self, orders: Orders, tasks: Sequence[ClientTask]) -> Done:
        self.begun.append(orders.weights)
        self.norms.append(orders.clip_norm)
        return self._backend.run(orders, tasks)

    def close(self) -> None:
        self._backend.close()


def simulated(
    chosen: StudySettings, first: Mapping[str, Any], backend: OpenBackend
) -> tuple[SimulationOutcome, list[Mapping[str, Any]], list[float | None]]:
    """What came of it, the model of every release, and the clip norm of every round."""
    opened: list[Watched] = []

    def watched(work: LocalWork) -> Backend:
        opened.append(Watched(backend(work)))
        return opened[0]

    found = Engine(chosen, population(chosen), SEED, watched, weights=first).run()
    models = [*opened[0].begun[1:], found.weights]
    # A round that came to nothing, and the next one begins with the same weights.
    return found, [after for before, after in pairwise([first, *models]) if after is not before], opened[0].norms


def norms_in(entries: list[Any]) -> list[float | None]:
    """Clip norms of the released models in order, as the ledger names them; None where the study's is constant."""
    return [e["body"].get("clip_norm") for e in entries if e["kind"] == "released"]


def bytes_of(weights: Mapping[str, Any]) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in sorted(weights.items())}


def events_of(entries: list[Any]) -> list[tuple[str, int | None, Json]]:
    """What happened, without how the study stood, members who came, acts of people, files' names and the opening."""
    told = ("report", "reason", "query", "cost")
    happened = [entry for entry in entries if entry["kind"] not in ("opened", "roster", "operated", "released")]
    return [(e["kind"], e["round"], {n: e["body"][n] for n in told if n in e["body"]}) for e in happened]


def named_in(entries: list[Any]) -> dict[int, str]:
    """Digests of the released models by version, as the ledger names them."""
    return {e["round"] or 0: e["body"]["sha256"] for e in entries if e["kind"] == "released"}


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FIRST else pytest.mark.slow) for name in STUDIES]
)
def test_a_simulation_gives_the_bytes_of_the_service(name: str, tmp_path: Path) -> None:
    chosen = study_of(name)
    first = initial_weights(chosen, SEED)
    models, statement, entries = served(chosen, first, tmp_path)
    named = named_in(entries)
    assert sorted(named) == [0, *sorted(models)]
    assert {version: hashlib.sha256(file).hexdigest() for version, file in models.items()}.items() <= named.items()
    for backend in (Loop, lambda work: Forked(work, 2)):
        found, released, norms = simulated(chosen, first, backend)
        assert [round.round for round in found.rounds if round.reason is None] == sorted(models)
        assert [bytes_of(load(models[version])) for version in sorted(models)] == [bytes_of(one) for one in released]
        assert canonical_json(statement["limits"]) == canonical_json(found.statements)
        assert statement["stop_reason"] == found.stop_reason
        assert len(models) < ROUNDS or norms == norms_in(entries)[:-1]
        wanted = [(event.kind, event.round, dict(event.body)) for event in found.events]
        assert canonical_json(events_of(entries)) == canonical_json(wanted)
    # Under a schedule a round that the coins gave too few clients has used up its place.
    assert len(models) == ROUNDS or name in ("client-some", "client-falling")
    assert bytes_of(first) != bytes_of(released[0])
    assert (norms[-1] is None) == ("adaptive" not in name)
    assert norms[-1] is None or norms[-1] < norms[0] / 4, "half of the gradients are far shorter than the first norm"


def test_every_scheme_is_compared_masked_and_in_the_clear() -> None:
    compared = {(study_of(name).privacy.rules.id, study_of(name).privacy.masking is not None) for name in FIRST}
    possible = {("client", True), ("client", False), ("client-distributed", True), ("parallel", True)}
    assert compared == possible | {("parallel", False), ("sequential", True), ("joint", True)}
