"""How fast updates go into the coordinator, against a handler that discards the body and against the bare disk.

    python -m research.benchmarks.ingest [--parameters 1000000] [--updates 50] [--connections 4] [--pairs 5]

Coordinator and peer run in processes of their own and take the same bytes over loopback in turn. The coordinator
verifies a signature, hashes, writes, fsyncs, checks every tensor and commits before it answers; the peer reads and
forgets. Ratios are medians of pairs. Results go to research/benchmarks/results/ingest.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from fastapi import FastAPI, Request

from research.benchmarks.load.meter import RETAIN, processor_seconds
from study_protocol.wire.tensors import UPDATE, encode
from tests.factories.live_coordinator import live
from tests.harness import tiny

RESULTS = Path(__file__).parent / "results" / "ingest.json"

Requests = Sequence[tuple[str, str]]


def update(parameters: int) -> bytes:
    return encode({UPDATE + "weight": np.full(parameters, 1e-9, np.float32)})


def serve_peer() -> None:
    """The same server and framework; the handler reads the body and forgets it."""
    app = FastAPI()

    @app.put("/{path:path}", status_code=201)
    async def discard(request: Request) -> dict[str, int]:  # pyright: ignore[reportUnusedFunction]
        return {"bytes": sum([len(piece) async for piece in request.stream()])}

    listener = socket.create_server(("127.0.0.1", 0))
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False)).run(sockets=[listener])


def serve_coordinator(parameters: int, updates: int) -> None:
    """For every line that comes in: a study in its first round, and the signed heads of its hospitals' requests."""
    body = update(parameters)
    settings = tiny.settings("parallel", clients=updates, rounds=50, bayesian=False, deadline_seconds=600.0)
    with tempfile.TemporaryDirectory() as home, live(Path(home)) as coordinator:
        for number, _ in enumerate(sys.stdin):
            study = f"ingest-{number}"
            coordinator.open_study(study, settings, model=False)
            model = encode({"weight": np.zeros(parameters, np.float32)})
            coordinator.operator("PUT", f"/v1/studies/{study}/models/0", content=model)
            hospitals = [coordinator.enrol(study, f"hospital-{index}") for index in range(updates)]
            coordinator.operator("POST", f"/v1/studies/{study}/start")
            coordinator.work()
            paths = [f"/v1/studies/{study}/rounds/1/updates/{hospital.name}" for hospital in hospitals]
            tokens = [
                coordinator.token(hospital, "PUT", path, body) for hospital, path in zip(hospitals, paths, strict=True)
            ]
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            ready = {
                "port": coordinator.http.base_url.port,
                "requests": list(zip(paths, tokens, strict=True)),
                "peak": peak,
            }
            print(json.dumps(ready), flush=True)


class Server:
    """A server in a process of its own that says in JSON lines where it is."""

    def __init__(self, kind: str, options: argparse.Namespace) -> None:
        command = [sys.executable, "-m", "research.benchmarks.ingest", "--serve", kind]
        command += ["--parameters", str(options.parameters), "--updates", str(options.updates)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(command, env={**os.environ, **RETAIN, "OMP_NUM_THREADS": "1"}, **pipes)

    def ask(self) -> dict[str, Any]:
        self._process.stdin.write("\n")  # type: ignore[union-attr]
        self._process.stdin.flush()  # type: ignore[union-attr]
        return self.listen()

    def listen(self) -> dict[str, Any]:
        return json.loads(self._process.stdout.readline())  # type: ignore[union-attr]

    def processor_seconds(self) -> float:
        return processor_seconds([self._process.pid])

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def send_all(port: int, requests: Requests, body: bytes, connections: int) -> float:
    """Seconds until every request is answered 201, over so many kept connections."""

    def run(requests: Requests) -> None:
        with socket.create_connection(("127.0.0.1", port)) as line, line.makefile("rb") as answers:
            for path, token in requests:
                head = f"PUT {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
                line.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode())
                line.sendall(body)
                _require_created(answers)

    started = time.perf_counter()
    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(run, [requests[index::connections] for index in range(connections)]))
    return time.perf_counter() - started


def _require_created(answers: Any) -> None:
    status, length = answers.readline(), 0
    while (line := answers.readline()) not in (b"\r\n", b""):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    text = answers.read(length)
    if b" 201 " not in status:
        raise RuntimeError((status + text).decode())


def disk(body: bytes, updates: int) -> float:
    """Seconds to write, fsync and name as many files, in one thread and without hashing."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        for index in range(updates):
            path = Path(folder) / str(index)
            with path.open("wb", buffering=0) as file:
                file.write(body)
                os.fsync(file.fileno())
        return time.perf_counter() - started


def report(options: argparse.Namespace) -> dict[str, Any]:
    body = update(options.parameters)
    megabytes = len(body) * options.updates / 1e6
    coordinator, peer = Server("coordinator", options), Server("peer", options)
    port = peer.listen()["port"]
    rows: list[dict[str, float]] = []
    for _ in range(options.pairs):
        ready = coordinator.ask()
        requests = [(path, token) for path, token in ready["requests"]]
        row = _timed("ours", coordinator, ready["port"], requests, body, options.connections)
        row |= _timed("discard", peer, port, requests, body, options.connections)
        rows.append(row | {"disk": disk(body, options.updates)})
    peak = coordinator.ask()["peak"] / 1024
    coordinator.close()
    peer.close()
    return {"megabytes": megabytes, "peak_mib": peak, "rows": rows, **_summary(rows, megabytes, peak)}


def _timed(name: str, server: Server, port: int, requests: Requests, body: bytes, connections: int) -> dict[str, float]:
    before = server.processor_seconds()
    seconds = send_all(port, requests, body, connections)
    return {name: seconds, f"{name}_cpu": server.processor_seconds() - before}


def _summary(rows: list[dict[str, float]], megabytes: float, peak: float) -> dict[str, Any]:
    speeds = {name: megabytes / statistics.median(row[name] for row in rows) for name in ("ours", "discard", "disk")}
    ratios = {name: statistics.median(row["ours"] / row[name] for row in rows) for name in ("discard", "disk")}
    cpu = statistics.median(row["ours_cpu"] / row["discard_cpu"] for row in rows)
    for name, speed in speeds.items():
        print(
            f"{name:10} {speed:8.0f} MB/s" + (f"   ours takes {ratios[name]:.2f} x as long" if name in ratios else "")
        )
    print(f"processor time: {cpu:.2f} x that of discarding")
    print(f"peak memory of the coordinator and what prepares it: {peak:.0f} MiB for {megabytes:.0f} MB a round")
    return {"speeds_mb_s": speeds, "time_ratios": ratios, "cpu_ratio": cpu}


def main() -> None:
    parser = argparse.ArgumentParser(description="Ingest of updates against discarding them and against the disk.")
    parser.add_argument("--parameters", type=int, default=1_000_000)
    parser.add_argument("--updates", type=int, default=50)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--serve", choices=("coordinator", "peer"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve == "peer":
        serve_peer()
    elif options.serve == "coordinator":
        serve_coordinator(options.parameters, options.updates)
    else:
        machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
        versions = {name: version(name) for name in ("fastapi", "uvicorn", "safetensors", "numpy")}
        parameters = {name: getattr(options, name) for name in ("parameters", "updates", "connections", "pairs")}
        results = {**machine, "versions": versions, "malloc": "retain", **parameters, **report(options)}
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
