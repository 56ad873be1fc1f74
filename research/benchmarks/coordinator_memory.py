"""The most memory that a coordinator holds while it runs rounds of a large model.

    python -m research.benchmarks.coordinator_memory [--megabytes 100] [--small]

For every way of a round (in the clear and under masks, noise of the hospitals and of the coordinator, each server
optimiser, a median) a coordinator of its own (`wardround serve` with its worker, SQLite), two rounds, and the peak of
its resident set as Linux counts it (VmHWM: code, heap and touched pages of files together). `idle` is a coordinator
that has served a study of 104 numbers: imports and the accounting of a settlement. Hospitals are in this
process; a third one asks `/livez` up to fifty times a second meanwhile, and its longest wait stands beside. Results
go to research/benchmarks/results/coordinator_memory.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from research.benchmarks.load.coordinators import served
from research.benchmarks.load.jobs import run_masked, run_plain
from research.benchmarks.load.liveness import asked_meanwhile
from research.benchmarks.load.studies import Case
from study_protocol.study.settings import StudySettings
from tests.harness import tiny

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
    def model(self) -> dict[str, np.ndarray]:
        sizes = {"head": self.values // 8, "bias": min(13, self.values // 8)}
        sizes["body"] = self.values - sum(sizes.values())
        return {name: np.full(size, 0.001, np.float32) for name, size in sizes.items()}

    def settings(self) -> StudySettings:
        level = "client" if self.scheme == "client" else "instance"
        masking = {"colluders": 1, "neighbours": None, "min_survivors": 4, "mask_updates": True, "allow_three": False}
        masking |= {"step_deadline_seconds": 600.0, "expiry_seconds": 3600.0}
        study_settings = tiny.settings(
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
        robust = study_settings.robustness.model_copy(update={"aggregation": self.aggregation})
        return StudySettings.model_validate(study_settings.model_copy(update={"robustness": robust}).model_dump())


def of_way(values: int, scheme: str, masked: bool, optimiser: str, aggregation: str) -> Large:
    name = f"{scheme}-{'masked' if masked else 'clear'}-{optimiser}-{aggregation}"
    variant = {"scheme": scheme, "optimiser": optimiser, "aggregation": aggregation}
    return Large(name, 4 if masked else 3, ROUNDS, values, masked, **variant)


def measure(case: Large) -> dict[str, Any]:
    """One study on a coordinator of its own."""
    with served("sqlite", keeps_freed=False) as coordinator:
        begun, started = time.perf_counter(), coordinator.peak_mib()
        with asked_meanwhile(coordinator.ports[0]) as waits:
            figures = run_masked(coordinator, case) if case.masked else run_plain(coordinator, case)
        return {
            "way": case.name,
            "clients": case.clients,
            "parameters": case.values,
            "started_mib": started,
            "peak_mib": figures["peak_mib"],
            "livez_ms": waits,
            "seconds": time.perf_counter() - begun,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=100.0)
    parser.add_argument("--small", action="store_true", help="a small model, to see that everything runs")
    parser.add_argument("--only", default="", help="ways whose name holds this")
    options = parser.parse_args()
    values = 13_000 if options.small else math.floor(options.megabytes * 1e6 / 4)
    cases = [Large("idle", 2, ROUNDS, 104), *(of_way(values, *way) for way in WAYS)]
    rows: list[dict[str, Any]] = []
    for case in cases:
        if options.only not in case.name:
            continue
        row = measure(case)
        rows.append(row)
        used = f"{row['started_mib']:6} {row['peak_mib']:6} MiB {row['seconds']:7.1f} s"
        print(f"{row['way']:32} {used} {row['livez_ms']['longest']:7.0f} ms", flush=True)
    machine = {"platform": platform.platform(), "cores": os.cpu_count(), "python": platform.python_version()}
    if not options.small and not options.only:
        RESULTS.write_text(json.dumps({"machine": machine, "limit_mib": LIMIT_MIB, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
