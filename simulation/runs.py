"""Several seeds of one study on the same records, each with what it is compared with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from client_sdk.errors import ConfigurationError, TrainingStopped
from private_learning.tasks import Task, dataset_of, of_study
from private_learning.tasks.backbone_file import BackboneFile
from private_learning.training.features import Features, NoFeatures
from simulation.backends.base import OpenBackend
from simulation.baselines import baselines, without_noise
from simulation.coordinator import StudyPaused
from simulation.engine import Engine, OnRound, RoundShown
from simulation.local_work import ClientStopped, LocalWork
from simulation.population import Population
from simulation.records import Dealer, Dealt
from simulation.results.report import SeedRun
from study_protocol.randomness.source import SecureRandomness
from study_protocol.study.settings import StudySettings

# A batch that is larger by so much than the settings expect is worth a note.
_WARNING_RATIO = 1.5


@dataclass(frozen=True)
class Simulation:
    """One study, to be run under any seed.

    backend      its name
    open         how it is opened
    compares     whether it is also trained without noise, pooled and alone
    checkpoints  folder where every seed goes on after a kill. None: no checkpoint is written
    backbone     the file that the settings name: weights, or a ProgramFile
    """

    settings: StudySettings
    dealer: Dealer
    backend: str
    open: OpenBackend
    compares: bool = True
    checkpoints: Path | None = None
    backbone: BackboneFile | None = None

    def run(self, seed: int, on_round: OnRound | None = None) -> SeedRun:
        """Raises as `Engine.run` and `Dealer.deal`."""
        dealt = self._dealt(seed)
        checkpoint_path = None
        if self.checkpoints is not None:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            checkpoint_path = self.checkpoints / f"seed-{seed}.safetensors"
        engine = Engine(
            self.settings, dealt.population, seed, self.open, test=dealt.test, kept=checkpoint_path, task=self._task
        )
        outcome = engine.run(on_round)
        population = dealt.population
        records = sum(len(rows) for rows in population.rows)
        done = SeedRun(seed, len(population), records, outcome, None, None)
        return self._compared(done, dealt) if self.compares else done

    def check(self) -> None:
        """Before anything runs. Raises DataError as `Dealer.check`: records that the task cannot take."""
        self.dealer.check(self._task, self.settings)

    def notes(self, seed: int) -> list[str]:
        """Return where the settings' public numbers do not describe these records, so that the noise is for other ones.
        Also how much longer a step takes whose gradients have no closed form.

        Raises:
            ConfigurationError: fewer clients than a coordinator lets the study start with.
        """
        population, min_clients = self._dealt(seed).population, self.settings.schedule.min_clients
        if len(population) < min_clients:
            raise ConfigurationError(
                f"schedule.min_clients is {min_clients}, and clients are {len(population)}: the study could not start"
            )
        slow = LocalWork.of(population, self.settings, SecureRandomness(), self._task).training.slow_path()
        return [*notes_on(self.settings, population), *([] if slow is None else [str(slow)])]

    def _dealt(self, seed: int) -> Dealt:
        return self.dealer.deal(self._task, self.settings, seed)

    def _compared(self, run: SeedRun, dealt: Dealt) -> SeedRun:
        """Return the run with its comparisons. A failed comparison has no effect on the study."""
        if dealt.test is None:
            return run
        try:
            run = replace(run, plain=self._plain(dealt, run.seed, len(run.outcome.rounds)))
        except (ClientStopped, StudyPaused) as error:
            run = run.without("same rounds, no noise", error)
        try:
            return replace(run, beside=baselines(self._task, dealt.population, dealt.test, run.seed))
        except TrainingStopped as error:
            return run.without("pooled and alone", error)

    def _plain(self, dealt: Dealt, seed: int, rounds: int) -> tuple[RoundShown, ...]:
        if rounds == 0:
            return ()
        settings = without_noise(self.settings, rounds)
        return Engine(settings, dealt.population, seed, self.open, test=dealt.test, task=self._task).run().rounds

    @cached_property
    def _task(self) -> Task:
        """Return the task. If only the head is trained it works on features, which are computed once for all seeds."""
        task = of_study(self.settings.training, self.backbone)
        features = Features.of(task)
        if features is None:
            return task
        try:
            features.require(dataset_of(task, self.dealer.source.files[0]))
        except NoFeatures:
            return task
        return features.task()


def notes_on(settings: StudySettings, population: Population) -> Iterator[str]:
    """Differences between what the settings expect and who is there."""
    privacy, count = settings.privacy, len(population)
    expected_clients = privacy.client_sampling_rate * count
    if not 1 / _WARNING_RATIO < expected_clients / privacy.expected_clients < _WARNING_RATIO:
        yield (
            f"privacy.expected_clients is {privacy.expected_clients:g}, and {expected_clients:g} of these clients take "
            "part in a round on average: updates are divided by the wrong number"
        )
    batch = privacy.sampling_rate * sum(len(rows) for rows in population.rows) / count
    if not 1 / _WARNING_RATIO < batch / privacy.expected_batch_size < _WARNING_RATIO:
        yield (
            f"privacy.expected_batch_size is {privacy.expected_batch_size:g}, and the batches of these clients have "
            f"{batch:.3g} records on average: sums of gradients are divided by the wrong number"
        )
