"""Our side of `research.benchmarks.simulation`, and loops beside it: `python -m research.benchmarks.simulation_ours
REQUEST`.

engine  a study by `simulation.engine`: budget, coins, exact noise, releases, a checkpoint after every round
bare    the clients' work alone, in the same processes, and the mean of what they give
loop    every client in turn in one process, plain steps of torch without a bound or noise on what they give
step    the hospital's own private step, client after client
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from private_learning.records import Records
from private_learning.tasks import Classification, Task, TaskDataset, registry
from research.benchmarks.simulation_work import rows_of, small_cnn
from simulation.backends.base import Backend, Loop
from simulation.backends.forked import Forked
from simulation.backends.ray import Ray
from simulation.backends.vectorised import Vectorised
from simulation.engine import Engine
from simulation.local_work import ClientTask as Turn
from simulation.local_work import LocalWork, Orders
from simulation.population import Population
from study_protocol.randomness.source import SeededRandomness
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensor_files import gather_tensors, read
from study_protocol.wire.tensors import UPDATE, Array

Request = dict[str, Any]
SEED = 1


class OpacusCnn(Classification):
    """The peers' model as a task."""

    name, classes = "opacus-cnn", 10

    def model(self) -> nn.Module:
        return small_cnn()

    def dataset(self, data: Records) -> TaskDataset:
        raise NotImplementedError("made without records of a file")


class Linear(Classification):
    """A layer on twenty numbers, two classes."""

    name, classes = "twenty-numbers", 2

    def model(self) -> nn.Module:
        return self.linear(20)

    def dataset(self, data: Records) -> TaskDataset:
        raise NotImplementedError("made without records of a file")


TASKS: Mapping[str, Callable[[Mapping[str, Any]], Task]] = {
    OpacusCnn.name: lambda _: OpacusCnn(),
    Linear.name: lambda _: Linear(),
}


def settings_of(request: Request) -> StudySettings:
    """Whole updates clipped and noised by the coordinator, as the peers do it; or private steps at every client."""
    private_steps = request["local_steps"] if request["scheme"] == "parallel" else 0
    return StudySettings.model_validate(
        {
            "training": {
                "task": request["task"],
                "algorithm": "fedavg",
                "local_steps": request["local_steps"],
                "learning_rate": request["learning_rate"],
            },
            "privacy": {
                "scheme": request["scheme"],
                "central_noise": None if private_steps else "coordinator",
                "limits": [
                    {
                        "level": "instance" if private_steps else "client",
                        "definition": "classical",
                        "epsilon": 1e6,
                        "delta": 1e-6,
                    }
                ],
                "clip_norm": request["clip_norm"],
                "client_clip_norm": None,
                "noise_multiplier": request["noise_multiplier"],
                "sampling_rate": request["sampling_rate"],
                "expected_batch_size": request["sampling_rate"] * request["records"],
                "client_sampling_rate": request["cohort"] / request["clients"],
                "expected_clients": float(request["cohort"]),
                "max_steps": (request["rounds"] + 1) * max(1, private_steps),
                "classical_order": 8.0,
                "bayesian": None,
                "disclosure": "plain",
                "histogram_noise": None,
                "accounting_sample": None,
                "masking": None,
            },
            "schedule": {"min_clients": 1, "round_deadline_seconds": 600.0},
            "beyond_bounds": True,
        }
    )


def population(request: Request) -> Population:
    x, y = _records(request)
    dataset = TaskDataset(x, y, tuple(map(str, range(len(y)))))
    owned = [rows_of(client, request["records"], len(y)) for client in range(request["clients"])]
    return Population.split(dataset, owned)


def backend_of(request: Request) -> Callable[[LocalWork], Backend]:
    if request["backend"] == "ray":
        return partial(Ray, workers=request["cores"])
    if request["backend"] == "vectorised":
        return Vectorised
    return partial(Forked, workers=request["cores"])


def engine(request: Request) -> Request:
    """Everything on."""
    folder = Path(request["folder"])
    study = Engine(
        settings_of(request),
        population(request),
        SEED,
        backend_of(request),
        weights=_weights(request),
        kept=folder / "checkpoint",
    )
    ends, clients = [time.time()], list[int]()

    def on_round(progress: Any) -> None:
        ends.append(time.time())
        clients.append(progress.clients)

    result = study.run(on_round)
    return {"ends": ends, "clients": clients, "epsilon": result.rounds[-1].spent[0]}


