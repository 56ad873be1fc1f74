"""What a load measures: seconds of rounds, processor seconds of the coordinator's processes, seconds of answers."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

# Freed memory is kept, so that page faults do not count against whoever allocates.
RETAIN = {"MALLOC_TRIM_THRESHOLD_": "100000000000", "MALLOC_MMAP_THRESHOLD_": "100000000000"}


def processor_seconds(pids: Sequence[int]) -> float:
    """Of all their threads so far."""
    return sum(_processor_seconds(pid) for pid in pids)


def _processor_seconds(pid: int, ended: bool = False) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(int(field) for field in fields[11 : 15 if ended else 13]) / os.sysconf("SC_CLK_TCK")


def processor_seconds_below(pid: int) -> float:
    """Of a process and everything that it has started, what has ended included."""
    total = 0.0
    for process in below(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            total += _processor_seconds(process, ended=True)
    return total


def below(pid: int) -> list[int]:
    """A process and everything that it has started and that still runs."""
    processes = [pid]
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in task.read_text().split():
                processes += below(int(child))
    return processes


def peak_mib(pid: int) -> int:
    """The most memory that a process has held."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024


class Meter:
    """Wall and processor seconds from the first client that begins a round to the last that ends it."""

    def __init__(self, clients: int, pids: Sequence[int]) -> None:
        self._clients, self._pids, self._lock = clients, pids, threading.Lock()
        self._begun, self._ended = Counter[int](), Counter[int]()
        self._at: dict[int, tuple[float, float]] = {}
        self.rounds: list[dict[str, float]] = []
        self._first_news: dict[int, float] = {}
        self._answers: defaultdict[str, list[float]] = defaultdict(list)

    @contextmanager
    def round(self, number: int) -> Iterator[None]:
        with self._lock:
            self._begun[number] += 1
            if self._begun[number] == 1:
                self._at[number] = self._now()
        yield
        with self._lock:
            self._ended[number] += 1
            if self._ended[number] == self._clients:
                (wall, cpu), (wall_before, cpu_before) = self._now(), self._at[number]
                self.rounds.append({"seconds": wall - wall_before, "cpu_seconds": cpu - cpu_before})

    def answered(self, quantity: str, seconds: float) -> None:
        self._answers[quantity].append(seconds)

    def note_round(self, number: int) -> None:
        """A client has its assignment; counted from when the first of them had it."""
        now = time.perf_counter()
        self.answered("assignment", now - self._first_news.setdefault(number, now))

    def answers(self) -> dict[str, float]:
        """Median, 99th percentile and maximum in seconds, of each kind and of all."""
        totals: dict[str, float] = {}
        everything = [seconds for some in self._answers.values() for seconds in some]
        for quantity, some in {**self._answers, "all": everything}.items():
            if len(some) > 1:
                cuts = statistics.quantiles(some, n=100)
                totals |= {f"{quantity}_p50": cuts[49], f"{quantity}_p99": cuts[98], f"{quantity}_max": max(some)}
        return totals

    def summary(self) -> dict[str, Any]:
        """Medians of the rounds."""
        medians = {
            quantity: statistics.median(figures[quantity] for figures in self.rounds)
            for quantity in ("seconds", "cpu_seconds")
        }
        return {**medians, "cpu_ms_each": 1e3 * medians["cpu_seconds"] / self._clients, "rounds": self.rounds}

    def _now(self) -> tuple[float, float]:
        return time.perf_counter(), processor_seconds(self._pids)
