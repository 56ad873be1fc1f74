"""The demonstration of this version, timed from outside."""

from __future__ import annotations

import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from wardround.demo.processes import WARDROUND

from .meter import below, processor_seconds

_LOOK_SECONDS = 0.25


def demo(database: str) -> dict[str, float]:
    """Seconds of the whole demonstration, and the processor seconds that its coordinator used."""
    with tempfile.TemporaryDirectory() as home:
        command = [*WARDROUND, "demo", "--home", str(Path(home) / "demo")]
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
    for one in below(pid):
        # One may end between two looks.
        with suppress(OSError):
            if b"serve" in Path(f"/proc/{one}/cmdline").read_bytes().split(b"\0"):
                total += processor_seconds([one])
    return total
