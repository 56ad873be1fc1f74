"""What an attacker sees of a study at the level that its certificate counts: every noised step of the patients' sums.

A study is run by its own engine, with one local step a round, so that every step that is charged is seen. Of the
clients whose noise the certificate counts (one for local noise, the honest survivors for distributed noise) the values
are taken before masks: the others collude and know their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor

from accounting.budget.forecast import forecast
from client_sdk.errors import ConfigurationError
from private_learning.gradients.per_record import PerRecord
from private_learning.tasks import Task, TaskDataset
from private_learning.tasks.inputs import in_memory, take_rows
from private_learning.tasks.task import new_model
from private_learning.training.patients import LossOfPatients, RowsOfPatients
from private_learning.training.weights import load_weights
from simulation.audit.one_run import StudyLaw
from simulation.backends.base import Done, Loop, WordSums
from simulation.coordinator import StudyPaused
from simulation.engine import Engine
from simulation.local_work import ClientTask, LocalWork, Orders, Part
from simulation.population import Population
from study_protocol.secure_sum.parameters import UPDATE, flatten
from study_protocol.secure_sum.vectors import decode_signed
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensor_files import Arrays
from study_protocol.wire.tensors import UPDATE as PREFIX
from study_protocol.wire.tensors import Array
from study_protocol.wire.wrong_entries import wrong_entries

Floats = NDArray[np.float64]
Plant = Callable[[LocalWork], LocalWork]
# Records whose gradients are computed in one pass.
_PASS = 256


@dataclass(frozen=True, repr=False)
class Release:
    """One noised step.

    weights  parameter name -> at which the gradients were taken
    total    (coordinates,) the noised sum of clipped gradients of the watched clients
    noise    standard deviation of each of its numbers
    """

    weights: Mapping[str, Array]
    total: Floats
    noise: float
    clip_norm: float


def audited(settings: StudySettings) -> StudySettings:
    """Return the same steps with one of them a round.

    Raises:
        ConfigurationError: the study's sums are not those of gradients clipped around zero, one for each patient.
    """
    privacy, training = settings.privacy, settings.training
    if privacy.rules.clips_updates or privacy.rules.bounds_clients_too:
        raise ConfigurationError(
            f"privacy.scheme {privacy.rules.id} protects whole hospitals: this attack is on patients of schemes "
            "parallel and sequential"
        )
    reasons = {
        "training.clipping is per-layer": training.clipping != "flat",
        "training.clipping_centre is previous-update": training.clipping_centre != "zero",
        "training.augmentation draws views": training.augmentation is not None,
        "privacy.adaptive_clip changes the clip norm": privacy.adaptive_clip is not None,
        "privacy.noise_schedule changes the noise": privacy.noise_schedule is not None,
        "a Bayesian limit counts each patient's own cost": privacy.bayesian is not None,
    }
    for reason, holds in reasons.items():
        if holds:
            raise ConfigurationError(
                f"{reason}: this attack needs one clip norm around zero and one noise. Leave this entry out for the "
                "audit"
            )
    values = training_alone(settings)
    # What belongs to several local steps has no place in one.
    step_entries = ("learning_rate", "learning_rate_schedule", "local_optimiser", "proximal")
    entries = {name: value for name, value in values["training"].items() if name not in step_entries}
    values["training"] = entries | {"algorithm": "fedsgd", "local_steps": 1}
    return changed(values)


def training_alone(settings: StudySettings) -> dict[str, Any]:
    """Return the settings as JSON without questions, evaluations and synthetic records, which train no model."""
    left_out = ("statistics", "evaluation", "monitoring", "synthesis")
    return {name: value for name, value in settings.as_json().items() if name not in left_out}


def changed(values: Mapping[str, Any]) -> StudySettings:
    """Return settings that were changed for an attack. Raises ConfigurationError: no study can have them."""
    try:
        return StudySettings.model_validate(values)
    except ValidationError as error:
        wrong = "; ".join(wrong_entries(error, StudySettings))
        raise ConfigurationError(f"this attack changes settings, and they do not go together then: {wrong}") from error


def law_of(settings: StudySettings) -> StudyLaw:
    """Return the steps that the certificate of these settings counts for one patient, of one step a round."""
    plan = plan_of(settings)
    noise = plan.noise_multiplier * plan.honest_survivors**0.5
    return StudyLaw(noise, plan.sampling_rate, forecast(plan, tight=False).at_most_rounds)


@dataclass(frozen=True)
class AttackedStudy:
    """A study to attack.

    watched  so many of the first clients are seen, each by itself
    plant    changes what clients do, to test that a defect is found. Left out, none
    """

    settings: StudySettings
    task: Task
    population: Population
    watched: int
    plant: Plant = lambda work: work

    @property
    def noise(self) -> float:
        """Standard deviation of each number of the watched clients' noised sum, in gradients' units."""
        return self.settings.privacy.noise_multiplier * self.settings.privacy.clip_norm * self.watched**0.5

    def run(self, seed: int, limit: int | None = None, weights: Mapping[str, Array] | None = None) -> list[Release]:
        """Run it and return the steps in which all watched clients took part.

        A study that pauses because the coordinator refuses updates is judged by the steps before.

        Args:
            limit: end after so many steps.
            weights: to begin with. Left out, the task's own.

        Raises:
            As `Engine.run`, without StudyPaused.
        """
        releases: list[Release] = []

        def opened(work: LocalWork) -> Loop:
            return _Watching(self.plant(work), work, self.watched, releases)

        def count(_: object) -> None:
            if len(releases) == limit:
                raise _Enough

        with suppress(_Enough, StudyPaused):
            Engine(self.settings, self.population, seed, opened, weights=weights, task=self.task).run(count)
        return releases


class _Enough(Exception):
    """So many steps were asked for."""


class _Watching(Loop):
    """Runs clients one after the other and keeps what the first ones add."""

    def __init__(self, work: LocalWork, sound: LocalWork, watched: int, releases: list[Release]) -> None:
        super().__init__(work)
        self._watched, self._releases, self._settings = watched, releases, sound.settings
        noise = sound.training.noise()
        self._noise = noise.law.std * noise.spacing * watched**0.5

    def run(self, orders: Orders, tasks: Sequence[ClientTask]) -> Done:
        # The coordinator's bound would stop a study whose clients do not clip. Here this is to be seen.
        orders = replace(orders, longest=math.inf)
        sums = WordSums(orders.vectors)
        parts = [sums.take(self._work.part(task, orders)) for task in tasks]
        watched_parts = [part for task, part in zip(tasks, parts, strict=True) if task.place < self._watched]
        if len(watched_parts) == self._watched:
            privacy = self._settings.privacy
            total = np.sum([self._update(part, orders) for part in watched_parts], axis=0) * privacy.expected_batch_size
            self._releases.append(Release(orders.weights, total, self._noise, privacy.clip_norm))
        return _done(parts, sums)

    def _update(self, part: Part, orders: Orders) -> Floats:
        if part.update is not None:
            return flatten({name.removeprefix(PREFIX): array for name, array in part.update.items()}, self._work.sent)
        (spec,) = (spec for spec in orders.vectors if spec.name == UPDATE)
        return decode_signed(part.words[UPDATE][: spec.length], scale_bits=spec.scale_bits)


class RecordGradients:
    """Clipped gradients of single records at any weights."""

    def __init__(self, task: Task, name: str, *, grouped: bool) -> None:
        self._inner = new_model(task, name).eval()
        self._prefix = "model." if grouped else ""
        self.model = RowsOfPatients(self._inner) if grouped else self._inner
        self.loss = LossOfPatients(task.loss) if grouped else task.loss
        self._each = PerRecord(self.model, self.loss)

    def of(self, dataset: TaskDataset, weights: Mapping[str, Array], clip_norm: float) -> Floats:
        """Return (records, coordinates), clipped. A record without a finite gradient has zeros."""
        load_weights(self._inner, weights)
        rows: list[Floats] = []
        for start in range(0, len(dataset), _PASS):
            at = torch.arange(start, min(start + _PASS, len(dataset)))
            each = self._run(in_memory(take_rows(dataset.inputs, at)), dataset.targets[at])
            flat = [each[self._prefix + name].flatten(1).double() for name in sorted(weights)]
            rows.append(torch.cat(flat, dim=1).numpy())
        gradients = np.concatenate(rows)
        gradients[~np.isfinite(gradients).all(axis=1)] = 0.0
        norms = np.sqrt(np.square(gradients).sum(axis=1))
        return gradients * np.minimum(1.0, clip_norm / np.maximum(norms, 1e-300))[:, None]

    def _run(self, inputs: Tensor, targets: Tensor) -> Mapping[str, Tensor]:
        try:
            return self._each.run(inputs, targets).each
        # What a model or loss raises under vmap may have any type.
        except Exception:
            if not self._each.vectorised:
                raise
            self._each = PerRecord(self.model, self.loss, vectorised=False)
            return self._each.run(inputs, targets).each

    def losses(self, dataset: TaskDataset, weights: Mapping[str, Array]) -> Floats:
        """Return (records,) losses at these weights."""
        load_weights(self._inner, weights)
        with torch.no_grad():
            outputs = self.model(take_rows(dataset.inputs, torch.arange(len(dataset))))
            return self.loss(outputs, dataset.targets).double().numpy()


def _done(parts: Sequence[Part], sums: WordSums) -> Done:
    updates = [part.update for part in parts if part.update is not None]
    findings = tuple(part.findings for part in parts if part.findings is not None)
    return Done(list(map(Arrays, updates)), findings, sums.totals, tuple(part.accounts for part in parts))
