"""The coordinator under load, this version beside an earlier one, in one run: the figures of docs/coordinator.md.

    python -m research.benchmarks.coordinator [--before PYTHON TREE] [--databases sqlite postgres] [--small] [--page]

PYTHON is an interpreter with the earlier version's dependencies, TREE its checkout. Every session starts a coordinator
of each version in turn (`research/benchmarks/load`), so that whatever else the machine does meets both. The coordinator
runs in a process of its own; what is compared are its processor seconds, with its worker in it, and wall seconds; the
load generator and the hospitals it plays are another process. Hospitals are driven through each version's own SDK where
they mask, over raw connections where they do not. Without --before there is no column of it. --page writes the table
into docs/coordinator.md; results go to research/benchmarks/results/coordinator.json.
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
class Version:
    """One side of the comparison: its interpreter and its checkout."""

    name: str
    python: str
    tree: Path

    def run(self, session: Mapping[str, Any]) -> Iterator[Figures]:
        """The figures of each job as they come; a job that failed has an `error`."""
        path = os.pathsep.join((str(self.tree), str(Path(__file__).parent)))
        variables = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        command = [self.python, "-P", "-m", "load.side"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, cwd=self.tree, env=variables, **pipes) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(session))
            process.stdin.close()
            for line in process.stdout:
                yield json.loads(line)
        if process.returncode:
            yield {"job": "session", "error": f"the session ended with {process.returncode}"}


@dataclass(frozen=True)
class Session:
    """Jobs that meet one coordinator. `only`: versions that can do them; None: all."""

    jobs: Sequence[tuple[str, Mapping[str, Any]]]
    databases: Sequence[str] = ("sqlite", "postgres")
    counted: bool = False
    processes: int = 1
    only: str | None = None

    def answer_of(self, database: str) -> dict[str, Any]:
        variant = {} if self.processes == 1 else {"processes": self.processes}
        return {"database": database, "jobs": list(self.jobs), "counted": self.counted, **variant}


def job(name: str, **parameters: Any) -> tuple[str, Mapping[str, Any]]:
    return name, parameters


HUNDRED_MB = 12_500_000
THROUGHPUT = {"clients": 200, "rounds": 3}
WHOLE = (
    Session([job("counts")], counted=True),
    Session([job("requests"), job("masked", clients=5, rounds=5), job("masked", clients=30, rounds=2)]),
    Session([job("masked", clients=100), job("plain", clients=200, rounds=2)]),
    Session([job("masked", clients=300)], databases=("sqlite",)),
    Session([job("plain", clients=1000, rounds=2, spread_seconds=30.0)], databases=("sqlite",)),
    Session([job("idle")], databases=("sqlite",)),
    Session([job("plain", clients=2, rounds=2, values=HUNDRED_MB)], databases=("sqlite",)),
    Session([job("masked", clients=1000, neighbours=48)], databases=("sqlite",), only="after"),
    # Not a thousand: their own work alone takes two cores five to eleven minutes.
    Session([job("masked", clients=300, neighbours=48, lost=15)], databases=("sqlite",), only="after"),
    Session([job("plain", **THROUGHPUT)], databases=("postgres",), only="after"),
    Session([job("plain", **THROUGHPUT)], databases=("postgres",), processes=2, only="after"),
    Session([job("demo")], databases=("sqlite",)),
)
SMALL = (
    Session([job("counts", rounds=1)], counted=True),
    Session([job("requests", repeats=50), job("masked", clients=5), job("plain", clients=10)]),
    Session([job("plain", clients=10)], databases=("postgres",), processes=2),
)


def measure(sessions: Sequence[Session], versions: Sequence[Version], databases: Sequence[str]) -> list[Figures]:
    measured_figures: list[Figures] = []
    for number, session in enumerate(sessions):
        for database in (name for name in session.databases if name in databases):
            for version in (name for name in versions if session.only in (None, name.name)):
                at = {"session": number, "database": database, "version": version.name, "processes": session.processes}
                for figures in version.run(session.answer_of(database)):
                    measured_figures.append({**at, **figures, "load": os.getloadavg()[0]})
                    print(json.dumps(measured_figures[-1]), file=sys.stderr, flush=True)
    return measured_figures


def commit_of(tree: Path) -> str:
    completed = subprocess.run(["git", "-C", tree, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return completed.stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", nargs=2, metavar=("PYTHON", "TREE"))
    parser.add_argument("--databases", nargs="+", choices=("sqlite", "postgres"), default=["sqlite", "postgres"])
    parser.add_argument("--small", action="store_true", help="a few hospitals, to see that everything runs")
    parser.add_argument("--only-before", action="store_true", help="measure the earlier version alone")
    parser.add_argument("--page", action="store_true", help="write the table into the page")
    options = parser.parse_args()
    after = Version("after", sys.executable, ROOT)
    earlier = [Version("before", options.before[0], Path(options.before[1]).resolve())] if options.before else []
    versions = earlier if options.only_before else [*earlier, after]
    begun = time.monotonic()
    figures = measure(SMALL if options.small else WHOLE, versions, options.databases)
    machine = {
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "at": time.strftime("%Y-%m-%d %H:%M"),
        "minutes": round((time.monotonic() - begun) / 60, 1),
        "commits": {version.name: commit_of(version.tree) for version in versions},
    }
    rows = rows_of(figures)
    print(text_of(rows))
    if not options.small:
        RESULTS.write_text(json.dumps({"machine": machine, "rows": rows, "figures": figures}, indent=1) + "\n")
    if options.page:
        PAGE.write_text(page_with(PAGE.read_text(), rows, machine))


if __name__ == "__main__":
    main()
