"""The secure sum's arithmetic against the bare keystream and against Flower's primitives.

    python -m research.benchmarks.masking --peer /path/to/python-with-flwr [--repeats 5] [--malloc retain|default]

Ours and the peer answer the same requests in turn, each in its own single-threaded process, and the table gives
medians of the ratios of pairs. Results go to research/benchmarks/results/masking.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from research.benchmarks.load.meter import RETAIN
from study_protocol.secure_sum import masking, shamir
from study_protocol.secure_sum.masking import keystream as stream_of
from study_protocol.secure_sum.messages import min_threshold
from study_protocol.secure_sum.vectors import count_vector
from tests.factories.secure_sum import Run, World

RESULTS = Path(__file__).parent / "results" / "masking.json"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Stopwatch:
    """Wall and processor seconds of a `with` block."""

    def __enter__(self) -> Stopwatch:
        self._start = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall, self.cpu = time.perf_counter() - self._start[0], time.process_time() - self._start[1]

    def per(self, repeats: int) -> dict[str, float]:
        return {"seconds": self.wall / repeats, "cpu_seconds": self.cpu / repeats}


def mask(values: int, neighbours: int) -> dict[str, float]:
    """The client's masking stage, keys given: its own mask, half of the pairs added, half subtracted."""
    vector = (np.arange(values) % 1000).astype("<u4")
    keys = [os.urandom(32) for _ in range(neighbours)]
    share_key = os.urandom(32)
    half = neighbours // 2
    with Stopwatch() as watch:
        masked = masking.aligned(values, vector.dtype)
        masking.apply_masks(masked, head=vector, add=[share_key, *keys[:half]], subtract=keys[half:])
        body = masked.data
    return {**watch.per(1), "octets": body.nbytes}


def keystream(values: int, neighbours: int) -> dict[str, float]:
    """The same number of keystream bytes in the same chunks, added to nothing."""
    ciphers = [stream_of(os.urandom(32)) for _ in range(neighbours + 1)]
    zeros, room = bytes(masking.CHUNK_BYTES), masking.aligned(masking.CHUNK_BYTES, np.dtype("u1")).data
    with Stopwatch() as watch:
        for first in range(0, 4 * values, masking.CHUNK_BYTES):
            size = min(masking.CHUNK_BYTES, 4 * values - first)
            source, target = memoryview(zeros)[:size], room[:size]
            for cipher in ciphers:
                cipher.update_into(source, target)
    return watch.per(1)


def share(holders: int, threshold: int, repeats: int) -> dict[str, float]:
    secrets = [os.urandom(32) for _ in range(repeats)]
    with Stopwatch() as watch:
        for secret in secrets:
            shamir.split([secret], holders, threshold, os.urandom(32))
    return watch.per(repeats)


def combine(holders: int, threshold: int, repeats: int) -> dict[str, float]:
    secrets = [os.urandom(32) for _ in range(repeats)]
    shares = [shamir.split([secret], holders, threshold, os.urandom(32))[:threshold] for secret in secrets]
    points = list(range(1, threshold + 1))
    with Stopwatch() as watch:
        rows = (shamir.parse_share(b"".join(some)).reshape(threshold, -1) for some in shares)
        combined = [shamir.combine(shamir.weights_at(points), some)[0] for some in rows]
    if combined != secrets:
        raise RuntimeError("shares did not combine")
    return watch.per(repeats)


def everybody(clients: int, threshold: int, values: int) -> dict[str, float]:
    """The whole protocol of all parties with its signatures, checks and stored state; nobody lost, no transport."""
    world = World(clients, 2 * (threshold - 1) - clients, [count_vector("terms", values, clients)])
    plain = [(np.arange(values) % 1000 + index).astype("<u4") for index in range(clients)]
    words = {name: {"terms": vector} for name, vector in zip(world.names, plain, strict=True)}
    with Stopwatch() as watch:
        totals = Run(world, words).finish().totals()
    if not isinstance(totals, dict) or not np.array_equal(totals["terms"][:values], sum(plain)):
        raise RuntimeError("the masks did not cancel")
    return watch.per(1)


def coordinator(clients: int, values: int) -> dict[str, float]:
    """What the coordinator computes once the replies are in: rebuild secrets, add the vectors, take the masks off."""
    world = World(clients, 1, [count_vector("terms", values, clients)])
    words = np.arange(values).astype("<u4") % 1000
    run = Run(world, {name: {"terms": words} for name in world.names}).finish()
    with Stopwatch() as watch:
        totals = run.totals()
    if not isinstance(totals, dict):
        raise RuntimeError("the masks did not cancel")
    return watch.per(1)


TASKS: dict[str, Callable[..., dict[str, float]]] = {
    "mask": mask,
    "keystream": keystream,
    "share": share,
    "combine": combine,
    "everybody": everybody,
    "coordinator": coordinator,
}


