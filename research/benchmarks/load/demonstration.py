"""The demonstration of this version, timed from outside."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from .meter import below, processor_seconds

_LOOK_SECONDS = 0.25


def demo(database: str) -> dict[str, float]:
    """Seconds of the whole demonstration, and the processor seconds that its coordinator used."""
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "wardround.demo", "--home", str(Path(home) / "demo")]
        command += ["--postgres"] if database == "postgres" else []
        begun = time.perf_counter()
        with Path(home, "output").open("w+") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True)
            used = 0.0
            while process.poll() is None:
                used = max(used, _coordinator_seconds(process.pid))
                time.sleep(_LOOK_SECONDS)
            seconds = time.perf_counter() - begun
            output.seek(0)
            if process.returncode:
                raise RuntimeError(output.read()[-2000:])
    return {"seconds": seconds, "coordinator_cpu_seconds": used}


def _coordinator_seconds(pid: int) -> float:
    """Of its `wardround serve` so far; 0 where there is none now."""
    total = 0.0
    for process in below(pid):
        # One may end between two looks.
        with suppress(OSError):
            if b"serve" in Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0"):
                total += processor_seconds([process])
    return total
