"""Clients in actors of Ray, one thread each, on this machine or on a cluster.

Records and settings travel once to every node, where its actors share them. Updates come back by portions as arrays,
words summed. The same work as in forked processes: with processors of one kind, the same bytes. Ray is the extra `ray`.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from client_sdk.errors import ConfigurationError
from private_learning.tasks import Task as StudyTask
from private_learning.tasks import TaskDataset
from private_learning.tasks.inputs import in_memory
from private_learning.training import LocalTraining
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
from simulation.population import Population, Rows
from study_protocol.randomness.source import Randomness
from study_protocol.secure_sum.vectors import RingVector
from study_protocol.study.settings import StudySettings


class Ray:
    """Actors of the running cluster at `address`, or of one that is started here for one study.

    workers  actors. None: as many as the cluster has processors

    Raises ConfigurationError: Ray is not installed, or there is no cluster at the address.
    """

    exact = True

    def __init__(self, work: LocalWork, *, address: str | None = None, workers: int | None = None) -> None:
        self._ray = _installed()
        self._joined = self._ray.is_initialized()
        if not self._joined:
            _connect(self._ray, address, workers)
        worker_count = workers or int(self._ray.cluster_resources().get("CPU", 1))
        self._layout = UpdateLayout.of(work.sent)
        self._in_the_clear = not masks_updates(work.settings)
        sent = self._ray.put(_Sent.of(work))
        start = self._ray.remote(num_cpus=1)(RayWorker).remote
        self._actors = [start(sent, self._in_the_clear) for _ in range(min(worker_count, len(work.population)))]

    def run(self, orders: Orders, tasks: Sequence[ClientTask]) -> Done:
        orders_reference = self._ray.put(orders)
        results, blocks = self._portion_results(orders_reference, portions(tasks, len(self._actors)))
        sums = WordSums(orders.vectors)
        for words in self._heard([actor.sums.remote() for actor in self._actors] if orders.vectors else []):
            sums.add(words)
        rows = [row for start in sorted(blocks) for row in blocks[start]]
        return collected(len(tasks), results, self._layout.updates(rows), sums)

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors = []
        if not self._joined:
            self._ray.shutdown()

    def _portion_results(self, orders: Any, waiting: list[Portion]) -> tuple[list[PortionResult], dict[int, Slots]]:
        """Hand the portions out as actors get free. An error waits until all have stopped, so that the first is told.

        Also every portion's updates, by the place of its first turn.
        """
        busy: dict[Any, Any] = {}

        def hand(actor: Any) -> None:
            if waiting:
                busy[actor.take.remote(orders, waiting.pop())] = actor

        for actor in self._actors:
            hand(actor)
        results: list[PortionResult] = []
        blocks: dict[int, Slots] = {}
        stopped: list[ClientStopped] = []
        while busy:
            (ready, *_), _ = self._ray.wait(list(busy))
            actor = busy.pop(ready)
            (answer,) = self._heard([ready])
            if isinstance(answer, ClientStopped):
                stopped.append(answer)
                waiting.clear()
                continue
            result, rows = answer
            results.append(result)
            if rows is not None:
                blocks[result.slots[0]] = rows
            hand(actor)
        if stopped:
            raise min(stopped, key=lambda result: result.client)
        return results, blocks

    def _heard(self, references: list[Any]) -> list[Any]:
        try:
            return self._ray.get(references)
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.ObjectLostError) as error:
            raise WorkerLost(
                f"a worker of the cluster ended ({type(error).__name__}): a machine may be gone, or short of memory. "
                "With a checkpoint, the same command continues with the round that was under way"
            ) from error


@dataclass(frozen=True, repr=False)
class _Sent:
    """The clients' side of a study as arrays, which actors on one node read from shared memory.

    rows    of all clients, one after the other
    ends    where each client's end
    """

    inputs: NDArray[Any]
    targets: NDArray[Any]
    patients: tuple[str, ...]
    grouped: bool
    rows: Rows
    ends: Rows
    names: tuple[str, ...]
    task: StudyTask
    settings: StudySettings
    randomness: Randomness

    @classmethod
    def of(cls, work: LocalWork) -> _Sent:
        population, training = work.population, work.training
        dataset = population.dataset
        return cls(
            in_memory(dataset.inputs).numpy(),
            dataset.targets.numpy(),
            dataset.patients,
            dataset.grouped,
            np.concatenate(population.rows),
            np.cumsum([len(rows) for rows in population.rows]),
            population.names,
            training.task,
            work.settings,
            training.randomness,
        )

    def work(self) -> LocalWork:
        with warnings.catch_warnings():
            # Shared memory is read-only. Nothing here writes to records.
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            inputs, targets = torch.as_tensor(self.inputs), torch.as_tensor(self.targets)
        dataset = TaskDataset(inputs, targets, self.patients, grouped=self.grouped)
        population = Population(dataset, tuple(np.split(self.rows, self.ends[:-1])), self.names)
        training = LocalTraining(self.task, population.records_of(0), self.settings, self.randomness)
        training.require_trainable()
        return LocalWork(population, self.settings, training)


class RayWorker:
    """The work of an actor: portions of a round, and the sum of their words when it is asked for."""

    def __init__(self, sent: _Sent, in_the_clear: bool) -> None:
        torch.set_num_threads(1)
        self._work, self._in_the_clear = sent.work(), in_the_clear
        self._layout = UpdateLayout.of(self._work.sent)
        self._round, self._sums = 0, WordSums(())

    def take(self, orders: Orders, portion: Portion) -> tuple[PortionResult, Slots | None] | ClientStopped:
        if orders.round != self._round:
            self._round, self._sums = orders.round, WordSums(orders.vectors)
        rows = np.empty((len(portion.tasks), self._layout.size), np.float32) if self._in_the_clear else None
        result = take_portion(self._work, orders, portion, self._sums, self._layout, rows)
        return result if isinstance(result, ClientStopped) else (result, rows)

    def sums(self) -> dict[str, RingVector]:
        """Return the sums of the round that this worker took part in last. They are handed over once."""
        totals, self._sums = self._sums.totals, WordSums(())
        return totals


def _installed() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ConfigurationError("backend ray needs the package ray: pip install 'wardround[ray]'") from error


def _connect(ray: Any, address: str | None, workers: int | None) -> None:
    # "local": a cluster of its own, whatever the environment says of others.
    options: dict[str, Any] = {"address": address or "local", "log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        options |= {"include_dashboard": False, "num_cpus": workers}
    try:
        with warnings.catch_warnings():
            # What Ray will do about accelerators some day.
            warnings.simplefilter("ignore", FutureWarning)
            ray.init(**options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigurationError(f"no cluster of Ray could be used at {options['address']}: {error}") from error
