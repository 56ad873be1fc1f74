"""How long `/livez` waits while a coordinator does something else, asked from a process of its own."""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from select import select

_PAUSE_SECONDS = 0.02


@contextmanager
def asked_meanwhile(port: int) -> Generator[dict[str, float], None, None]:
    """Milliseconds of the answers during the block, there once it has ended: `median`, `p99` and `longest`."""
    figures: dict[str, float] = {}
    command = [sys.executable, "-P", __file__, str(port)]
    asker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield figures
    finally:
        # The end of its input is the end of its asking.
        output, _ = asker.communicate()
    figures.update(json.loads(output))


def _ask(port: int) -> dict[str, float]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    seconds: list[float] = []
    while not select([sys.stdin], [], [], _PAUSE_SECONDS)[0]:
        begun = time.perf_counter()
        connection.request("GET", "/livez")
        connection.getresponse().read()
        seconds.append(1e3 * (time.perf_counter() - begun))
    seconds.sort()
    return {"median": statistics.median(seconds), "p99": seconds[int(0.99 * len(seconds))], "longest": seconds[-1]}


if __name__ == "__main__":
    print(json.dumps(_ask(int(sys.argv[1]))))
