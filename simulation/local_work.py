"""The work of one client in one round, by the hospital's own functions: train, keep its accounts, fill its part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NewType, Self

from client_sdk.errors import TrainingStopped, WardroundError
from client_sdk.guard.log_moments import LogMomentBounds
from client_sdk.secure_sum.delivery import ring_vectors_of
from private_learning.records import DataError
from private_learning.tasks import Task as TrainedTask
from private_learning.tasks import of_study
from private_learning.training import Contribution, LocalTraining
from server.domain.admission import Findings, examine
from simulation.population import Population
from study_protocol.randomness.source import Purpose, Randomness
from study_protocol.secure_sum.parameters import UPDATE
from study_protocol.secure_sum.vectors import RingVector, VectorSpec
from study_protocol.study.settings import StudySettings
from study_protocol.wire import tensors
from study_protocol.wire.tensor_files import Arrays
from study_protocol.wire.tensors import Array

Accounts = NewType("Accounts", bytes)
"""What a client keeps between rounds, as it would lie on its disk."""


class ClientStopped(WardroundError):
    """A client cannot do its part, which ends a simulation as it would end that hospital's: NaN or an infinity in
    training, or too few records for what the study asks.
    """

    def __init__(self, client: str, round_number: int, reason: str) -> None:
        # All of them: it travels between processes.
        super().__init__(client, round_number, reason)
        self.client, self.round, self.reason = client, round_number, reason

    def __str__(self) -> str:
        return f"{self.client} stopped in round {self.round}: {self.reason}"

    @classmethod
    def by(cls, error: WardroundError | DataError, client: str, round_number: int) -> Self:
        """Why its own side raised this."""
        if isinstance(error, TrainingStopped):
            return cls(client, round_number, f"NaN or an infinity in {error.where}. Try a smaller learning rate")
        return cls(client, round_number, str(error))


@dataclass(frozen=True, repr=False)
class Orders:
    """The orders to all clients for a round.

    weights        parameter name -> released float32
    previous       those of the release before, where there is one
    total_records  N of all clients, where the study sums the papers' costs and N is known
    vectors        what is summed, none in the clear
    longest        L2 norm that an update in the clear may have
    clip_norm      of the round, where the study's is adaptive
    attempt        its place in the noise schedule, None without one
    """

    round: int
    weights: Mapping[str, Array]
    previous: Mapping[str, Array] | None
    total_records: float | None
    vectors: tuple[VectorSpec, ...]
    longest: float
    clip_norm: float | None = None
    attempt: int | None = None


@dataclass(frozen=True)
class ClientTask:
    """One client's turn. accounts: as its last turn left them. reported: its number of records is in a sum already."""

    place: int
    accounts: Accounts | None
    reported: bool


@dataclass(frozen=True, repr=False)
class Part:
    """The results of one client: in the clear an update and what the coordinator finds in it, under masks words to
    sum."""

    update: Mapping[str, Array] | None
    findings: Findings | None
    words: Mapping[str, RingVector]
    accounts: Accounts | None


@dataclass(frozen=True)
class LocalWork:
    """The clients' side of one study.

    training  of the whole population, whose model every client uses in turn
    """

    population: Population
    settings: StudySettings
    training: LocalTraining

    @classmethod
    def of(
        cls, population: Population, settings: StudySettings, randomness: Randomness, task: TrainedTask | None = None
    ) -> Self:
        """Found possible before the first round.

        task: what the records were made by. None: the one that the settings name

        Raises:
            ConfigurationError, TaskError: the task cannot be trained under these settings.
        """
        training = LocalTraining(task or of_study(settings.training), population.records_of(0), settings, randomness)
        training.require_trainable()
        return cls(population, settings, training)

    @property
    def sent(self) -> tensors.Spec:
        """Names, shapes and types of what a client sends."""
        return self.settings.privacy.sent(self.training.spec)

    def part(self, task: ClientTask, orders: Orders) -> Part:
        """One client's round.

        Raises:
            ClientStopped: NaN or an infinity, or records that the study cannot be done with.
        """
        name = self.population.names[task.place]
        try:
            training = self.training.of_client(name, self.population.records_of(task.place))
            log_moments = self.log_moments(training, task.accounts)
            contribution = training.contribution(
                orders.weights,
                log_moments,
                round_number=orders.round,
                total_records=orders.total_records,
                previous=orders.previous,
                clip_norm=orders.clip_norm,
                attempt=orders.attempt,
            )
            words = self._words(training, task, orders, contribution, log_moments) if orders.vectors else {}
            update, findings = self._in_the_clear(training, orders, contribution, log_moments, words)
        except (WardroundError, DataError) as error:
            raise ClientStopped.by(error, name, orders.round) from error
        saved = None if log_moments is None else Accounts(log_moments.to_bytes())
        return Part(update, findings, words, saved)

    def log_moments(self, training: LocalTraining, saved: Accounts | None) -> LogMomentBounds | None:
        """A client's account of its records' costs, as its last turn left it. None where the study keeps none."""
        source = training.randomness_in(0).of(Purpose.ACCOUNTING_SAMPLE)
        patients = training.dataset.patients
        return LogMomentBounds.open(self.settings, patients, saved, rounds_lost=0, source=source)

    def _words(
        self,
        training: LocalTraining,
        task: ClientTask,
        orders: Orders,
        contribution: Contribution,
        log_moments: LogMomentBounds | None,
    ) -> dict[str, RingVector]:
        is_size_known = orders.total_records is not None or task.reported
        return ring_vectors_of(
            self.settings.at_attempt(orders.attempt).privacy,
            training.spec,
            orders.vectors,
            contribution,
            log_moments,
            records=0 if is_size_known else len(training.dataset),
            randomness=training.randomness_in(orders.round),
        )

    def _in_the_clear(
        self,
        training: LocalTraining,
        orders: Orders,
        contribution: Contribution,
        log_moments: LogMomentBounds | None,
        words: Mapping[str, RingVector],
    ) -> tuple[Mapping[str, Array] | None, Findings | None]:
        if UPDATE in words:
            return None, None
        body = {tensors.UPDATE + name: array for name, array in contribution.update.items()}
        if log_moments is not None and not orders.vectors:
            body |= log_moments.tensors()
        return body, examine(self.settings.at_attempt(orders.attempt), training.spec, Arrays(body), orders.longest)
