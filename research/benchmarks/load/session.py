"""Measure one session: JSON on standard input, one line of JSON for each job on standard output.

    echo '{"database": "sqlite", "jobs": [["masked", {"clients": 5}]]}' | python -m research.benchmarks.load.session

All jobs of a session meet one coordinator, warmed up.
"""

from __future__ import annotations

import json
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from typing import Any

from research.benchmarks.load.coordinators import Counts, NoCompiler, counting, served
from research.benchmarks.load.jobs import JOBS, Figures, run_plain
from research.benchmarks.load.studies import Case

WARM_UP = 2


def session(
    database: str, jobs: Sequence[tuple[str, Mapping[str, Any]]], counts_calls: bool = False, **how: Any
) -> None:
    """Print the figures of every job, or the error that it ended with.

    Args:
        counts_calls: the coordinator counts its syncs and statements. That takes time, so nothing is timed then.
        how: as `served`: processes.
    """
    with ExitStack() as stack:
        counts: Counts | None = stack.enter_context(counting()) if counts_calls else None
        variables = None if counts is None else counts.variables()
        coordinator = stack.enter_context(served(database, variables=variables, **how))
        coordinator.counts = counts
        # The first settlement of a process loads the accounting libraries.
        run_plain(coordinator, Case("warm-up", WARM_UP, 1))
        for number, (name, options) in enumerate(jobs):
            _tell(name, options, lambda: JOBS[name](coordinator, f"{name}-{number}", **options))  # noqa: B023 - called at once


def _tell(name: str, parameters: Mapping[str, Any], run: Any) -> None:
    figures: Figures
    try:
        figures = run()
    except Exception as error:  # noqa: BLE001 - the other jobs still have figures to give
        traceback.print_exc()
        figures = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps({"job": name, "chosen": dict(parameters), **figures}), flush=True)


def main() -> None:
    # A session that is told to stop leaves no coordinator behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    request = json.load(sys.stdin)
    names = ("fastapi", "uvicorn", "sqlalchemy", "pydantic", "cryptography")
    print(json.dumps({"versions": {"python": sys.version.split()[0], **{name: version(name) for name in names}}}))
    try:
        session(**request)
    except NoCompiler:
        print(json.dumps({"job": "counts", "error": "no C compiler here: nothing is counted"}))


if __name__ == "__main__":
    main()
