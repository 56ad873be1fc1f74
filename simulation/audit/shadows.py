"""Shadow studies: the same study run many times, each time on a random half of the patients, and every patient's loss.

Each patient takes part in each study by a fair coin of its own. So every study is a target whose members are known, and
all others tell an attacker how losses look with and without a patient (Carlini et al. 2022).
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from accounting.budget.forecast import forecast
from client_sdk.errors import ConfigurationError
from private_learning.tasks import Task, TaskDataset
from private_learning.tasks.dataset import present
from private_learning.tasks.inputs import in_memory, take_rows
from private_learning.training.weights import weights_of
from simulation.audit.cost import PASS, seconds_of
from simulation.audit.releases import RecordGradients, changed, training_alone
from simulation.backends.base import Loop
from simulation.baselines import BATCH, STEPS, fitted, metrics_of
from simulation.engine import Engine
from simulation.population import Population
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensors import Array

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]
FEWEST_STUDIES, STUDIES = 16, 64
# For `usual_studies`: seconds on one core of all, of one hospital's step and of one without privacy beside the records.
_SECONDS, _STEP_SECONDS, _FIT_SECONDS = 200.0, 0.015, 0.001
TEST_SHARE = 0.2
# Draws of coins until every hospital keeps a patient.
_TRIES = 1_000
_STREAM = 31
# A small network is trained without privacy until it has learnt its records by heart, as without a validation set.
_LONG_STEPS, _SMALL = 2_000, 20_000
# A diverged model has losses that are no numbers.
_LARGEST_LOSS = 1e6


@dataclass(frozen=True, repr=False)
class Shadows:
    """What an attacker learns of many studies.

    inside        (studies, patients) who took part
    losses        (studies, patients) of the model that a study comes to
    other_losses  (studies, others) losses of records that took part in no study
    metrics       of each study on the other records
    spent         (ε, δ) that the studies state at worst for one patient. None: no classical limit covers a patient
    """

    inside: Booleans
    losses: Floats
    other_losses: Floats
    metrics: tuple[Mapping[str, float], ...]
    spent: tuple[float, float] | None

    def mean(self, metric: str) -> float | None:
        """Return a metric's mean over the studies. None: the task does not have it."""
        values = [each[metric] for each in self.metrics if metric in each]
        return float(np.mean(values)) if values else None


@dataclass(frozen=True, repr=False)
class ShadowStudies:
    """Runs them.

    test      records of no training patient, one row each
    settings  None: models are trained on all records together without privacy
    """

    settings: StudySettings | None
    task: Task
    population: Population
    test: TaskDataset

    def run(self, studies: int, seed: int, *, workers: int | None = None) -> Shadows:
        """Run so many studies, in as many processes as there are processors.

        Raises:
            ConfigurationError: too few patients to leave half of them out, or a process was ended from outside.
            ClientStopped, StudyPaused, TrainingStopped: as `Engine.run` and `fitted`.
        """
        # Windows does not fork.
        workers = min(workers or len(os.sched_getaffinity(0)), studies) if hasattr(os, "fork") else 1
        results = self._all(seed, range(studies), workers)
        inside, losses, other_losses, metrics, spent = zip(*results, strict=True)
        stated = [each for each in spent if each is not None]
        whole = max(stated) if len(stated) == len(spent) else None
        return Shadows(np.array(inside), np.array(losses), np.array(other_losses), metrics, whole)

    def _all(self, seed: int, numbers: Sequence[int], workers: int) -> list[Any]:
        if workers == 1:
            return [self._one(seed, number) for number in numbers]
        context = multiprocessing.get_context("fork")
        # A forked process has what it is given, without a copy.
        with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(self, seed)) as pool:
            try:
                return list(pool.map(_in_worker, numbers))
            except BrokenProcessPool as error:
                raise ConfigurationError(
                    "a process of the shadow studies was ended from outside, as for want of memory: give fewer records"
                ) from error

    def _one(self, seed: int, number: int) -> tuple[Booleans, Floats, Floats, Mapping[str, float], Any]:
        draw = np.random.default_rng([seed, _STREAM, number])
        inside = self._coins(draw)
        population = replace(self.population, rows=tuple(rows[inside[rows]] for rows in self.population.rows))
        weights, spent = self._trained(population, int(draw.integers(2**31)))
        gradients = RecordGradients(self.task, "", grouped=self.population.dataset.grouped)
        rows = RecordGradients(self.task, "", grouped=self.test.grouped)
        losses, other_losses = (
            np.nan_to_num(of.losses(records, weights), nan=_LARGEST_LOSS, posinf=_LARGEST_LOSS)
            for of, records in ((gradients, self.population.dataset), (rows, self.test))
        )
        # The weights are loaded.
        metrics = metrics_of(self.task, rows.model, self.test) if np.isfinite(other_losses).all() else {}
        return inside, losses, other_losses, metrics, spent

    def _coins(self, draw: np.random.Generator) -> Booleans:
        for _ in range(_TRIES):
            inside = draw.random(len(self.population.dataset)) < 0.5
            if all(inside[rows].any() for rows in self.population.rows):
                return inside
        raise ConfigurationError("hospitals have too few patients to leave half of them out: deal out fewer hospitals")

    def _trained(self, population: Population, seed: int) -> tuple[Mapping[str, Array], tuple[float, float] | None]:
        if self.settings is None:
            return weights_of(_single_threaded(self.task, population.everybody(), seed)), None
        outcome = Engine(self.settings, population, seed, Loop, task=self.task).run()
        return outcome.result, _spent(outcome.statements)


