"""What counting for Prometheus costs a request: processor time with and without it, of the same requests in turn.

    python -m research.benchmarks.observation [--blocks 100]

The application answers in this process, without a socket and without its log lines, so that little else is measured:
over a network the same microseconds are a smaller part. Blocks of requests with and without metrics alternate; the
smallest of all blocks is what other processes of the machine disturbed least. Results go to
research/benchmarks/results/observation.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import platform
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from server.app import create_app
from server.config import Settings
from server.coordinator import open_coordinator, prepare
from server.services.people.keys import create_key
from study_protocol.study.people import ApiKeyCreate

RESULTS = Path(__file__).parent / "results" / "observation.json"
# Address, and how many requests are one block.
REQUESTS = (("/livez", 400), ("/v1/studies", 60))


def application(home: Path, metrics_port: int | None) -> tuple[FastAPI, str]:
    """An application over the database in `home`, and a viewer's key for it."""
    settings = Settings(home=home, worker=False, metrics_port=metrics_port)
    coordinator = open_coordinator(settings)
    return create_app(settings, coordinator=coordinator), create_key(
        coordinator, ApiKeyCreate(role="viewer", name="Ada")
    ).key or ""


async def _block(app: FastAPI, key: str, path: str, requests: int) -> float:
    """Microseconds of processor a request."""
    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b""}
    scope |= {"headers": [(b"authorization", f"Bearer {key}".encode())], "scheme": "http", "http_version": "1.1"}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        assert message.get("status", 200) == 200

    started = time.process_time()
    for _ in range(requests):
        await app(dict(scope), receive, send)
    return (time.process_time() - started) / requests * 1e6


def measure(home: Path, blocks: int) -> list[dict[str, Any]]:
    """One row for each address."""
    prepare(Settings(home=home))
    without, counting = application(home, None), application(home, 0)
    rows: list[dict[str, Any]] = []
    for path, requests in REQUESTS:
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(blocks):
            for durations, (app, key) in zip(times, (without, counting), strict=True):
                durations.append(asyncio.run(_block(app, key, path, requests)))
        fastest = [min(durations) for durations in times]
        row = {"address": path, "without_us": round(fastest[0], 1), "counted_us": round(fastest[1], 1)}
        rows.append(row | {"more": round(fastest[1] / fastest[0] - 1, 4)})
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=100)
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as home:
        rows = measure(Path(home), options.blocks)
    for row in rows:
        print(f"{row['address']:14} {row['without_us']:8} µs, counted {row['counted_us']:8} µs: {row['more']:+.1%}")
    machine = {"cpu_count": os.cpu_count(), "python": platform.python_version()}
    versions = {name: version(name) for name in ("fastapi", "prometheus-client", "sqlalchemy")}
    RESULTS.write_text(json.dumps({"machine": machine, "versions": versions, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
