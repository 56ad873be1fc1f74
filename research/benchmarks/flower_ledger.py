"""A budget that outlives a run of Flower: python -m research.benchmarks.flower_ledger PYTHON [--out FILE].

PYTHON has flwr[dp] and what `pip install 'wardround[flower]'` brings (`research/benchmarks/flower_ledger_peer.py`).

killed      ε that a second process reads after the first one died by SIGKILL in its third round: of Flower's own
            accountant, and of the ledger
refused     the rounds that all processes together released or began before the limit stopped the next one
per_round   milliseconds of all calls of the accountant in one round of 1,000 rounds. Each entry is synced to the disk
difference  between ε of the ledger and ε of dp-accounting: its closed form for a Gaussian sum, and its Rényi accountant
            at the ledger's order for Poisson sampling
lines       of Flower's quickstart that differ in `research/flower_quickstart`, docstrings apart
"""

from __future__ import annotations

import argparse
import difflib
import json
import math
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dp_accounting
from dp_accounting.rdp import RdpAccountant

from wardround.flower.accountant import LedgerAccountant
from wardround.flower.run_ledger import RunLedger

ROOT = Path(__file__).parents[2]
PEER = Path(__file__).with_name("flower_ledger_peer.py")
QUICKSTART = ROOT / "research" / "flower_quickstart"


def rounds_of(python: str, accountant: str, folder: Path, rounds: int, killed_in: int | None = None) -> list[Any]:
    """Return what a process of Flower printed, and check that it died if it should."""
    words = [python, str(PEER), accountant, str(folder), str(rounds), *([] if killed_in is None else [str(killed_in)])]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "FLWR_TELEMETRY_ENABLED": "0"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    if (done.returncode < 0) != (killed_in is not None) or done.returncode > 0:
        raise RuntimeError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def killed(python: str) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield ε of each accountant before a kill in round 3, and as the next process reads it."""
    for accountant in ("flower", "ledger"):
        with tempfile.TemporaryDirectory() as folder:
            before = rounds_of(python, accountant, Path(folder), 5, killed_in=3)
            after = rounds_of(python, accountant, Path(folder), 1)
            yield accountant, {"last_shown": before[-1]["epsilon"], "next_process": after[0]["epsilon"]}


def refused(python: str) -> dict[str, Any]:
    """Return how many rounds three processes make of one limit, the first of which dies."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rounds_of(python, "ledger", folder, 5, killed_in=3)
        second, third = rounds_of(python, "ledger", folder, 500), rounds_of(python, "ledger", folder, 1)
        last = second[-1]
        return {"charged": 3 + last["round"] - 1, "epsilon": last["epsilon"], "third_process": "refused" in third[-1]}


def per_round(rounds: int) -> dict[str, float]:
    """Return the milliseconds of the calls that a strategy of Flower makes in one round."""
    with tempfile.TemporaryDirectory() as folder:
        accountant = LedgerAccountant(Path(folder) / "runs.db", epsilon=8.0, delta=1e-5, population=4)
        event, milliseconds = _RoundEvent(40.0, 4, 4), list[float]()
        for _ in range(rounds):
            start = time.perf_counter()
            if accountant.would_exceed(event):
                raise RuntimeError("the limit is too small for this measurement")
            accountant.compose(event)
            accountant.get_privacy_spent()
            milliseconds.append(1000 * (time.perf_counter() - start))
    ordered = sorted(milliseconds)
    last = statistics.median(milliseconds[-100:])
    return {"median": statistics.median(ordered), "p99": ordered[int(0.99 * rounds)], "median_of_last_100": last}


class _RoundEvent:
    def __init__(self, noise_multiplier: float, sample_size: int, population_size: int) -> None:
        self.noise_multiplier, self.sample_size = noise_multiplier, sample_size
        self.population_size = population_size


def difference() -> dict[str, float]:
    """Return the largest distances to dp-accounting's ε, each over several ledgers."""
    gaussian, sampled = list[float](), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        for place, (noise, steps) in enumerate(((2.0, 1), (5.0, 10), (20.0, 300), (100.0, 5000))):
            with RunLedger(Path(folder) / f"g{place}.db", epsilon=8.0, delta=1e-5) as ledger:
                ledger.charge(noise_multiplier=noise, steps=steps)
                peer = dp_accounting.get_epsilon_gaussian(noise / math.sqrt(steps), 1e-5)
                gaussian.append(abs(ledger.epsilon() - peer))
        for place, (noise, rate, steps) in enumerate(((1.1, 0.01, 1000), (2.0, 0.1, 200), (1.5, 0.005, 3000))):
            path = Path(folder) / f"s{place}.db"
            with RunLedger(path, epsilon=20.0, delta=1e-5, level="instance", rule="renyi", order=9.0) as ledger:
                ledger.charge(noise_multiplier=noise, sampling_rate=rate, steps=steps)
                account = RdpAccountant(orders=[10.0])
                event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
                account.compose(event, steps)
                sampled.append(abs(ledger.epsilon() - account.get_epsilon(1e-5)))
    return {"gaussian": max(gaussian), "poisson": max(sampled)}


def changed_lines() -> dict[str, int]:
    """Return the lines that were added or changed in each app of the quickstart."""
    counts = dict[str, int]()
    for name in ("client_app.py", "server_app.py"):
        plain_lines, kept_lines = ((QUICKSTART / file).read_text().splitlines()[1:] for file in (name, f"kept_{name}"))
        counts[name] = sum(line.startswith("+ ") for line in difflib.ndiff(plain_lines, kept_lines))
    return counts


def main() -> None:
    """Measure, print, and write the results if the command line names a file."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("python")
    arguments.add_argument("--out", type=Path)
    options = arguments.parse_args()
    results = {
        "killed": dict(killed(options.python)),
        "refused": refused(options.python),
        "per_round_milliseconds": per_round(1000),
        "difference": difference(),
        "lines": changed_lines(),
    }
    text = json.dumps(results, indent=2) + "\n"
    print(text, end="")
    if options.out is not None:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
