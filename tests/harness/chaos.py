"""Inject faults into coordinators and hospitals that really run, and check the laws of every study.

    python -m tests.harness.chaos --minutes 30 --seed 1 [--rounds 25] [--postgres [--blobs objects]]
        [--layout apart] [--kinds ring joint ...] [--record]

Two coordinators share one database and lease every study from one another; hospitals reach them through a network that
loses, repeats and delays requests. Processes are killed (SIGKILL) and stopped (SIGSTOP), disks filled, clocks put
forward and back, and the database is killed, cut off or locked. Most processes that are started again die at a
failpoint. The kinds of studies come in turn (`tests.harness.study_kinds`). With `--layout apart` workers are processes
of their own. With `--blobs objects` the two share no disk: models and updates lie in an object store. What is struck
follows the seed; what it meets there does not. A broken law ends the run with an error and leaves every file where it
is, `faults.log` among them. Ctrl-C ends it, too; the studies that had ended count. `--record` appends the run to
`research/benchmarks/results/chaos_processes.json`. Full disks need root, for small disks in memory; without it there
are none.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console

from tests.harness.faults import JumpingClock
from tests.harness.finished_processes import FinishedProcesses
from tests.harness.object_store import ObjectStore
from tests.harness.storm import Storm
from tests.harness.study_kinds import KINDS
from wardround.demo.live import embedded_postgres

RECORD = Path(__file__).parents[2] / "research" / "benchmarks" / "results" / "chaos_processes.json"


def record(run: dict[str, Any], path: Path | None = None) -> None:
    """Append one run to the record at `path`, by default that of processes."""
    path = path or RECORD
    runs: list[dict[str, Any]] = json.loads(path.read_text())["runs"] if path.exists() else []
    total: Counter[str] = Counter()
    for recorded_run in (*runs, run):
        total.update(recorded_run["faults"])
    path.write_text(json.dumps({"runs": [*runs, run], "faults": dict(sorted(total.items()))}, indent=1) + "\n")


def _blow(home: Path, url: str | None, options: argparse.Namespace, console: Console) -> dict[str, Any] | None:
    """The run as it stood after its last finished study; None if there is none."""
    began = time.monotonic()
    run: dict[str, Any] | None = None
    studies: Counter[str] = Counter()
    charged = 0
    # The library of the clocks must be there when the process that forks starts.
    with FinishedProcesses(JumpingClock(home / "nobody.clock").variables) as processes:
        store = None
        if options.blobs == "objects":
            store = ObjectStore(home / "object-store.log", processes)
            store.serve()
        storm = Storm(home, url, processes, options.seed, store=store, apart=options.layout == "apart")
        try:
            storm.begin()
            while run is None or time.monotonic() < began + 60 * options.minutes:
                kind = options.kinds[studies.total() % len(options.kinds)]
                rounds = storm.study(studies.total() + 1, kind, options.rounds)
                studies[kind] += 1
                charged += rounds
                faults = storm.counts + storm.network.counts
                restarts = faults.pop("started again", 0)
                run = {
                    "seed": options.seed,
                    "minutes": round((time.monotonic() - began) / 60, 1),
                    "database": "sqlite" if url is None else "postgresql",
                    "blobs": options.blobs,
                    "layout": options.layout,
                    "studies": dict(sorted(studies.items())),
                    "charged rounds": charged,
                    "faults": dict(sorted(faults.items())),
                    "ended by a fault and started again": restarts,
                }
                console.print(
                    f"study {studies.total()} ({kind}): every law holds after {rounds} rounds; {dict(faults)}"
                )
        except KeyboardInterrupt:
            console.print("stopped: the study under way does not count")
        # Not after a broken law: the files on small disks are kept.
        storm.close()
    return run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=25, help="of each study")
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--blobs", choices=("files", "objects"), default="files", help="objects: no disk is shared")
    parser.add_argument("--layout", choices=("together", "apart"), default="together", help="apart: APIs and workers")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="of studies, in turn")
    parser.add_argument(
        "--record", action="store_true", help="append the run to research/benchmarks/results/chaos.json"
    )
    options = parser.parse_args()
    if options.blobs == "objects" and not options.postgres:
        parser.error("without a shared disk there is no shared SQLite: add --postgres")
    # Whoever started it in the background has had SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    console = Console()
    home = Path(tempfile.mkdtemp(prefix="wardround-chaos-"))
    console.print(f"files in {home}")
    with embedded_postgres() if options.postgres else nullcontext(None) as url:
        run = _blow(home, url, options, console)
    console.print_json(data=run)
    if options.record and run is not None:
        record(run)
    shutil.rmtree(home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
