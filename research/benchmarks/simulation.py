"""Rounds of the simulation engine beside pfl-research's and Flower's on Ray, in turn, on one machine in one run.

    python -m research.benchmarks.simulation --pfl PYTHON --flower PYTHON --ray PYTHON [--only NAME …] [--pairs 3]

PYTHON is one of an environment with pfl and torch, with flwr[simulation], dp-accounting and torch, or with this project
and Ray. Every client of the CNN has twenty images and takes one plain step on all of them; whole updates are clipped,
added up and noised: client-level privacy, as all three offer it. Everybody has the same images, clients, first weights
and step; without clipping and noise the weights after the first round agree, which is checked. A name alone stands for
everything: clipping, noise, accounts, and at pfl and ours a checkpoint after every round; "bare" for the clients' work
and its mean. One torch thread a process, as many processes as cores.

Seconds of a round run from its beginning to the next one's; the first is shown by itself. Processor seconds are those
of all processes together, which a busy machine inflates far less. Memory is the most that all hold together, shared
pages counted once. Ratios are medians of pairs. The allocator keeps its memory for everybody ("retained"); --allocator
default leaves it as it comes. Results go to research/benchmarks/results/simulation.json, entry by entry.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from research.benchmarks.load.meter import RETAIN, below, processor_seconds_below
from research.benchmarks.simulation_work import small_cnn

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results" / "simulation.json"
DISTINCT = 60_000  # images, as many as MNIST has
# Of weights after a round, in units of the largest change: Flower averages float32 weights and not differences.
AGREEMENT = 1e-2

Request = dict[str, Any]

CNN: Request = {
    "task": "opacus-cnn",
    "data": "",
    "backend": "forked",
    "scheme": "client",
    "sampling_rate": 1.0,
    "records": 20,
    "local_steps": 1,
    "learning_rate": 0.1,
    "clip_norm": 0.5,
    "noise_multiplier": 1.0,
}
LINEAR: Request = CNN | {
    "task": "twenty-numbers",
    "data": "linear-",
    "backend": "vectorised",
    "scheme": "parallel",
    "sampling_rate": 0.5,
    "local_steps": 5,
    "step_clients": 500,
}
EVERYBODY = ("ours", "ours bare", "pfl", "pfl bare", "Flower", "Flower bare")
# name: what is asked of everybody, who runs it, and rounds after the first of us and of Flower
WORKLOADS: Mapping[str, tuple[Request, tuple[str, ...], int, int]] = {
    "1,000 of 1,000 CNN clients": (CNN | {"clients": 1_000, "cohort": 1_000}, EVERYBODY, 3, 1),
    "100 of 10,000 CNN clients": (CNN | {"clients": 10_000, "cohort": 100}, EVERYBODY, 8, 2),
    "10,000 of 10,000 CNN clients": (
        CNN | {"clients": 10_000, "cohort": 10_000},
        ("ours", "loop of torch"),
        1,
        1,
    ),
    "10,000 logistic clients, five private steps": (
        LINEAR | {"clients": 10_000, "cohort": 10_000},
        ("ours", "step by step"),
        8,
        1,
    ),
    "600 images at each of 10,000 clients, 100 a round": (
        CNN | {"clients": 10_000, "cohort": 100, "records": 600},
        ("ours",),
        2,
        1,
    ),
    "1,000 of 1,000 CNN clients on Ray": (
        CNN | {"clients": 1_000, "cohort": 1_000},
        ("ours", "ours on Ray"),
        3,
        1,
    ),
}
OURS: Mapping[str, Request] = {
    "ours": {"side": "engine"},
    "ours bare": {"side": "bare", "clip_norm": 1e6},
    "ours on Ray": {"side": "engine", "backend": "ray"},
    "loop of torch": {"side": "loop"},
    "step by step": {"side": "step", "rounds": 1},
}


@dataclass
class Watched:
    """Processor seconds and memory of a process and all below it, every now and then until `stop`."""

    pid: int
    peak_mib: float = 0.0
    _seen: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    _stopping: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def cpu_between(self, begin: float, end: float) -> float:
        at, cpu = zip(*self._seen, strict=True)
        return float(np.interp(end, at, cpu) - np.interp(begin, at, cpu))

    def _run(self) -> None:
        looks = 0
        while not self._stopping.wait(0.1):
            self._seen.append((time.time(), processor_seconds_below(self.pid)))
            # Reading it walks page tables, which the process pays for.
            if looks % 20 == 0:
                self.peak_mib = max(self.peak_mib, held_mib(self.pid))
            looks += 1


def held_mib(pid: int) -> float:
    """What a process and everything that it has started hold; a page that several share counts once."""
    total = 0
    for process in below(pid):
        with suppress(OSError, StopIteration):
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
            total += int(next(line for line in lines if line.startswith("Pss:")).split()[1])
    return total / 1024


@dataclass(frozen=True)
class Bench:
    """Where the data lie, and how everybody is called."""

    folder: Path
    pfl: str | None
    flower: str | None
    ray: str | None
    allocator: str

    def prepare(self) -> None:
        """Images that look like MNIST to a network that learns nothing of them, and the first weights."""
        draw = np.random.default_rng(0)
        np.save(self.folder / "x.npy", draw.random((DISTINCT, 1, 28, 28), dtype=np.float32))
        np.save(self.folder / "y.npy", draw.integers(0, 10, DISTINCT))
        torch.manual_seed(0)
        weights = {name: value.numpy() for name, value in small_cnn().state_dict().items()}
        np.savez(self.folder / "weights.npz", **weights)
        np.save(self.folder / "linear-x.npy", draw.standard_normal((DISTINCT, 20), dtype=np.float32))
        np.save(self.folder / "linear-y.npy", draw.integers(0, 2, DISTINCT))
        np.savez(self.folder / "linear-weights.npz", weight=np.zeros((1, 20), np.float32), bias=np.zeros(1, np.float32))

    def run(self, side: str, request: Request) -> Request:
        """One side once: seconds of its rounds, processor seconds a round, memory."""
        for folder_name in ("pfl", "checkpoint"):
            with suppress(FileNotFoundError):
                shutil.rmtree(self.folder / folder_name) if folder_name == "pfl" else (
                    self.folder / folder_name
                ).unlink()
        side_request = request | {"folder": str(self.folder), "private": not side.endswith("bare")} | OURS.get(side, {})
        file = self.folder / "request.json"
        file.write_text(json.dumps(side_request))
        return self._watched(self._command(side, request["cores"], str(file)), request)

    def _command(self, side: str, cores: int, file: str) -> list[str]:
        if side in OURS:
            return [
                self.ray if side == "ours on Ray" and self.ray else sys.executable,
                "-m",
                "research.benchmarks.simulation_ours",
                file,
            ]
        name, python = ("pfl", self.pfl) if side.startswith("pfl") else ("flower", self.flower)
        return [str(python), str(FOLDER / f"simulation_{name}.py"), file]

    def _watched(self, command: Sequence[str], request: Request) -> Request:
        clean = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        quiet = {"PYTHONWARNINGS": "ignore", "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
        retained = RETAIN if self.allocator == "retained" else {}
        pinned = partial(os.sched_setaffinity, 0, sorted(os.sched_getaffinity(0))[: request["cores"]])
        process = subprocess.Popen(
            command,
            env=clean | threads | quiet | retained,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=pinned,
            # Linux shares a busy machine out by sessions: each side is one.
            start_new_session=True,
        )
        watched = Watched(process.pid)
        out, err = process.communicate()
        watched.stop()
        if process.returncode:
            raise RuntimeError(err[-3000:])
        return _figures(json.loads(out.splitlines()[-1]), watched, request["cohort"])


def _figures(result: Request, watched: Watched, cohort: int) -> Request:
    """Whoever draws a cohort by coins has rounds of different sizes: per round of the size that was asked for."""
    ends, clients = result["ends"], result.get("clients")
    shares = [1.0] * (len(ends) - 1) if clients is None else [cohort / count for count in clients]
    seconds = [share * float(end - begin) for share, begin, end in zip(shares, ends, ends[1:], strict=False)]
    cpu = watched.cpu_between(ends[1], ends[-1]) / (len(ends) - 2) * statistics.mean(shares[1:])
    constants = {key: result[key] for key in ("versions", "epsilon") if key in result}
    return {
        "seconds": statistics.median(seconds[1:]),
        "cpu_seconds": cpu,
        "first_seconds": seconds[0],
        "peak_mib": round(watched.peak_mib),
        **constants,
    }


def agreement(folder: Path) -> dict[str, float]:
    """How far the peers' weights after a bare first round are from ours, in units of the largest change."""
    start = dict(np.load(folder / "weights.npz"))
    ours = dict(np.load(folder / "after-ours.npz"))
    moved = max(float(np.abs(ours[name] - start[name]).max()) for name in start)
    figures: dict[str, float] = {}
    for peer in ("pfl", "flower"):
        if (folder / f"after-{peer}.npz").exists():
            theirs = dict(np.load(folder / f"after-{peer}.npz"))
            figures[peer] = max(float(np.abs(ours[name] - theirs[name]).max()) for name in start) / moved
    if any(value > AGREEMENT for value in figures.values()):
        raise RuntimeError(f"the sides do not do the same work: {figures}")
    return figures


