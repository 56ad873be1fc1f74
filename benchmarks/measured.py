"""What a process has used, from Linux's own account."""

from __future__ import annotations

import os
from pathlib import Path

# Freed memory is kept, so that page faults do not count against whoever allocates.
RETAIN = {"MALLOC_TRIM_THRESHOLD_": "100000000000", "MALLOC_MMAP_THRESHOLD_": "100000000000"}


def processor_seconds(pid: int) -> float:
    """Of all its threads so far; steadier than the clock on a busy machine."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mib(pid: int) -> int:
    """The most memory it has held."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024
