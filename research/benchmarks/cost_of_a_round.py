"""Processor time and bytes of a whole round of four hospitals, against an earlier tree of this project.

    python -m research.benchmarks.cost_of_a_round --before TREE [--rounds 12] [--repeats 3]

A coordinator and four hospitals run as processes on this machine, in the clear and under masks. A relay between them
counts bytes. What a start costs is taken off: each figure is the difference between a study of `rounds` + 2 rounds and
one of 2, divided by `rounds`. Both trees run in turn. Results go to research/benchmarks/results/cost_of_a_round.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from tests.harness import tiny
from wardround.demo.live import LiveCoordinator, open_study
from wardround.demo.processes import Processes, free_port

RESULTS = Path(__file__).parent / "results" / "cost_of_a_round.json"
STUDY, FEWEST = "cost", 2
HOSPITALS = {"north": 60, "south": 60, "east": 60, "west": 60}


class Relay:
    """Carries bytes between hospitals and the coordinator, and counts them."""

    def __init__(self, target: int) -> None:
        self.port, self.carried, self._target = free_port(), 0, target
        self._loop, ready = asyncio.new_event_loop(), threading.Event()
        threading.Thread(target=self._run, args=(ready,), daemon=True).start()
        ready.wait()

    def _run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", self.port))
        ready.set()
        self._loop.run_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = await asyncio.open_connection("127.0.0.1", self._target)
        await asyncio.gather(self._carry(reader, upstream[1]), self._carry(upstream[0], writer))

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(1 << 16):
                self.carried += len(data)
                sink.write(data)
                await sink.drain()
        except ConnectionError:
            pass
        finally:
            sink.close()


def run_study(masked: bool, rounds: int) -> dict[str, float]:
    """Processor seconds of all processes, and bytes, of one study from its start to its end."""
    settings = tiny.study_settings("parallel", len(HOSPITALS), rounds, masked=masked, by_limit=False)
    with tempfile.TemporaryDirectory() as folder, Processes() as processes:
        coordinator = LiveCoordinator(Path(folder) / "coordinator", processes)
        relay = Relay(coordinator.port)
        coordinator.public_origin = f"http://127.0.0.1:{relay.port}"
        coordinator.prepare()
        coordinator.serve()
        hospitals = tiny.hospitals(Path(folder), HOSPITALS, processes)
        with coordinator.operator() as operator:
            open_study(operator, STUDY, "cost", settings, hospitals, coordinator.origin)
        for process in [hospital.join(STUDY, coordinator.origin) for hospital in hospitals.values()]:
            process.wait(600)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"seconds": used.ru_utime + used.ru_stime, "bytes": float(relay.carried)}


def measure(tree: Path, masked: bool, rounds: int) -> dict[str, float]:
    """The figures of one study, run by the code of a tree."""
    command = [sys.executable, __file__, "--one", str(rounds), *(["--masked"] if masked else [])]
    done = subprocess.run(
        command, cwd=tree, env=os.environ | {"PYTHONPATH": str(tree)}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{tree}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def per_round(tree: Path, masked: bool, rounds: int) -> dict[str, float]:
    small_run, large_run = (measure(tree, masked, FEWEST + more) for more in (0, rounds))
    return {name: (large_run[name] - small_run[name]) / rounds for name in small_run}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="an earlier tree")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--masked", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(run_study(options.masked, options.one)))
        return
    if options.before is None:
        parser.error("--before names the tree to compare with")
    now, results = Path(__file__).parents[2], dict[str, Any]()
    for masked in (False, True):
        pairs = [
            [per_round(tree.resolve(), masked, options.rounds) for tree in (options.before, now)]
            for _ in range(options.repeats)
        ]
        for name in ("seconds", "bytes"):
            before, after = (statistics.median(pair[at][name] for pair in pairs) for at in (0, 1))
            ratio = statistics.median(pair[1][name] / pair[0][name] for pair in pairs)
            results[f"{'masked' if masked else 'clear'} {name}"] = {"before": before, "after": after, "ratio": ratio}
            print(
                f"{'masked' if masked else 'clear':7} {name:8} {before:12.4f} {after:12.4f}  ratio {ratio:.3f}",
                flush=True,
            )
    record = {
        "rounds": options.rounds,
        "repeats": options.repeats,
        "machine": platform.machine(),
        "load": os.getloadavg()[0],
    }
    RESULTS.write_text(json.dumps(record | {"figures": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
