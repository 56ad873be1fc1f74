"""The cost of the audit log: the same change with and without its entry, and the check of a long log.

    python -m research.benchmarks.audit_log [--changes 300] [--entries 10000]

Keys are made in blocks, by turns without and with an entry in the log, on SQLite and on PostgreSQL in one run. Then a
reader fetches and checks a log. Results go to research/benchmarks/results/audit_log.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from server.config import Settings
from server.coordinator import open_coordinator, prepare
from server.domain.change_request import ChangeRequest
from server.services.coordinator import Coordinator
from server.services.people.audit import acting, read_log
from server.services.people.keys import create_key
from study_protocol.study.audit_log import Actor, verify_entries
from study_protocol.study.people import ApiKeyCreate
from wardround.demo.live import embedded_postgres

RESULTS = Path(__file__).parent / "results" / "audit_log.json"
BLOCK = 20
_WHO = ChangeRequest(Actor(kind="key", id="0" * 16, name="Ada Example", role="administrator"), None, "create_key")
_KEY = ApiKeyCreate(role="viewer", name="Grace Example")


@contextmanager
def coordinators(folder: Path) -> Iterator[dict[str, Coordinator]]:
    """Yield a coordinator on SQLite and one on PostgreSQL, with durable writes as in service."""
    with embedded_postgres() as url:
        opened: dict[str, Coordinator] = {}
        for name, database_url in (("sqlite", ""), ("postgres", url)):
            settings = Settings(home=folder / name, database_url=database_url)
            prepare(settings)
            opened[name] = open_coordinator(settings)
        try:
            yield opened
        finally:
            for coordinator in opened.values():
                coordinator.database.dispose()


def seconds_of(change: Callable[[], object], times: int) -> list[float]:
    """Return the seconds of each call."""
    seconds: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        change()
        seconds.append(time.perf_counter() - began)
    return seconds


def compare(coordinator: Coordinator, changes: int) -> dict[str, float]:
    """Return medians of milliseconds for a change without and with its entry, from blocks that take turns."""
    logged, plain = acting(coordinator, _WHO), replace(coordinator)
    taken: dict[str, list[float]] = {"without": [], "with": []}
    for _ in range(max(1, changes // BLOCK)):
        for name, who in (("without", plain), ("with", logged)):
            taken[name] += seconds_of(lambda who=who: create_key(who, _KEY), BLOCK)
    medians = {name: round(1000 * statistics.median(seconds), 3) for name, seconds in taken.items()}
    return medians | {"ratio": round(medians["with"] / medians["without"], 2)}


def check(coordinator: Coordinator, entries: int) -> dict[str, float]:
    """Fill the coordinator's log up to `entries`, and return the seconds in which a reader fetches and checks it."""
    logged = acting(coordinator, _WHO)
    present = read_log(coordinator, None, 0, 1).signed.head.entries
    for _ in range(max(0, entries - present)):
        create_key(logged, _KEY)
    began, reached, after = time.perf_counter(), (0, "0" * 64), 0
    while True:
        page = read_log(coordinator, None, after, 500)
        if page.fault is not None:
            raise RuntimeError(page.fault)
        reached = verify_entries(page.entries, None, reached)
        if page.next is None:
            break
        after = page.next
    seconds = time.perf_counter() - began
    return {"entries": reached[0], "seconds": round(seconds, 2), "entries_per_second": round(reached[0] / seconds)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=300)
    parser.add_argument("--entries", type=int, default=10_000)
    options = parser.parse_args()
    results: dict[str, Any] = {
        "machine": platform.processor() or platform.machine(),
        "python": platform.python_version(),
    }
    with tempfile.TemporaryDirectory() as folder, coordinators(Path(folder)) as opened:
        for name, coordinator in opened.items():
            results[name] = {"milliseconds_a_change": compare(coordinator, options.changes)}
            print(name, results[name], flush=True)
        results["check_on_sqlite"] = check(opened["sqlite"], options.entries)
    print(json.dumps(results, indent=1))
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
