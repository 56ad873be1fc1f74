"""A study in one process, round by round: the coordinator's and the hospitals' own functions, without network or disk.

begin   reserve the round, draw its clients                            Coordinator.begin
work    every client trains and fills its part                         Backend.run
close   charge by what is seen, add up, noise, step, release           Coordinator.close
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from accounting.budget.budget import StopReason
from private_learning.tasks import Task as TrainedTask
from private_learning.tasks import TaskDataset, of_study
from private_learning.tasks.task import new_model
from private_learning.training.weights import load_weights, weights_of
from simulation import checkpoint
from simulation.backends.base import Backend, OpenBackend
from simulation.baselines import metrics_of
from simulation.coordinator import LedgerEvent, Opening, RoundAnswers, SimulatedCoordinator
from simulation.local_work import Accounts, ClientTask, LocalWork, Orders
from simulation.population import Population
from simulation.released import Released
from study_protocol.randomness.source import SeededRandomness
from study_protocol.study.settings import StudySettings
from study_protocol.wire.signing import canonical_json
from study_protocol.wire.tensors import Array


@dataclass(frozen=True)
class RoundShown:
    """The facts that are known after a round.

    clients  how many took part
    reason   why it failed. None: a model was released
    spent    ε of every limit, in the order of the settings. None where no finite one covers it
    metrics  of what the study comes to by now (`Outcome.result`) on the test records, as the task names them. Empty
             where no model was released
    """

    round: int
    clients: int
    reason: str | None
    spent: tuple[float | None, ...]
    metrics: dict[str, float]


@dataclass(frozen=True, repr=False)
class SimulationOutcome:
    """A finished study.

    statements  what the coordinator would state of every limit
    events      the ledger's
    weights     parameter name -> float32, released last
    result      what the study comes to: the mean of released models that its settings name, else the last one
    """

    rounds: tuple[RoundShown, ...]
    stop_reason: StopReason
    statements: list[dict[str, Any]]
    events: tuple[LedgerEvent, ...]
    weights: Mapping[str, Array]
    result: Mapping[str, Array]


OnRound = Callable[[RoundShown], object]


@dataclass(repr=False)
class Engine:
    """One study over one population, under one seed.

    test     the records that are evaluated after every release, or None
    weights  to begin with. None: the task's own, drawn from the seed
    task     what the population's records were made by. None: the one that the settings name
    kept     file that a checkpoint is written to after every round, and begun from where it is there
    """

    settings: StudySettings
    population: Population
    seed: int
    backend: OpenBackend
    test: TaskDataset | None = None
    weights: Mapping[str, Array] | None = None
    kept: Path | None = None
    task: TrainedTask | None = None
    _accounts: dict[int, Accounts] = field(init=False)
    _reported: set[int] = field(init=False)
    _released: Released = field(init=False)

    def run(self, on_round: OnRound | None = None) -> SimulationOutcome:
        """Rounds until the budget allows no further one.

        Raises:
            FirstRoundOverspends, PlanError: not even the first fits.
            ClientStopped: a client cannot do its part.
            StudyPaused: rounds fail one after the other.
            ConfigurationError: the task cannot be trained so, or the checkpoint is of another run.
        """
        # A run knows nothing of one before it.
        self._accounts, self._reported = {}, set()
        self._released = Released(self.settings.training.optimiser.averaging)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return self._run(on_round)
        finally:
            torch.set_num_threads(threads)

    def _run(self, on_round: OnRound | None) -> SimulationOutcome:
        randomness = SeededRandomness(self.seed, allow_insecure=True)
        start = self.weights or initial_weights(self.settings, self.seed, self.task)
        coordinator = SimulatedCoordinator(self.settings, self.population.names, start, randomness)
        backend = self.backend(LocalWork.of(self.population, self.settings, randomness, self.task))
        try:
            belonging = "" if self.kept is None else self._belonging(backend, start)
            rounds = self._resumed(coordinator, belonging)
            while (reason := coordinator.stop_reason) is None:
                rounds.append(self._round(coordinator, backend))
                self._keep(coordinator, belonging, rounds)
                if on_round is not None:
                    on_round(rounds[-1])
        finally:
            backend.close()
        coordinator.evaluate(last=True)
        coordinator.finish(reason)
        statements, events = coordinator.budget.statements(), tuple(coordinator.events)
        result = self._released.result or coordinator.weights
        return SimulationOutcome(tuple(rounds), reason, statements, events, coordinator.weights, result)

    def _round(self, coordinator: SimulatedCoordinator, backend: Backend) -> RoundShown:
        opening = coordinator.begin()
        if opening is not None:
            done = backend.run(self._orders(coordinator, opening), self._tasks(opening))
            for place, account in zip(opening.drawn, done.accounts, strict=True):
                if account is not None:
                    self._accounts[place] = account
            if opening.vectors:
                self._reported |= set(opening.drawn)
            coordinator.close(opening, RoundAnswers(done.updates, done.findings, done.sums))
        number = coordinator.budget.last_round
        metrics: dict[str, float] = {}
        if coordinator.reason is None:
            self._released.take(number, coordinator.weights)
            coordinator.evaluate()
            metrics = self._metrics(self._released.result or coordinator.weights)
        client_count = 0 if opening is None else len(opening.drawn)
        return RoundShown(number, client_count, coordinator.reason, coordinator.spent(), metrics)

    def _orders(self, coordinator: SimulatedCoordinator, opening: Opening) -> Orders:
        return Orders(
            opening.round,
            coordinator.weights,
            coordinator.previous if self.settings.training.clipping_centre != "zero" else None,
            coordinator.total_records,
            opening.vectors,
            coordinator.longest,
            coordinator.clip_norm,
            coordinator.attempt,
        )

    def _tasks(self, opening: Opening) -> list[ClientTask]:
        return [ClientTask(place, self._accounts.get(place), place in self._reported) for place in opening.drawn]

    def _metrics(self, weights: Mapping[str, Array]) -> dict[str, float]:
        """Of these weights on the test records, which are rows, one by one."""
        if self.test is None:
            return {}
        load_weights(self._model, self._task.for_prediction(weights))
        return metrics_of(self._task, self._model, self.test)

    @cached_property
    def _task(self) -> TrainedTask:
        return self.task or of_study(self.settings.training)

    @cached_property
    def _model(self) -> nn.Module:
        return new_model(self._task, self.settings.training.task).eval()

    # -- checkpoints

    def _belonging(self, backend: Backend, start: Mapping[str, Array]) -> str:
        """Return the digest of what fixes the run: records, split, settings, seed, first weights, and whose noise it
        is."""
        identity = [self.settings.as_json(), self.seed, self.population.digest(), "exact" if backend.exact else "own"]
        digest = hashlib.sha256(canonical_json(identity))
        for name in sorted(start):
            digest.update(start[name].tobytes())
        return digest.hexdigest()

    def _resumed(self, coordinator: SimulatedCoordinator, belonging: str) -> list[RoundShown]:
        stored = None if self.kept is None else checkpoint.read(self.kept, belonging)
        if stored is None:
            return []
        coordinator.restore(stored.said["coordinator"], stored.arrays)
        self._accounts, self._reported = dict(stored.accounts), set(stored.said["reported"])
        self._released.restore(stored.said["released"], stored.arrays)
        return [RoundShown(**view | {"spent": tuple(view["spent"])}) for view in stored.said["rounds"]]

    def _keep(self, coordinator: SimulatedCoordinator, belonging: str, rounds: list[RoundShown]) -> None:
        if self.kept is None:
            return
        saved, arrays = coordinator.state()
        document = {
            "coordinator": saved,
            "reported": sorted(self._reported),
            "released": self._released.rounds,
            "rounds": [asdict(view) for view in rounds],
        }
        arrays |= self._released.arrays()
        checkpoint.write(self.kept, belonging, checkpoint.SimulationCheckpoint(document, arrays, self._accounts))


def initial_weights(settings: StudySettings, seed: int, task: TrainedTask | None = None) -> dict[str, Array]:
    """Parameter name -> float32: the task's own first weights, drawn from the seed where they are random.

    task: left out, the one that the settings name

    Raises:
        TaskError: the task cannot make its model.
    """
    task = task or of_study(settings.training)
    with torch.random.fork_rng(devices=[]):  # pyright: ignore[reportUnknownMemberType]
        torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]
        return weights_of(new_model(task, settings.training.task))
