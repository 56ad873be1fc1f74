"""Whether another event loop and another HTTP parser make the coordinator cheaper: uvloop and httptools, each and both.

    PYTHONPATH=$PWD:<folder with uvloop and httptools> python -m research.benchmarks.http_servers [--pairs 3]

The same coordinator (`wardround serve`, SQLite) with each of them in turn, in a process of its own: processor
milliseconds of the coordinator for one signed assignment, for /livez, and for an update of 4 MB and of 100 MB that is
verified, hashed, synced and recorded. Neither is installed with the project, which is why they are given by a folder:
`pip install --no-deps --target FOLDER uvloop==0.23.0 httptools==0.9.0`. Results go to
research/benchmarks/results/http_servers.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from research.benchmarks.load.coordinators import RETAIN
from research.benchmarks.load.line import LoadConnection
from research.benchmarks.load.meter import Meter, processor_seconds
from research.benchmarks.load.plain import PlainHospital
from research.benchmarks.load.studies import Case, open_study, plain_update
from wardround.demo.live import LiveCoordinator
from wardround.demo.processes import Process, Processes

RESULTS = Path(__file__).parent / "results" / "http_servers.json"
KINDS = (("asyncio", "h11"), ("uvloop", "h11"), ("asyncio", "httptools"), ("uvloop", "httptools"))
# Values of a plain study, each two float32, and how many updates are sent.
SIZES = {"update_4_mb": (500_000, 24), "update_100_mb": (12_500_000, 3)}
SMALL = 400


def serve(loop: str, http: str) -> None:
    """`wardround serve` with this loop and parser, whatever it would choose by itself."""
    import uvicorn

    from wardround.cli.main import main

    original_init = uvicorn.Config.__init__

    def configured(self: uvicorn.Config, *given: Any, **named: Any) -> None:
        original_init(self, *given, **named | {"loop": loop, "http": http})

    uvicorn.Config.__init__ = configured  # type: ignore[method-assign]
    sys.argv = ["wardround", "serve"]
    main()


class ConfiguredCoordinator(LiveCoordinator):
    """A coordinator on one of the kinds."""

    kind: tuple[str, str] = KINDS[0]

    def start(self, **extra: str | Path | None) -> Process:
        command = [sys.executable, "-m", "research.benchmarks.http_servers", "--serve", *self.kind]
        self.process = self.processes.start("coordinator", command, env=self.environment(**extra), log=self.log)
        return self.process


def measure(kind: tuple[str, str]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as home, Processes() as processes:
        coordinator = ConfiguredCoordinator(Path(home), processes)
        coordinator.kind = kind
        coordinator.prepare()
        coordinator.serve(log_level="WARNING")
        assert coordinator.process is not None
        pid = coordinator.process.popen.pid
        results = asyncio.run(_small(coordinator, pid))
        for name, (values, updates) in SIZES.items():
            results[name] = asyncio.run(_updates(coordinator, pid, Case(name.replace("_", "-"), updates, 1, values)))
        return results


async def _hospitals(coordinator: LiveCoordinator, pid: int, case: Case) -> list[PlainHospital]:
    """Everybody of a started study, with assignments in their hands."""
    members = open_study(coordinator, case)
    with coordinator.operator() as operator:
        operator.move_study(case.name, "start")
    meter = Meter(case.clients, [pid])
    hospitals = [PlainHospital(member, LoadConnection("127.0.0.1", coordinator.port), meter) for member in members]
    for hospital in hospitals:
        await hospital.assignment()
    return hospitals


async def _small(coordinator: LiveCoordinator, pid: int) -> dict[str, float]:
    (hospital, _) = await _hospitals(coordinator, pid, Case("small", 2, 1))
    target = hospital.target("assignment?wait=0")
    signed = [hospital.headers("GET", target) for _ in range(SMALL)]
    figures: dict[str, float] = {}
    for name, path, heads in (("livez", "/livez", [{}] * 10 * SMALL), ("assignment", target, signed)):
        used = processor_seconds([pid])
        for head in heads:
            await hospital.line.send("GET", path, head)
        figures[name] = 1e3 * (processor_seconds([pid]) - used) / len(heads)
    return figures


async def _updates(coordinator: LiveCoordinator, pid: int, case: Case) -> float:
    hospitals, body = await _hospitals(coordinator, pid, case), plain_update(case)
    # All but the last: it would close the round, which is other work.
    sent = hospitals[:-1]
    targets = [upload.target(f"rounds/1/updates/{upload.member.membership.client}") for upload in sent]
    heads = [upload.headers("PUT", target, body) for upload, target in zip(sent, targets, strict=True)]
    used = processor_seconds([pid])
    for upload, target, head in zip(sent, targets, heads, strict=True):
        answer = await upload.line.send("PUT", target, head, body)
        if answer.status != 201:
            raise RuntimeError(f"{answer.status} {answer.code}")
    return 1e3 * (processor_seconds([pid]) - used) / len(sent)


def report(pairs: int, kinds: Sequence[tuple[str, str]] = KINDS) -> dict[str, Any]:
    runs: dict[str, list[dict[str, float]]] = {"+".join(kind): [] for kind in kinds}
    for _ in range(pairs):
        for kind in kinds:
            runs["+".join(kind)].append(measure(kind))
    plain = runs["+".join(KINDS[0])]
    names = list(plain[0])
    print(f"{'processor ms of':18}", *(f"{name:>16}" for name in names))
    rows: dict[str, Any] = {}
    for kind, some in runs.items():
        medians = {name: statistics.median(figures[name] for figures in some) for name in names}
        ratios = {
            name: statistics.median(a[name] / b[name] for a, b in zip(some, plain, strict=True)) for name in names
        }
        rows[kind] = {"cpu_ms": medians, "ratio": ratios, "runs": some}
        print(f"{kind:18}", *(f"{medians[name]:9.2f} ({ratios[name]:.2f})" for name in names), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(*options.serve)
        return
    os.environ |= RETAIN
    versions = {name: version(name) for name in ("uvicorn", "h11", "uvloop", "httptools", "fastapi")}
    machine = {"platform": platform.platform(), "cores": os.cpu_count(), "python": platform.python_version()}
    results = {"machine": machine, "at": time.strftime("%Y-%m-%d"), "versions": versions, "rows": report(options.pairs)}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
