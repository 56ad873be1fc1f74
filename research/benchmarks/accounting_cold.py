"""The first ε of a fresh process, ours and dp-accounting's: python -m research.benchmarks.accounting_cold

Rényi accounts of the five workloads of `research.benchmarks.accounting_tightness`. Every pair is two new processes in
turn; the table gives medians, and medians of the ratios of pairs (above 1: ours is faster), for the first answer after
the import and for import and answer together. Run with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "accounting_cold.json"
# σ, q, steps, δ
WORKLOADS = [
    (1.1, 256 / 60000, 14062, 1e-5),
    (0.7, 512 / 50000, 10000, 1e-5),
    (1.0, 0.1, 300, 1e-3),
    (2.0, 0.01, 300, 1e-5),
    (4.0, 1.0, 100, 1e-6),
]
_TIMED = """
import logging, time, warnings
logging.disable(logging.CRITICAL); warnings.simplefilter("ignore")
sigma, rate, steps, delta = {workload!r}
began = time.process_time()
{load}
loaded = time.process_time()
{ask}
print(loaded - began, time.process_time() - loaded, epsilon)
"""
_OURS = (
    "from accounting import ClassicalAccountant",
    "account = ClassicalAccountant(delta=delta, method='rdp')\n"
    "account.step(noise_multiplier=sigma, sampling_rate=rate, count=steps)\n"
    "epsilon = account.epsilon()",
)
_PEER = (
    "from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent\nfrom dp_accounting.rdp import RdpAccountant",
    "account = RdpAccountant()\n"
    "account.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(sigma)), steps)\n"
    "epsilon = account.get_epsilon(delta)",
)


def fresh(code: tuple[str, str], workload: tuple[float, float, int, float]) -> tuple[float, float, float]:
    """Processor seconds of the import and of the first answer in a new process, and that answer."""
    script = _TIMED.format(workload=workload, load=code[0], ask=code[1])
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    load, ask, epsilon = map(float, done.stdout.split())
    return load, ask, epsilon


def measure(workload: tuple[float, float, int, float], pairs: int) -> dict[str, Any]:
    """Medians over pairs of processes in turn."""
    timings = [(fresh(_OURS, workload), fresh(_PEER, workload)) for _ in range(pairs)]
    return {
        "workload": list(workload),
        "epsilon": {"ours": timings[0][0][2], "dp-accounting": timings[0][1][2]},
        "first answer, seconds": {
            "ours": statistics.median(ours[1] for ours, _ in timings),
            "dp-accounting": statistics.median(peer[1] for _, peer in timings),
        },
        "import and first answer, seconds": {
            "ours": statistics.median(ours[0] + ours[1] for ours, _ in timings),
            "dp-accounting": statistics.median(peer[0] + peer[1] for _, peer in timings),
        },
        "ratio of first answers": statistics.median(peer[1] / ours[1] for ours, peer in timings),
        "ratio with the import": statistics.median((peer[0] + peer[1]) / (ours[0] + ours[1]) for ours, peer in timings),
    }


def main() -> None:
    """Print the ratios and write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    rows = [measure(workload, arguments.pairs) for workload in WORKLOADS]
    for row in rows:
        ask, whole = row["first answer, seconds"], row["import and first answer, seconds"]
        print(
            f"{row['workload']!s:48} first answer {ask['ours']:.4f} s, x {row['ratio of first answers']:.2f}"
            f"   with import {whole['ours']:.2f} s, x {row['ratio with the import']:.2f}"
        )
    result = {
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("numpy", "scipy", "dp-accounting")},
        "pairs": arguments.pairs,
        "rows": rows,
    }
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
