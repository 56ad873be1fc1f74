"""What a coordinated round costs beside the same arithmetic in one process.

    python -m research.benchmarks.round_overhead [--clients 4 32 100] [--parameters 13 1000000] [--rounds 5]

A coordinator (`wardround serve`, SQLite) in a process of its own; all clients in this one, each with its own key and
its own signed requests over loopback HTTP: it waits for its assignment, fetches the model, sends an update. Updates are
made beforehand, so what is timed is everything but training. The peer decodes the same bodies, sums, divides, steps
and encodes, in memory. The driver's own work (signing, hashing, its HTTP client) counts against the coordinator.
Results go to research/benchmarks/results/round_overhead.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from client_sdk.api import calls
from client_sdk.api.client import AsyncClient, Client, Signature
from client_sdk.api.config import Connection
from client_sdk.errors import ConflictError
from client_sdk.identity import Identity
from client_sdk.study.enrolment import enrol
from study_protocol.study.messages import InvitationCreate, StudyCreate
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensors import UPDATE, decode, encode, prefixed, spec_of
from tests.harness import tiny
from wardround.demo.live import LiveCoordinator
from wardround.demo.processes import Processes

RESULTS = Path(__file__).parent / "results" / "round_overhead.json"
LEARNING_RATE = 0.1


@dataclass(frozen=True)
class OverheadMember:
    credentials: Signature
    body: bytes


def settings(clients: int, rounds: int) -> StudySettings:
    """Scheme parallel with a classical limit only: an update is the whole message."""
    optimiser = {"name": "plain", "learning_rate": LEARNING_RATE}
    return tiny.settings(
        "parallel",
        clients=clients,
        rounds=rounds,
        bayesian=False,
        deadline_seconds=600.0,
        training={"task": "last-layer", "task_parameters": {}, "learning_rate": 1.0, "optimiser": optimiser},
        limits=[{"level": "instance", "definition": "classical", "epsilon": 20.0, "delta": 1e-5}],
        noise_multiplier=8.0,
        sampling_rate=0.1,
    )


def in_one_process(bodies: list[bytes], weights: dict[str, np.ndarray], rounds: int) -> float:
    """Seconds per round."""
    spec = prefixed(spec_of(weights), UPDATE)
    begun = time.perf_counter()
    for _ in range(rounds):
        total = {name: np.zeros(array.shape, np.float64) for name, array in weights.items()}
        for body in bodies:
            for name, array in decode(body, spec).items():
                total[name.removeprefix(UPDATE)] += array
        weights = {
            name: (array - LEARNING_RATE * total[name] / len(bodies)).astype(np.float32)
            for name, array in weights.items()
        }
        encode(weights)
    return (time.perf_counter() - begun) / rounds


def coordinated(coordinator: LiveCoordinator, study: str, members: list[OverheadMember], rounds: int) -> float:
    """Seconds per round, from the start of the study until every client is told that it has ended."""
    begun = time.perf_counter()

    async def everybody() -> None:
        await asyncio.gather(*(take_part(coordinator.origin, study, member) for member in members))

    with coordinator.operator() as operator:
        operator.move_study(study, "start")
    asyncio.run(everybody())
    return (time.perf_counter() - begun) / rounds


async def take_part(origin: str, study: str, member: OverheadMember) -> None:
    async with AsyncClient(Connection(url=origin, read_seconds=300.0), member.credentials) as client:
        while True:
            try:
                assignment = await client.send(calls.assignment(study))
            except ConflictError as error:
                if error.code == "study-finished":
                    return
                raise
            if assignment is not None:
                body = assignment.assignment
                await client.send(calls.model(study, body.model.version))
                await client.send(calls.put_update(study, body.round, body.client, member.body))


def open_study(
    coordinator: LiveCoordinator, folder: Path, name: str, clients: int, parameters: int, rounds: int
) -> list[OverheadMember]:
    random = np.random.default_rng(0)
    members: list[OverheadMember] = []
    with coordinator.operator() as operator, Client(Connection(url=coordinator.origin)) as anonymous:
        operator.create_study(StudyCreate(study=name, settings=settings(clients, rounds)))
        operator.put_initial_model(name, encode({"weight": np.zeros(parameters, np.float32)}))
        for number in range(clients):
            token = operator.invite(name, InvitationCreate(client=f"client-{number}")).token
            identity = Identity.create(folder / f"{name}-{number}")
            membership = enrol(anonymous, identity, token)
            signature = Signature(identity.key, membership.client, name, membership.origin)
            update = random.normal(size=parameters).astype(np.float32)
            members.append(OverheadMember(signature, encode({UPDATE + "weight": update})))
    return members


def measure(folder: Path, clients: int, parameters: int, rounds: int) -> dict[str, Any]:
    with Processes() as processes:
        coordinator = LiveCoordinator(folder / "coordinator", processes)
        coordinator.prepare()
        coordinator.serve(log_level="WARNING")
        # The first settlement of a process loads the accounting libraries.
        coordinated(coordinator, "warm-up", open_study(coordinator, folder, "warm-up", 2, 13, 1), 1)
        name = f"overhead-{clients}-{parameters}"
        members = open_study(coordinator, folder, name, clients, parameters, rounds)
        seconds = coordinated(coordinator, name, members, rounds)
    bodies = [member.body for member in members]
    repeats = [in_one_process(bodies, {"weight": np.zeros(parameters, np.float32)}, 3) for _ in range(5)]
    peer = statistics.median(repeats)
    return {
        "clients": clients,
        "parameters": parameters,
        "rounds": rounds,
        "seconds_per_round": seconds,
        "in_one_process_seconds": peer,
        "overhead_seconds": seconds - peer,
        "overhead_milliseconds_per_client": 1000 * (seconds - peer) / clients,
        "ratio": seconds / peer,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[4, 32, 100])
    parser.add_argument("--parameters", type=int, nargs="+", default=[13, 1_000_000])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for parameters in options.parameters:
        for clients in options.clients:
            with tempfile.TemporaryDirectory() as folder:
                row = measure(Path(folder), clients, parameters, options.rounds)
            rows.append(row)
            print(json.dumps(row), flush=True)
    machine = {"platform": platform.platform(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