def usual_studies(settings: StudySettings, task: Task, population: Population) -> int:
    """Return how many studies take about 100 seconds on two cores, from 16 to 64, by public numbers alone.

    Raises:
        ConfigurationError: the fewest take more than twice as long.
    """
    record = PASS * seconds_of(task, population.dataset)
    patients = sum(map(len, population.rows)) / 2
    step = len(population) * _STEP_SECONDS + settings.privacy.sampling_rate * patients * record
    steps = forecast(plan_of(settings), tight=False).at_most_rounds * settings.steps_per_round
    # One without privacy, and one of the study.
    each = _fit_steps(task) * (_FIT_SECONDS + min(BATCH, patients) * record) + steps * step
    if FEWEST_STUDIES * each > 2 * _SECONDS:
        raise ConfigurationError(
            f"{FEWEST_STUDIES} shadow studies of this model would take about {FEWEST_STUDIES * each / 60:,.0f} minutes "
            "of one core: ask for them with --studies, or give fewer records"
        )
    return int(min(STUDIES, max(FEWEST_STUDIES, _SECONDS / each)))


def _fit_steps(task: Task) -> int:
    """Return the steps of training without privacy. A linear model comes to its optimum sooner."""
    model = task.model()
    small = sum(parameter.numel() for parameter in model.parameters()) <= _SMALL
    return _LONG_STEPS if small and not isinstance(model, torch.nn.Linear) else STEPS


def held_out(population: Population, seed: int) -> tuple[Population, TaskDataset]:
    """Return the population without a fifth of each hospital's patients, and the rows of these.

    Raises:
        ConfigurationError: no hospital has five patients.
    """
    draw = np.random.default_rng([seed, _STREAM])
    orders = [draw.permutation(rows) for rows in population.rows]
    ends = [int(TEST_SHARE * len(rows)) for rows in orders]
    aside = np.unique(np.concatenate([order[:end] for order, end in zip(orders, ends, strict=True)]))
    if not len(aside):
        raise ConfigurationError("every hospital has fewer than five patients: none can be held out")
    rest = tuple(np.sort(order[end:]) for order, end in zip(orders, ends, strict=True))
    aside_index = torch.as_tensor(aside)
    inputs, targets = take_rows(population.dataset.inputs, aside_index), population.dataset.targets[aside_index]
    if population.dataset.grouped:
        real = present(targets, 2)
        inputs, targets = in_memory(inputs)[real], targets[real]
    names = tuple(map(str, range(len(targets))))
    remaining = np.unique(np.concatenate(rest))
    whole = population.dataset
    places = torch.as_tensor(remaining)
    dataset = replace(
        whole,
        inputs=take_rows(whole.inputs, places),
        targets=whole.targets[places],
        patients=tuple(whole.patients[int(row)] for row in remaining),
    )
    rows = tuple(np.searchsorted(remaining, each) for each in rest)
    return Population(dataset, rows, population.names), TaskDataset(inputs, targets, names)


def halved(settings: StudySettings) -> StudySettings:
    """Return the settings for half the patients: the same rounds and noise, sums divided by half the number.

    Questions and evaluations, which train no model, are left out.

    Raises:
        ConfigurationError: no study can have them.
    """
    values = training_alone(settings)
    # In scheme joint this number is in the hospitals' own bound.
    if not settings.privacy.rules.bounds_clients_too:
        half = settings.privacy.expected_batch_size / 2
        values["privacy"] = values["privacy"] | {"expected_batch_size": half}
    return changed(values)


def _spent(statements: Sequence[Mapping[str, Any]]) -> tuple[float, float] | None:
    """Return (ε, δ) of the smallest classical ε for one patient."""
    of_patients = (each for each in statements if each["level"] == "instance" and each["definition"] == "classical")
    return min(((each["spent"], each["delta"]) for each in of_patients if each["spent"] is not None), default=None)


def _single_threaded(task: Task, records: TaskDataset, seed: int) -> torch.nn.Module:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return fitted(task, records, seed, steps=_fit_steps(task))
    finally:
        torch.set_num_threads(threads)


_job: tuple[ShadowStudies, int] | None = None


def _begin(studies: ShadowStudies, seed: int) -> None:
    global _job
    _job = (studies, seed)


def _in_worker(number: int) -> Any:
    assert _job is not None
    studies, seed = _job
    torch.set_num_threads(1)
    return studies._one(seed, number)  # pyright: ignore[reportPrivateUsage]
