"""What the others wait while one caller asks for much: a list of studies beside 120 certificates, and beside streams.

    python -m research.benchmarks.one_caller [--before TREE] [--seconds 20]

One coordinator after the other on SQLite with a study of 600 rounds: that of TREE, a checkout of an earlier version,
and this one. A reader asks for the list of studies five times a second, with a key of its own. Meanwhile another key
asks for 120 certificates of different rounds at once, again and again, and then opens 1,000 event streams at once. It
comes again as the SDK does where it is told to. The coordinators are processes of their own. Results go to
research/benchmarks/results/one_caller.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results" / "one_caller.json"
CERTIFICATES, STREAMS, ROUNDS = 120, 1000, 600
EVERY_SECONDS, PATIENCE_SECONDS = 0.2, 60.0
# As in the attack: a classical and a Bayesian limit.
_SERVER = """
import sys
from pathlib import Path
from tests.harness import seeded_studies as seeded
from tests.factories.live_coordinator import live
with live(Path(sys.argv[1])) as here:
    epsilons = {"bayesian": 20.0, "classical": 20.0}
    chosen = seeded.settings("parallel", rounds=2 * int(sys.argv[2]), epsilons=epsilons, noise=40.0, hospitals=4)
    here.open_study("long", chosen, model=False)
    for name in ("a", "b", "c", "d"):
        here.enrol("long", name)
    seeded.write(here, "long", seeded.History(int(sys.argv[2]), open=False))
    print(here.url, here.operator_key, here.viewer_key, flush=True)
    sys.stdin.read()
"""


def waits_of(url: str, key: str, seconds: float) -> list[float]:
    """Seconds that each list of studies took; the next one is asked at its time, or when the one before is here."""
    waits: list[float] = []
    end, headers = time.perf_counter() + seconds, {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=url, headers=headers, timeout=PATIENCE_SECONDS, trust_env=False) as http:
        while time.perf_counter() < end:
            began = time.perf_counter()
            # Who has waited this long has gone: it counts as that long.
            with suppress(httpx.TimeoutException):
                http.get("/v1/studies").raise_for_status()
            waits.append(time.perf_counter() - began)
            time.sleep(max(0.0, EVERY_SECONDS - waits[-1]))
    return waits


def _http(url: str, key: str) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=2 * STREAMS)
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.AsyncClient(base_url=url, headers=headers, limits=limits, timeout=300, trust_env=False)


async def certificates(http: httpx.AsyncClient, answered: Counter[int], over: Callable[[], bool]) -> None:
    """120 at once, each of another round, until it is over."""

    async def ask_certificate(place: int) -> None:
        round = 1 + place * (ROUNDS // CERTIFICATES)
        while not over():
            answer = await http.get(f"/v1/studies/long/certificate?round={round}")
            answered[answer.status_code] += 1
            if answer.status_code == 429:
                await asyncio.sleep(float(answer.headers["retry-after"]))
            else:
                round = round % ROUNDS + 1

    await asyncio.gather(*(ask_certificate(place) for place in range(CERTIFICATES)))


async def streams(http: httpx.AsyncClient, answered: Counter[int], over: Callable[[], bool]) -> None:
    """1,000 at once, each opened again when it has ended."""

    async def hold_stream() -> None:
        while not over():
            async with http.stream("GET", "/v1/studies/long/events?after=100000&wait=5") as answer:
                answered[answer.status_code] += 1
                with suppress(httpx.HTTPError):
                    await answer.aread()
            if answer.status_code == 429:
                await asyncio.sleep(float(answer.headers["retry-after"]) + 5)

    await asyncio.gather(*(hold_stream() for _ in range(STREAMS)))


Attack = Callable[[httpx.AsyncClient, Counter[int], Callable[[], bool]], Awaitable[None]]


async def measure_beside(url: str, operator: str, viewer: str, seconds: float, attack: Attack | None) -> dict[str, Any]:
    """What a reader waits while `attack` lasts; it stops `seconds` after it began."""
    answered: Counter[int] = Counter()
    # A process of its own: here the attacker's thousand connections would be waited for, too.
    with ProcessPoolExecutor(1) as reader:
        async with _http(url, viewer) as http:
            attacking = asyncio.ensure_future(attack(http, answered, lambda: False)) if attack else None
            waits = await asyncio.get_running_loop().run_in_executor(reader, waits_of, url, operator, seconds)
            if attacking is not None:
                attacking.cancel()
                await asyncio.gather(attacking, return_exceptions=True)
    # A single list that took as long as everything: there are not twenty of them.
    p95 = statistics.quantiles(waits, n=20)[-1] if len(waits) > 1 else waits[0]
    quantiles = {"p50": statistics.median(waits), "p95": min(p95, max(waits)), "longest": max(waits)}
    rounded = {name: round(value, 3) for name, value in quantiles.items()}
    return {**rounded, "lists": len(waits), "attacker": {str(code): count for code, count in sorted(answered.items())}}


def measure(tree: Path, seconds: float, rounds: int) -> dict[str, Any]:
    """One coordinator of this checkout."""
    env = os.environ | {"PYTHONPATH": str(tree)}
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-c", _SERVER, str(Path(home) / "coordinator"), str(rounds)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(command, cwd=tree, env=env, text=True, **pipes) as server:
            assert server.stdout is not None
            assert server.stdin is not None
            url, operator, viewer = server.stdout.readline().split()
            results: dict[str, Any] = {}
            for name, attack in (("quiet", None), ("certificates", certificates), ("streams", streams)):
                results[name] = asyncio.run(measure_beside(url, operator, viewer, seconds, attack))
                print(f"  {name}: {results[name]}", flush=True)
            server.stdin.close()
            server.kill()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="a checkout of an earlier version")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of the study")
    options = parser.parse_args()
    trees = {"before": options.before, "after": ROOT}
    results: dict[str, Any] = {"cores": os.cpu_count(), "python": platform.python_version(), "rounds": options.rounds}
    for name, tree in trees.items():
        if tree is not None:
            print(name, flush=True)
            results[name] = measure(tree.resolve(), options.seconds, options.rounds)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