def serve() -> None:
    """Answer requests from standard input, one JSON line each."""
    print(json.dumps({"numpy": np.__version__, "cryptography": version("cryptography")}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer = TASKS[request.pop("task")](**request)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(json.dumps({**answer, "peak_mib": peak}), flush=True)


class MaskingWorker:
    """A process that answers requests."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.versions = self._answer()

    def ask(self, task: str, request: dict[str, int]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"task": task, **request}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a worker ended early: see its messages above")
        return json.loads(line)

    def close(self) -> None:
        self._process.communicate()


def compare(
    title: str,
    ours: MaskingWorker,
    task: str,
    peer: MaskingWorker,
    other_task: str,
    repeats: int,
    request: dict[str, int],
) -> dict[str, Any]:
    """`repeats` pairs in turn after a warm-up; ratio = other's time / ours, by wall clock and processor time."""
    ours.ask(task, request)
    peer.ask(other_task, request)
    pairs = [(ours.ask(task, request), peer.ask(other_task, request)) for _ in range(repeats)]

    def ratio(clock: str) -> float:
        return statistics.median(theirs[clock] / mine[clock] for mine, theirs in pairs)

    (mine, theirs), medians = pairs[-1], {}
    for side, answers in zip(("ours", "other"), zip(*pairs, strict=True), strict=True):
        medians[f"{side}_seconds"] = statistics.median(answer["seconds"] for answer in answers)
    row: dict[str, Any] = {
        "what": title,
        **request,
        **medians,
        "ratio": ratio("seconds"),
        "inverse": 1 / ratio("seconds"),
        "cpu_ratio": ratio("cpu_seconds"),
        "ratios": [theirs["seconds"] / mine["seconds"] for mine, theirs in pairs],
        "ours_peak_mib": mine["peak_mib"],
        "other_peak_mib": theirs["peak_mib"],
    }
    if "octets" in mine and "octets" in theirs:
        row |= {"ours_octets": mine["octets"], "other_octets": theirs["octets"]}
    ms = (1e3 * medians["ours_seconds"], 1e3 * medians["other_seconds"])
    ratios = f"{row['ratio']:11.2f} {row['cpu_ratio']:11.2f} {row['inverse']:11.2f}"
    print(f"{title:36} {ms[0]:10.3f} {ms[1]:12.3f} {ratios}", flush=True)
    return row


SIZES = tuple((values, neighbours) for values in (10**6, 10**7) for neighbours in (10, 50))


def against_keystream(ours: MaskingWorker, repeats: int) -> list[dict[str, Any]]:
    return [
        compare(
            f"keystream alone, {d:.0e} x {k}",
            ours,
            "mask",
            ours,
            "keystream",
            repeats,
            {"values": d, "neighbours": k},
        )
        for d, k in SIZES
    ]


def against_flower(ours: MaskingWorker, flower: MaskingWorker, repeats: int) -> list[dict[str, Any]]:
    requests: list[tuple[str, str, int, dict[str, int]]] = [
        (f"masks, {d:.0e} x {k}", "mask", repeats if d < 10**7 else 3, {"values": d, "neighbours": k}) for d, k in SIZES
    ]
    for n, c in ((10, 2), (100, 20)):
        t = min_threshold(n, c)
        for task in ("share", "combine"):
            request = {"holders": n, "threshold": t, "repeats": 20 if n == 10 else 3}
            requests.append((f"{task}, n = {n}, t = {t}", task, repeats, request))
    t = min_threshold(50, 10)
    request = {"clients": 50, "threshold": t, "values": 10**5}
    requests.append((f"all parties, 50 x 1e5, t = {t}", "everybody", 2, request))
    return [compare(f"Flower: {name}", ours, task, flower, task, r, req) for name, task, r, req in requests]


def coordinator_work(ours: MaskingWorker) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for clients in (10, 20, 50, 100):
        answer = ours.ask("coordinator", {"clients": clients, "values": 10**6})
        each = 1e3 * answer["cpu_seconds"] / clients
        print(f"coordinator, {clients:3} clients x 1e6 {1e3 * answer['cpu_seconds']:13.1f} cpu ms, {each:.2f} a client")
        rows.append({"what": "coordinator", "clients": clients, "values": 10**6, **answer})
    return rows


def report(options: argparse.Namespace) -> dict[str, Any]:
    environment = {**ONE_THREAD, **(RETAIN if options.malloc == "retain" else {})}
    ours = MaskingWorker([sys.executable, "-m", "research.benchmarks.masking", "--serve"], environment)
    print(f"{'':36} {'ours, ms':>10} {'other, ms':>12} {'other/ours':>11} {'by cpu':>11} {'ours/other':>11}")
    rows, versions = against_keystream(ours, options.repeats), {"ours": ours.versions}
    if options.peer:
        flower = MaskingWorker([options.peer, str(Path(__file__).with_name("masking_flower.py"))], environment)
        versions["flower"] = flower.versions
        rows += against_flower(ours, flower, options.repeats)
        flower.close()
    rows += coordinator_work(ours)
    ours.close()
    machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    return {"malloc": options.malloc, "threads": 1, **machine, "versions": versions, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description="Masking, sharing and whole sums against the keystream and a peer.")
    parser.add_argument("--peer", help="a Python interpreter that has flwr installed")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--malloc", choices=("retain", "default"), default="retain")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    results = report(options)
    RESULTS.parent.mkdir(exist_ok=True)
    target = RESULTS if options.malloc == "retain" else RESULTS.with_stem("masking-default-malloc")
    target.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
