"""Rounds through this coordinator and through Flower's SuperLink, in turn, on one machine in one run.

    python -m research.benchmarks.superlink --peer PYTHON [--clients 10 100] [--parameters 1000000] [--rounds 3]
    [--pairs 3]

PYTHON has flwr installed (`research/benchmarks/superlink_flower.py` says which version and what is Flower's own there).
Both run rounds of the same clients with the same float32 model: every client takes the model and sends an update as
large. Ours signs, syncs and records every update, charges the round before it and releases with noise; SuperLink keeps
everything in memory, unsigned, without a budget. Seconds of a round run from its opening to its new model; processor
seconds are those of the server's processes: coordinator with worker, SuperLink with its ServerApp. SuperNodes ask every
3 seconds; --poll lets them ask more often. Ratios are medians of pairs. Results go to
research/benchmarks/results/superlink.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "superlink.json"
PEER = Path(__file__).with_name("superlink_flower.py")
ROOT = Path(__file__).parents[2]


def ours(clients: int, parameters: int, rounds: int) -> dict[str, Any]:
    """A study of as many float32: `values` counts pairs of them."""
    jobs = [["plain", {"clients": clients, "rounds": rounds, "values": parameters // 2}]]
    command = [sys.executable, "-P", "-m", "research.benchmarks.load.session"]
    our_result = _run_side(command, {"database": "sqlite", "jobs": jobs}, PYTHONPATH=str(ROOT))
    return {"seconds": our_result["cycle_seconds"], "cpu_seconds": 1e-3 * our_result["cycle_cpu_ms_each"] * clients}


def peer(python: str, clients: int, parameters: int, rounds: int, poll_seconds: float) -> dict[str, Any]:
    request = {"clients": clients, "parameters": parameters, "count": rounds, "poll_seconds": poll_seconds}
    peer_result = _run_side([python, "-P", str(PEER)], request)
    return {**peer_result, "seconds": statistics.median(peer_result["seconds"])}


def _run_side(command: list[str], request: dict[str, Any], **variables: str) -> dict[str, Any]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run(command, input=json.dumps(request) + "\n", env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    result = json.loads(done.stdout.splitlines()[-1])
    if "error" in result:
        raise RuntimeError(result["error"])
    return result


def compare(python: str, clients: int, options: argparse.Namespace) -> dict[str, Any]:
    pairs = [
        {
            "ours": ours(clients, options.parameters, options.rounds),
            "superlink": peer(python, clients, options.parameters, options.rounds, options.poll),
        }
        for _ in range(options.pairs)
    ]
    row: dict[str, Any] = {"clients": clients, "pairs": pairs}
    for clock in ("seconds", "cpu_seconds"):
        for side in ("ours", "superlink"):
            row[f"{side}_{clock}"] = statistics.median(pair[side][clock] for pair in pairs)
        row[f"{clock}_ratio"] = statistics.median(pair["superlink"][clock] / pair["ours"][clock] for pair in pairs)
    print(
        f"{clients:8} {row['ours_seconds']:10.2f} {row['superlink_seconds']:10.2f} {row['seconds_ratio']:7.1f} "
        f"{row['ours_cpu_seconds']:10.2f} {row['superlink_cpu_seconds']:10.2f} {row['cpu_seconds_ratio']:7.1f}",
        flush=True,
    )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, metavar="PYTHON")
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--parameters", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--poll", type=float, default=3.0, help="seconds between two questions of a SuperNode")
    options = parser.parse_args()
    print(f"{'':8} {'s a round':>29} {'processor s a round':>29}")
    print(f"{'clients':>8} {'ours':>10} {'SuperLink':>10} {'ratio':>7} {'ours':>10} {'SuperLink':>10} {'ratio':>7}")
    machine = {"platform": platform.platform(), "cores": os.cpu_count(), "python": platform.python_version()}
    parameters = {name: getattr(options, name) for name in ("parameters", "rounds", "poll")}
    rows = list[dict[str, Any]]()
    for clients in options.clients:
        # How many processes waited for a core, since other work on the machine makes both slower.
        load = os.getloadavg()[0]
        rows.append(compare(options.peer, clients, options) | {"load_before": load})
        RESULTS.write_text(json.dumps({"machine": machine, **parameters, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