def bare(request: Request) -> Request:
    """Neither coins, accounts, noise nor checkpoints; clients take turns as pfl's do."""
    settings, folder = settings_of(request), Path(request["folder"])
    clients = population(request)
    work = LocalWork.of(clients, settings, SeededRandomness(SEED, allow_insecure=True))
    weights = _weights(request)
    backend, ends = backend_of(request)(work), [time.time()]
    try:
        for round in range(request["rounds"] + 1):
            first = round * request["cohort"]
            places = sorted((first + k) % len(clients) for k in range(request["cohort"]))
            orders = Orders(round + 1, weights, None, None, (), float("inf"))
            done = backend.run(orders, [Turn(place, None, reported=False) for place in places])
            weights = _moved(weights, done.updates)
            ends.append(time.time())
            if round == 0:
                np.savez(folder / "after-ours.npz", **weights)
    finally:
        backend.close()
    return {"ends": ends}


def _moved(weights: Mapping[str, Array], updates: Any) -> dict[str, Array]:
    totals = {name: np.zeros(array.shape) for name, array in weights.items()}
    for update in updates:
        arrays = gather_tensors(update.spec, read(update))
        for name, total in totals.items():
            total += arrays[UPDATE + name]
    return {name: (array + totals[name] / len(updates)).astype(np.float32) for name, array in weights.items()}


def loop(request: Request) -> Request:
    """What somebody writes who wants no privacy: as many torch threads as cores."""
    torch.set_num_threads(request["cores"])
    (x, y), model = _records(request), small_cnn()
    weights = {n: torch.from_numpy(a) for n, a in _weights(request).items()}
    ends = [time.time()]
    for _ in range(request["rounds"] + 1):
        totals = {name: torch.zeros_like(value) for name, value in weights.items()}
        for client in range(request["cohort"]):
            rows = torch.from_numpy(rows_of(client, request["records"], len(y)))
            model.load_state_dict(weights)
            optimiser = torch.optim.SGD(model.parameters(), lr=request["learning_rate"])
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    totals[name] += parameter - weights[name]
        weights = {name: value + totals[name] / request["cohort"] for name, value in weights.items()}
        ends.append(time.time())
    return {"ends": ends}


def step(request: Request) -> Request:
    """Each client a hospital by itself: a part of them, as the others would take as long."""
    step_clients = request["step_clients"]
    work = LocalWork.of(
        population(request | {"clients": step_clients}),
        settings_of(request),
        SeededRandomness(SEED, allow_insecure=True),
    )
    weights, ends, backend = _weights(request), [time.time()], Loop(work)
    for round in range(request["rounds"] + 1):
        orders = Orders(round + 1, weights, None, None, (), float("inf"))
        backend.run(orders, [Turn(place, None, reported=False) for place in range(step_clients)])
        ends.append(time.time())
    return {"ends": ends, "clients": [step_clients] * (request["rounds"] + 1)}


def _weights(request: Request) -> dict[str, Array]:
    return dict(np.load(Path(request["folder"]) / f"{request['data']}weights.npz"))


def _records(request: Request) -> tuple[Tensor, Tensor]:
    """Mapped, so that they lie in memory once, as far as they are read."""
    folder, prefix = Path(request["folder"]), request["data"]
    x, y = (torch.from_numpy(np.load(folder / f"{prefix}{name}.npy", mmap_mode="c")) for name in ("x", "y"))
    return x, y


SIDES: Mapping[str, Callable[[Request], Request]] = {"engine": engine, "bare": bare, "loop": loop, "step": step}


def main() -> None:
    torch.set_num_threads(1)
    cast("dict[str, Any]", registry.BUILT_IN).update(TASKS)
    request = json.loads(Path(sys.argv[1]).read_text())
    result = SIDES[request["side"]](request)
    print(json.dumps({**result, "versions": {name: version(name) for name in ("torch", "numpy")}}), flush=True)


if __name__ == "__main__":
    # By its name, so that other processes find the tasks.
    from research.benchmarks.simulation_ours import main as run

    run()