def compare(bench: Bench, name: str, cores: int, pairs: int) -> None:
    """Everybody in turn, `pairs` times; what is known is written down after every turn."""
    workload, sides, rounds, of_flower = WORKLOADS[name]
    available = [side for side in sides if _is_available(bench, side)]
    runs: dict[str, list[Request]] = {side: [] for side in available}
    row: Request = {"workload": name, "cores": cores, "allocator": bench.allocator, "sides": {}}
    for _ in range(pairs):
        for side in available:
            count = of_flower if side.startswith("Flower") else rounds
            runs[side].append(bench.run(side, workload | {"cores": cores, "rounds": count}))
            row["sides"][side] = _row(runs, side)
            _print(name, cores, side, row["sides"][side])
            # The load of a machine that is not one's own says how far to trust the clock.
            write_row(row | {"load": os.getloadavg()[0]})
        if workload["cohort"] == workload["clients"] and "ours bare" in available and len(available) > 2:
            row["agreement"] = agreement(bench.folder)
            write_row(row | {"load": os.getloadavg()[0]})


def _is_available(bench: Bench, side: str) -> bool:
    pythons = {"pfl": bench.pfl, "Flower": bench.flower, "ours on Ray": bench.ray}
    return not any(side.startswith(peer) and python is None for peer, python in pythons.items())


