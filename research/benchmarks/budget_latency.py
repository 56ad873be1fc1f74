"""How long the budget answer takes, after five rounds, a thousand and five thousand; and what settling a round takes.

    python -m research.benchmarks.budget_latency [--rounds 5 1000 5000] [--pairs 600]

A coordinator on SQLite in a thread of this process; the budget's answer and /livez go out in turn over one kept
connection, and the table gives medians, and medians of the ratios of pairs. "cpu" is the processor time of caller and
coordinator together, which other processes of a busy machine disturb less. The answer was computed when a round was
settled; restoring the budget, settling one more round and computing all statements is timed beside it, and so is the
first answer after a settlement, for which the rows are compared with the signed entry. Results go to
research/benchmarks/results/budget_latency.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from accounting.budget.budget import Budget
from server.db.ledger_store import Statement, lock_account
from server.db.rows import find_study
from server.db.session import Transaction
from tests.factories.live_coordinator import Live, live
from tests.harness import tiny

RESULTS = Path(__file__).parent / "results" / "budget_latency.json"


def open_after(coordinator: Live, study: str, rounds: int) -> None:
    """A study that has settled so many rounds: a ledger of two entries for each, and the statement after the last."""
    # Noise enough for as many rounds within both limits.
    study_settings = tiny.settings(
        "parallel", clients=2, rounds=rounds + 10, deadline_seconds=600.0, epsilon=10.0, noise_multiplier=60.0
    )
    coordinator.open_study(study, study_settings)
    coordinator.coordinator.database.write("benchmark", lambda tx: _settle(coordinator, tx, study, rounds))


def _settle(coordinator: Live, tx: Transaction, study: str, rounds: int) -> None:
    account = lock_account(tx, coordinator.coordinator.signer, find_study(tx, study))
    for number in range(1, rounds + 1):
        account.record("reserved", number, {})
        # No report: the round costs what it reserved.
        account.record("settled", number, {"report": None})


def settlement(coordinator: Live, study: str, rounds: int, repeats: int = 9) -> float:
    """Median milliseconds of restoring, settling the next round and computing every statement; each a round later."""

    def once(tx: Transaction) -> list[float]:
        account = lock_account(tx, coordinator.coordinator.signer, find_study(tx, study))
        state, timings = account.row.state, []
        for number in range(rounds + 1, rounds + 1 + repeats):
            started = time.perf_counter()
            budget = Budget.restore(account.budget.plan, state)
            budget.reserve(number)
            budget.settle(number, None)
            statement = Statement.of(budget)
            timings.append(time.perf_counter() - started)
            state = statement.state
        return timings

    return 1000 * statistics.median(coordinator.coordinator.database.write("benchmark", once))


def measure(coordinator: Live, study: str, pairs: int) -> dict[str, float]:
    """Medians over `pairs` of requests in turn, after a tenth of them as a warm-up."""
    path = f"/v1/studies/{study}/budget"
    pairs_of_times = [
        (_timed(coordinator, path, coordinator.viewer_key), _timed(coordinator, "/livez", None))
        for _ in range(pairs + pairs // 10)
    ]
    budget, livez = zip(*pairs_of_times[pairs // 10 :], strict=True)
    return {
        "budget_ms": 1000 * statistics.median(timing.wall for timing in budget),
        "budget_tenth_ms": 1000 * _tenth(timing.wall for timing in budget),
        "budget_cpu_ms": 1000 * statistics.median(timing.cpu for timing in budget),
        "compared_cpu_ms": 1000 * statistics.median(_compared(coordinator, study) for _ in range(max(9, pairs // 10))),
        "livez_ms": 1000 * statistics.median(timing.wall for timing in livez),
        "livez_tenth_ms": 1000 * _tenth(timing.wall for timing in livez),
        "ratio": statistics.median(a.wall / b.wall for a, b in zip(budget, livez, strict=True)),
    }


@dataclass(frozen=True)
class Timed:
    """Seconds of one request: by the clock, and of the processor for both ends."""

    wall: float
    cpu: float


def _tenth(values: Iterable[float]) -> float:
    """What one in ten is below: near what a machine takes on which nothing else runs."""
    return statistics.quantiles(values, n=10)[0]


def _timed(coordinator: Live, path: str, key: str | None) -> Timed:
    wall, cpu = time.perf_counter(), time.process_time()
    answer = coordinator.send("GET", path, key)
    elapsed = Timed(time.perf_counter() - wall, time.process_time() - cpu)
    if answer.status_code != 200:
        raise RuntimeError(f"{path}: {answer.status_code} {answer.text}")
    return elapsed


def _compared(coordinator: Live, study: str) -> float:
    """Processor seconds of a request that finds nothing remembered, as the first one after every settlement."""
    coordinator.coordinator.statements.clear()
    return _timed(coordinator, f"/v1/studies/{study}/budget", coordinator.viewer_key).cpu


def report(sizes: Sequence[int], pairs: int) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    columns = (
        "budget_ms",
        "budget_tenth_ms",
        "budget_cpu_ms",
        "compared_cpu_ms",
        "livez_ms",
        "livez_tenth_ms",
        "ratio",
        "settlement_ms",
    )
    print(f"{'rounds':>8}", *(f"{name:>16}" for name in columns))
    with tempfile.TemporaryDirectory() as folder, live(Path(folder)) as coordinator:
        for rounds in sizes:
            open_after(coordinator, f"rounds-{rounds}", rounds)
        for rounds in sizes:
            row = {"rounds": rounds, **measure(coordinator, f"rounds-{rounds}", pairs)}
            row["settlement_ms"] = settlement(coordinator, f"rounds-{rounds}", rounds)
            print(f"{rounds:8,}", *(f"{row[name]:16.2f}" for name in columns), flush=True)
            rows.append(row)
    versions = {name: version(name) for name in ("fastapi", "uvicorn", "sqlalchemy", "pydantic")}
    machine = {
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "machine": platform.machine(),
        "python": platform.python_version(),
    }
    return {**machine, "versions": versions, "pairs": pairs, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description="Latency of the budget endpoint against /livez.")
    parser.add_argument("--rounds", type=int, nargs="+", default=[5, 1000, 5000])
    parser.add_argument("--pairs", type=int, default=600)
    options = parser.parse_args()
    results = report(options.rounds, options.pairs)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
