"""How long the budget answer takes, after five rounds, a thousand and five thousand; and what settling a round takes.

    python -m benchmarks.budget_latency [--rounds 5 1000 5000] [--pairs 600]

A coordinator on SQLite in a thread of this process; the budget's answer and /livez go out in turn over one kept
connection, and the table gives medians, and medians of the ratios of pairs. The answer is one row, written when a round
is settled: restoring the budget, settling one more round and computing all statements is timed beside it. Results go to
benchmarks/results/budget_latency.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from accounting.budget.budget import Budget
from accounting.budget.ledger import append
from client_sdk.protocol.study.messages import LedgerHead
from client_sdk.protocol.wire.signing import LEDGER_HEAD
from experiments import tiny
from server.db.ledger_store import Statement, lock_account
from server.db.rows import find_study
from server.db.session import Transaction
from server.db.tables import LedgerRow
from tests.factories.live_coordinator import Live, live

RESULTS = Path(__file__).parent / "results" / "budget_latency.json"


def open_after(here: Live, study: str, rounds: int) -> None:
    """A study that has settled so many rounds: a ledger of two entries for each, and the statement after the last."""
    # Noise enough for as many rounds within both limits.
    chosen = tiny.settings(
        "parallel", clients=2, rounds=rounds + 10, deadline_seconds=600.0, epsilon=10.0, noise_multiplier=60.0
    )
    here.open_study(study, chosen)
    here.coordinator.database.write("benchmark", lambda tx: _settle(here, tx, study, rounds))


def _settle(here: Live, tx: Transaction, study: str, rounds: int) -> None:
    account = lock_account(tx, here.coordinator.signer, find_study(tx, study))
    newest, now, budget = account.newest, tx.now(), account.budget
    for number in range(1, rounds + 1):
        for kind in ("reserved", "settled"):
            newest = append(newest, kind, number, {})
            content = {name: value for name, value in newest.to_dict().items() if name != "body"}
            tx.session.add(LedgerRow(study_id=account.row.study_id, body="{}", written_at=now, **content))
        budget.reserve(number)
        budget.settle(number, None)
    shown = Statement.of(budget)
    account.row.state, account.row.limits, account.row.percentiles = shown.state, shown.limits, shown.percentiles
    head = LedgerHead(study=study, entries=newest.sequence, sha256=newest.sha256)
    account.row.entries, account.row.head_sha256 = newest.sequence, newest.sha256
    account.row.signature = here.coordinator.signer.sign(LEDGER_HEAD, head.model_dump(mode="json"))


def settlement(here: Live, study: str, rounds: int, repeats: int = 9) -> float:
    """Median milliseconds of restoring, settling the next round and computing every statement; each a round later."""

    def once(tx: Transaction) -> list[float]:
        account = lock_account(tx, here.coordinator.signer, find_study(tx, study))
        state, taken = account.row.state, []
        for number in range(rounds + 1, rounds + 1 + repeats):
            started = time.perf_counter()
            budget = Budget.restore(account.budget.plan, state)
            budget.reserve(number)
            budget.settle(number, None)
            shown = Statement.of(budget)
            taken.append(time.perf_counter() - started)
            state = shown.state
        return taken

    return 1000 * statistics.median(here.coordinator.database.write("benchmark", once))


def measure(here: Live, study: str, pairs: int) -> dict[str, float]:
    """Medians over `pairs` of requests in turn, after a tenth of them as a warm-up."""
    budget, livez = [], []
    for _ in range(pairs + pairs // 10):
        budget.append(_seconds(here, f"/v1/studies/{study}/budget", here.viewer_key))
        livez.append(_seconds(here, "/livez", None))
    budget, livez = budget[pairs // 10 :], livez[pairs // 10 :]
    return {
        "budget_ms": 1000 * statistics.median(budget),
        "livez_ms": 1000 * statistics.median(livez),
        "ratio": statistics.median(a / b for a, b in zip(budget, livez, strict=True)),
    }


def _seconds(here: Live, path: str, key: str | None) -> float:
    started = time.perf_counter()
    answer = here.send("GET", path, key)
    taken = time.perf_counter() - started
    if answer.status_code != 200:
        raise RuntimeError(f"{path}: {answer.status_code} {answer.text}")
    return taken


def report(sizes: Sequence[int], pairs: int) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    print(f"{'rounds':>8} {'budget, ms':>12} {'/livez, ms':>12} {'ratio':>8} {'settling, ms':>14}")
    with tempfile.TemporaryDirectory() as folder, live(Path(folder)) as here:
        for rounds in sizes:
            open_after(here, f"rounds-{rounds}", rounds)
        for rounds in sizes:
            row = {"rounds": rounds, **measure(here, f"rounds-{rounds}", pairs)}
            row["settlement_ms"] = settlement(here, f"rounds-{rounds}", rounds)
            print(f"{rounds:8,} {row['budget_ms']:12.2f} {row['livez_ms']:12.2f} {row['ratio']:8.2f}", end="")
            print(f" {row['settlement_ms']:14.1f}")
            rows.append(row)
    versions = {name: version(name) for name in ("fastapi", "uvicorn", "sqlalchemy", "pydantic")}
    machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    return {**machine, "versions": versions, "pairs": pairs, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description="Latency of the budget endpoint against /livez.")
    parser.add_argument("--rounds", type=int, nargs="+", default=[5, 1000, 5000])
    parser.add_argument("--pairs", type=int, default=600)
    options = parser.parse_args()
    made = report(options.rounds, options.pairs)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