def _row(runs: Mapping[str, Sequence[Request]], side: str) -> Request:
    """Medians, and how many times as long as ours: everything against everything, bare against bare."""
    against = "ours bare" if side.endswith("bare") else "ours"
    row: Request = {"versions": runs[side][0]["versions"], "turns": len(runs[side])}
    for figure in ("seconds", "cpu_seconds", "first_seconds", "peak_mib"):
        row[figure] = statistics.median(run[figure] for run in runs[side])
    for clock in ("seconds", "cpu_seconds"):
        pairs = list(zip(runs[side], runs[against], strict=False))
        row[f"{clock}_ratio"] = statistics.median(theirs[clock] / ours[clock] for theirs, ours in pairs)
    return row


def _print(name: str, cores: int, side: str, row: Request) -> None:
    print(
        f"{name:50} {cores:5} {side:14} {row['seconds']:8.3f} {row['cpu_seconds']:8.3f} {row['first_seconds']:8.2f} "
        f"{row['peak_mib']:8.0f} {row['seconds_ratio']:7.2f} {row['cpu_seconds_ratio']:7.2f}",
        flush=True,
    )


def write_row(row: Request) -> None:
    """Replace the entry of the same workload, cores and allocator."""
    recorded = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"rows": []}
    keys = ("workload", "cores", "allocator")
    rows = [old_row for old_row in recorded["rows"] if any(old_row[key] != row[key] for key in keys)]
    machine = {"platform": platform.platform(), "cores": os.cpu_count(), "python": platform.python_version()}
    RESULTS.write_text(json.dumps({"machine": machine, "rows": [*rows, row]}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pfl", metavar="PYTHON")
    parser.add_argument("--flower", metavar="PYTHON")
    parser.add_argument("--ray", metavar="PYTHON", help="with ray, and what this project needs")
    parser.add_argument("--only", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--allocator", choices=["retained", "default"], default="retained")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), options.pfl, options.flower, options.ray, options.allocator)
        bench.prepare()
        print(f"{'':71} {'s a round':>8} {'cpu s':>8} {'first':>8} {'MiB':>8} {'ratio':>7} {'of cpu':>7}")
        for name in options.only:
            for cores in options.cores:
                compare(bench, name, cores, options.pairs)


if __name__ == "__main__":
    main()
