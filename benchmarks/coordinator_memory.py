"""The most memory that a coordinator holds while it runs rounds of a large model.

    python -m benchmarks.coordinator_memory [--megabytes 100] [--small]

For every way of a round (in the clear and under masks, noise of the hospitals and of the coordinator, each server
optimiser, a median) a coordinator of its own (`wardround serve` with its worker, SQLite), two rounds, and the peak of
its resident set as Linux counts it (VmHWM: code, heap and touched pages of files together). `idle` is a coordinator
that has served a study of 104 numbers: imports and the accounting of a settlement. Hospitals are threads here.
Results go to benchmarks/results/coordinator_memory.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measured import peak_mib
from benchmarks.secure_sessions import Case, Hospital, Meter, open_study
from client_sdk.protocol.secure_sum.parameters import SessionPlan
from client_sdk.protocol.study.settings import StudySettings
from client_sdk.protocol.wire.tensors import UPDATE, encode, spec_of
from experiments import tiny
from experiments.live import LiveCoordinator
from experiments.processes import Processes

RESULTS = Path(__file__).parent / "results" / "coordinator_memory.json"
LIMIT_MIB = 350
ROUNDS = 2
# (scheme, masked, server optimiser, aggregation)
WAYS = (
    *(("parallel", False, optimiser, "mean") for optimiser in ("plain", "momentum", "adam")),
    *(("client", False, optimiser, "mean") for optimiser in ("plain", "momentum", "adam")),
    ("parallel", False, "plain", "median"),
    ("parallel", True, "adam", "mean"),
    ("client", True, "adam", "mean"),
)


@dataclass(frozen=True)
class Large(Case):
    """A study of a model of `values` numbers, most of them in one tensor."""

    scheme: str = "parallel"
    optimiser: str = "plain"
    aggregation: str = "mean"

    @property
    def name(self) -> str:
        return f"{self.scheme}-{'masked' if self.masked else 'clear'}-{self.optimiser}-{self.aggregation}"

    @property
    def rounds(self) -> int:
        return ROUNDS

    @property
    def model(self) -> dict[str, np.ndarray]:
        sizes = {"head": self.values // 8, "bias": min(13, self.values // 8)}
        sizes["body"] = self.values - sum(sizes.values())
        return {name: np.full(size, 0.001, np.float32) for name, size in sizes.items()}

    def settings(self) -> StudySettings:
        level = "client" if self.scheme == "client" else "instance"
        masking = {"colluders": 1, "min_survivors": 4, "mask_updates": True, "allow_three": False}
        masking |= {"step_deadline_seconds": 600.0, "expiry_seconds": 3600.0}
        made = tiny.settings(
            self.scheme,  # type: ignore[arg-type]
            clients=self.clients,
            rounds=ROUNDS,
            bayesian=False,
            deadline_seconds=600.0,
            training={
                "task": "last-layer",
                "task_parameters": {},
                "algorithm": "fedavg",
                "learning_rate": 1.0,
                "optimiser": {"name": self.optimiser, "learning_rate": 0.1},
            },
            limits=[{"level": level, "definition": "classical", "epsilon": 20.0, "delta": 1e-5}],
            noise_multiplier=8.0,
            sampling_rate=0.1,
            masking=masking if self.masked else None,
        )
        robust = made.robustness.model_copy(update={"aggregation": self.aggregation})
        return StudySettings.model_validate(made.model_copy(update={"robustness": robust}).model_dump())

    def body(self) -> bytes:
        """What every hospital sends: words to be masked, or a whole update."""
        if not self.masked:
            return encode({UPDATE + name: np.full_like(array, 1e-9) for name, array in self.model.items()})
        plan = SessionPlan.of(
            self.settings(), spec_of(self.model), study=self.name, round=1, roster="ab" * 32, model="cd" * 32
        )
        (spec,) = plan.parameters(self.clients, session=bytes(32), now=0).vectors
        return np.ones(self.values, spec.dtype).tobytes()


def measure(case: Large) -> dict[str, Any]:
    """One study on a coordinator of its own."""
    with tempfile.TemporaryDirectory() as home, Processes() as processes:
        coordinator = LiveCoordinator(Path(home), processes)
        coordinator.prepare()
        pid = coordinator.serve(log_level="WARNING").popen.pid
        begun, started = time.perf_counter(), peak_mib(pid)
        hospitals = open_study(coordinator, Path(home), case)
        meter, body = Meter(case, pid), case.body()
        with coordinator.operator() as operator:
            operator.move_study(case.name, "start")
        with ThreadPoolExecutor(case.clients) as pool:
            done = [pool.submit(Hospital.take_part, hospital, body, meter) for hospital in hospitals]
            for each in done:
                each.result()
        for hospital in hospitals:
            hospital.close()
        return {
            "way": case.name,
            "clients": case.clients,
            "parameters": case.values,
            "started_mib": started,
            "peak_mib": peak_mib(pid),
            "seconds": time.perf_counter() - begun,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=100.0)
    parser.add_argument("--small", action="store_true", help="a small model, to see that everything runs")
    parser.add_argument("--only", default="", help="ways whose name holds this")
    options = parser.parse_args()
    values = 13_000 if options.small else math.floor(options.megabytes * 1e6 / 4)
    cases = [Large("sqlite", 2, 104, False)]
    cases += [Large("sqlite", 4 if way[1] else 3, values, way[1], way[0], *way[2:]) for way in WAYS]
    rows: list[dict[str, Any]] = []
    for number, case in enumerate(cases):
        if options.only not in case.name:
            continue
        row = measure(case) | ({"way": "idle"} if number == 0 else {})
        rows.append(row)
        print(f"{row['way']:32} {row['started_mib']:6} {row['peak_mib']:6} MiB {row['seconds']:7.1f} s", flush=True)
    machine = {"platform": platform.platform(), "cores": os.cpu_count(), "python": platform.python_version()}
    if not options.small and not options.only:
        RESULTS.write_text(json.dumps({"machine": machine, "limit_mib": LIMIT_MIB, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
