"""What is measured of a coordinator that answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from research.benchmarks.load.coordinators import Served
from research.benchmarks.load.line import LoadConnection
from research.benchmarks.load.masked import MaskedLoad
from research.benchmarks.load.meter import Meter
from research.benchmarks.load.plain import Load, PlainHospital
from research.benchmarks.load.studies import Case, open_study

Figures = dict[str, Any]


def plain(
    coordinator: Served, study: str, clients: int, rounds: int = 1, values: int = 256, spread_seconds: float = 0.0
) -> Figures:
    """Clients at once without masks."""
    return run_plain(coordinator, Case(study, clients, rounds, values), spread_seconds)


def run_plain(coordinator: Served, case: Case, spread_seconds: float = 0.0) -> Figures:
    members = open_study(coordinator.first, case)
    meter = Meter(case.clients, coordinator.pids)
    with coordinator.first.operator() as operator:
        read = operator.ledger(case.name).head.head.entries
    load = Load(members, meter, coordinator.ports, read, spread_seconds)
    figures = timed(coordinator, case, lambda: asyncio.run(load.run()))
    counts = {**_each(case, requests=load.requests), "troubles": dict(load.troubles)}
    return {**meter.summary(), **figures, **meter.answers(), **counts}


def masked(
    coordinator: Served,
    study: str,
    clients: int,
    rounds: int = 1,
    values: int = 256,
    neighbours: int | None = None,
    lost: int = 0,
) -> Figures:
    """A secure sum of all clients."""
    return run_masked(coordinator, Case(study, clients, rounds, values, True, neighbours, lost))


def run_masked(coordinator: Served, case: Case) -> Figures:
    members = open_study(coordinator.first, case)
    meter = Meter(case.clients - case.lost, coordinator.pids)
    load = MaskedLoad(members, meter, coordinator.first.origin)
    figures = timed(coordinator, case, load.run)
    counts = {**_each(case, requests=load.requests, up=load.up, down=load.down), "troubles": dict(load.troubles)}
    return {**meter.summary(), **figures, **counts}


def timed(coordinator: Served, case: Case, run: Callable[[], None]) -> Figures:
    """Of the whole study, from its start to the last client that is told of its end: per round."""
    begun, used, database = time.perf_counter(), coordinator.processor_seconds(), coordinator.database_seconds()
    with coordinator.first.operator() as operator:
        operator.move_study(case.name, "start")
    run()
    return {
        "cycle_seconds": (time.perf_counter() - begun) / case.rounds,
        "cycle_cpu_ms_each": 1e3 * (coordinator.processor_seconds() - used) / case.rounds / case.clients,
        "database_cpu_ms_each": 1e3 * (coordinator.database_seconds() - database) / case.rounds / case.clients,
        "peak_mib": coordinator.peak_mib(),
    }


def _each(case: Case, **totals: int) -> Figures:
    return {f"{quantity}_each": total / case.clients / case.rounds for quantity, total in totals.items()}


def requests(coordinator: Served, study: str, repeats: int = 400) -> Figures:
    """Processor milliseconds of the coordinator for one signed assignment, and for /livez."""
    return asyncio.run(_requests(coordinator, study, repeats))


async def _requests(coordinator: Served, study: str, repeats: int) -> Figures:
    hospital = await _assigned(coordinator, Case(study, 2, 2))
    target = hospital.target("assignment?wait=0")
    signed = [hospital.headers("GET", target) for _ in range(repeats)]
    idle_figures = await _idle(coordinator)
    for name, path, heads in (("livez", "/livez", [{}] * 8 * repeats), ("assignment", target, signed)):
        for head in heads[: repeats // 10]:
            await hospital.line.send("GET", path, head)
        begun, used = time.perf_counter(), coordinator.processor_seconds()
        for head in heads:
            answer = await hospital.line.send("GET", path, head)
            if answer.status != 200:
                raise RuntimeError(f"{path}: {answer.status} {answer.code}")
        seconds = time.perf_counter() - begun
        # Less what the worker's own looks take beside it.
        cpu = coordinator.processor_seconds() - used - seconds * idle_figures["idle_cpu_percent"] / 100
        idle_figures |= {f"{name}_cpu_ms": 1e3 * cpu / len(heads), f"{name}_ms": 1e3 * seconds / len(heads)}
    hospital.line.close()
    return idle_figures


async def _idle(coordinator: Served, seconds: float = 4.0) -> Figures:
    """What the coordinator uses while nobody asks anything."""
    used = coordinator.processor_seconds()
    await asyncio.sleep(seconds)
    return {"idle_cpu_percent": 100 * (coordinator.processor_seconds() - used) / seconds}


async def _assigned(coordinator: Served, case: Case) -> PlainHospital:
    """A client of a started study that has its assignment."""
    members = open_study(coordinator.first, case)
    with coordinator.first.operator() as operator:
        operator.move_study(case.name, "start")
    hospital = PlainHospital(
        members[0], LoadConnection("127.0.0.1", coordinator.first.port), Meter(case.clients, coordinator.pids)
    )
    await hospital.assignment()
    return hospital


def counts(coordinator: Served, study: str, clients: int = 5, rounds: int = 3) -> Figures:
    """Syncs, statements and transactions of the coordinator: for a masked round, and for one signed assignment.

    In a session that is counted.
    """
    if coordinator.counts is None:
        raise RuntimeError("this session does not count")
    case = Case(study, clients, rounds, masked=True)
    members = open_study(coordinator.first, case)
    before = coordinator.counts.read()
    load = MaskedLoad(
        members, Meter(case.clients, coordinator.pids), coordinator.first.origin, on_disk=coordinator.first.home / study
    )
    timed(coordinator, case, load.run)
    after = coordinator.counts.read()
    figures: Figures = {f"round_{name}": (after[name] - before[name]) / rounds for name in after}
    figures |= {"hospitals_syncs": load.syncs / rounds, "requests_each": load.requests / clients / rounds}
    return figures | asyncio.run(_counted_assignment(coordinator, f"{study}-one"))


async def _counted_assignment(coordinator: Served, study: str, repeats: int = 50) -> Figures:
    assert coordinator.counts is not None
    hospital = await _assigned(coordinator, Case(study, 2, 2))
    begun, idle = time.perf_counter(), coordinator.counts.read()
    await asyncio.sleep(4.0)
    seconds, before = time.perf_counter() - begun, coordinator.counts.read()
    started = time.perf_counter()
    for _ in range(repeats):
        await hospital.assignment()
    share, after = (time.perf_counter() - started) / seconds, coordinator.counts.read()
    hospital.line.close()
    # Less the worker's own looks, which go on beside it.
    return {
        f"assignment_{name}": (after[name] - before[name] - (before[name] - idle[name]) * share) / repeats
        for name in ("statements", "transactions")
    }


JOBS: dict[str, Callable[..., Figures]] = {
    "plain": plain,
    "masked": masked,
    "requests": requests,
    "counts": counts,
}
