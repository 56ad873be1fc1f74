"""Clients in forked processes, one thread each, over memory that they share with the process that asks.

Every worker has the population and the task as they were when the backend was made. A round's updates come back through
one shared array, words summed, and everything else through pipes.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
import torch

from simulation.backends.base import Done, UpdateLayout, WordSums
from simulation.backends.portions import (
    Portion,
    PortionResult,
    Slots,
    WorkerLost,
    collected,
    masks_updates,
    portions,
    take_portion,
)
from simulation.local_work import ClientStopped, ClientTask, LocalWork, Orders


class Forked:
    """A backend of `workers` processes. None: as many as there are processors."""

    exact = True

    def __init__(self, work: LocalWork, workers: int | None = None) -> None:
        count = min(workers or len(os.sched_getaffinity(0)), len(work.population))
        self._layout = UpdateLayout.of(work.sent)
        self._shared = _shared(work, self._layout)
        if work.settings.training.local_optimiser.name != "plain":
            # The first optimiser of a process loads a large part of torch: once, before anybody is forked.
            torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        self._workers = [_Worker.start(work, self._layout, self._shared) for _ in range(count)]

    def run(self, orders: Orders, tasks: Sequence[ClientTask]) -> Done:
        results = self._portion_results(orders, tasks)
        sums = WordSums(orders.vectors)
        for worker in self._workers:
            sums.add(worker.ask("sums"))
        rows = () if self._shared is None else self._shared[: len(tasks)]
        return collected(len(tasks), results, self._layout.updates(rows), sums)

    def close(self) -> None:
        # A worker ends with its pipe, of which every later one has a copy: all are closed before one is waited for.
        for worker in self._workers:
            worker.pipe.close()
        for worker in self._workers:
            worker.stop()
        self._workers = []

    def _portion_results(self, orders: Orders, tasks: Sequence[ClientTask]) -> list[PortionResult]:
        """Hand the turns out as workers get free. An error waits until all have stopped, so that the first is told."""
        for worker in self._workers:
            worker.tell(orders)
        waiting = portions(tasks, len(self._workers))
        busy: dict[Connection, _Worker] = {}
        for worker in self._workers:
            if waiting:
                worker.tell(waiting.pop())
                busy[worker.pipe] = worker
        results: list[PortionResult] = []
        stopped: list[ClientStopped] = []
        while busy:
            for pipe in wait(list(busy)):
                worker = busy.pop(pipe)  # type: ignore[arg-type]
                answer = worker.hear()
                if isinstance(answer, ClientStopped):
                    stopped.append(answer)
                    waiting.clear()
                    continue
                results.append(answer)
                if waiting:
                    worker.tell(waiting.pop())
                    busy[worker.pipe] = worker
        if stopped:
            raise min(stopped, key=lambda stop: stop.client)
        return results


@dataclass(frozen=True)
class _Worker:
    process: BaseProcess
    pipe: Connection

    @classmethod
    def start(cls, work: LocalWork, layout: UpdateLayout, shared: Slots | None) -> _Worker:
        context = multiprocessing.get_context("fork")
        parent_end, worker_end = context.Pipe()
        process = context.Process(target=_serve, args=(worker_end, parent_end, work, layout, shared), daemon=True)
        process.start()
        worker_end.close()
        return cls(process, parent_end)

    def tell(self, message: object) -> None:
        try:
            self.pipe.send(message)
        except OSError as error:
            raise self._lost() from error

    def hear(self) -> Any:
        try:
            return self.pipe.recv()
        except (EOFError, OSError) as error:
            raise self._lost() from error

    def ask(self, message: object) -> Any:
        self.tell(message)
        return self.hear()

    def stop(self) -> None:
        self.pipe.close()
        self.process.join(5.0)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def _lost(self) -> WorkerLost:
        self.process.join(5.0)
        return WorkerLost(
            f"a process of the simulation ended (exit code {self.process.exitcode}): there may be too little memory. "
            "With a checkpoint, the same command continues with the round that was under way"
        )


def _serve(
    pipe: Connection, parent_end: Connection, work: LocalWork, layout: UpdateLayout, shared: Slots | None
) -> None:
    """A worker's life: orders of a round, portions of it, and the sum of its words when it is asked for."""
    parent_end.close()
    # Ctrl-C reaches the whole group: the process that asks ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    orders: Orders | None = None
    sums = WordSums(())
    while True:
        try:
            message = pipe.recv()
        except (EOFError, OSError):
            return
        if isinstance(message, Orders):
            orders, sums = message, WordSums(message.vectors)
        elif isinstance(message, Portion) and orders is not None:
            rows = None if shared is None else shared[message.slots[0] : message.slots[-1] + 1]
            pipe.send(take_portion(work, orders, message, sums, layout, rows))
        else:
            pipe.send(sums.totals)


def _shared(work: LocalWork, layout: UpdateLayout) -> Slots | None:
    """(clients, coordinates), of which pages are taken as they are written. None where updates are masked."""
    if masks_updates(work.settings):
        return None
    clients = len(work.population)
    room = mmap.mmap(-1, max(1, clients * layout.size * 4))
    return np.frombuffer(room, np.float32, clients * layout.size).reshape(clients, layout.size)
