"""Measure the coordinator under load: the figures of docs/coordinator.md.

    python -m research.benchmarks.coordinator [--databases sqlite postgres] [--small]
    python -m research.benchmarks.coordinator --page

Every session starts a coordinator of its own, in another process than the load generator and its hospitals
(`research/benchmarks/load`). Hospitals that mask use the SDK, and all others use raw connections. Results go to
research/benchmarks/results/coordinator.json. --page writes the recorded results into docs/coordinator.md and measures
nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from research.benchmarks.coordinator_table import page_with, rows_of, text_of

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results" / "coordinator.json"
PAGE = ROOT / "docs" / "coordinator.md"
Figures = dict[str, Any]


@dataclass(frozen=True)
class JobSession:
    """Jobs that meet one coordinator."""

    jobs: Sequence[tuple[str, Mapping[str, Any]]]
    databases: Sequence[str] = ("sqlite", "postgres")
    counts_calls: bool = False
    processes: int = 1

    def run(self, database: str) -> Iterator[Figures]:
        """Yield the figures of each job as they come. A job that failed has an `error`."""
        request = {"database": database, "jobs": list(self.jobs), "counts_calls": self.counts_calls}
        request |= {"processes": self.processes}
        variables = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        command = [sys.executable, "-P", "-m", "research.benchmarks.load.session"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, cwd=ROOT, env=variables, **pipes) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(request))
            process.stdin.close()
            for line in process.stdout:
                yield json.loads(line)
        if process.returncode:
            yield {"job": "session", "error": f"the session ended with {process.returncode}"}


def job(name: str, **parameters: Any) -> tuple[str, Mapping[str, Any]]:
    return name, parameters


HUNDRED_MB = 12_500_000
THROUGHPUT = {"clients": 200, "rounds": 3}
WHOLE = (
    JobSession([job("counts")], counts_calls=True),
    JobSession([job("requests"), job("masked", clients=5, rounds=5), job("masked", clients=30, rounds=2)]),
    JobSession([job("masked", clients=100), job("plain", clients=200, rounds=2)]),
    JobSession([job("masked", clients=300)], databases=("sqlite",)),
    JobSession([job("plain", clients=1000, rounds=2, spread_seconds=30.0)], databases=("sqlite",)),
    JobSession([job("plain", clients=2, rounds=2, values=HUNDRED_MB)], databases=("sqlite",)),
    JobSession([job("masked", clients=1000, neighbours=48)], databases=("sqlite",)),
    # Not a thousand: their own work alone takes two cores five to eleven minutes.
    JobSession([job("masked", clients=300, neighbours=48, lost=15)], databases=("sqlite",)),
    JobSession([job("plain", **THROUGHPUT)], databases=("postgres",)),
    JobSession([job("plain", **THROUGHPUT)], databases=("postgres",), processes=2),
)
SMALL = (
    JobSession([job("counts", rounds=1)], counts_calls=True),
    JobSession([job("requests", repeats=50), job("masked", clients=5), job("plain", clients=10)]),
    JobSession([job("plain", clients=10)], databases=("postgres",), processes=2),
)


def measure(sessions: Sequence[JobSession], databases: Sequence[str]) -> list[Figures]:
    measured_figures: list[Figures] = []
    for number, session in enumerate(sessions):
        for database in (name for name in session.databases if name in databases):
            at = {"session": number, "database": database, "processes": session.processes}
            for figures in session.run(database):
                measured_figures.append({**at, **figures, "load": os.getloadavg()[0]})
                print(json.dumps(measured_figures[-1]), file=sys.stderr, flush=True)
    return measured_figures


def current_commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--databases", nargs="+", choices=("sqlite", "postgres"), default=["sqlite", "postgres"])
    parser.add_argument("--small", action="store_true", help="run a short trial with a few hospitals")
    parser.add_argument("--page", action="store_true", help="write the recorded results into the page")
    options = parser.parse_args()
    if options.page:
        PAGE.write_text(page_with(PAGE.read_text(), json.loads(RESULTS.read_text())))
        return
    begun = time.monotonic()
    figures = measure(SMALL if options.small else WHOLE, options.databases)
    machine = {
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "at": time.strftime("%Y-%m-%d %H:%M"),
        "minutes": round((time.monotonic() - begun) / 60, 1),
        "commit": current_commit(),
    }
    print(text_of(rows_of(figures)))
    if not options.small:
        RESULTS.write_text(json.dumps({"machine": machine, "figures": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
