"""The study's engine, run with a model that stands still, and the tests of its steps' law."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from client_sdk.errors import ConfigurationError
from private_learning.tasks import TaskDataset
from private_learning.tasks.inputs import in_memory, joined, take_rows
from simulation.audit.laws import LawResult, LawTests
from simulation.audit.releases import AttackedStudy, RecordGradients, Release, changed
from simulation.engine import initial_weights
from simulation.population import Population
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensors import Array

STEPS = 40
# No step moves the model by so little that a gradient could change.
_STILL = 1e-12
# Records of the study among the copies, at most, and the variance of their batches beside that of the noise.
_RECORDS, _HIDDEN = 100, 0.25
# For the record that is copied.
_CANDIDATES = 64
# Inputs are multiplied by powers of 4, until the gradient stands this many deviations of the noise out.
_LARGEST_POWER, _STANDS_OUT = 10, 10.0
# The copies' batches vary by so much more than the noise, up to so many copies.
_RATIO, _MOST_COPIES = 25.0, 20_000


def check_steps(study: AttackedStudy, seed: int, steps: int = STEPS) -> LawResult:
    """Run the study with copies of one record with a long gradient, as often as `steps` take, and test each step.

    Raises:
        ConfigurationError: not one step is seen.
        ClientStopped, DataError: as `Engine.run`.
    """
    settings = study.settings
    gradients = RecordGradients(study.task, settings.training.task, grouped=study.population.dataset.grouped)
    start = initial_weights(settings, seed, study.task)
    rows, noise = np.concatenate(study.population.rows[: study.watched]), study.noise
    count = _records(settings, sum(array.size for array in start.values()), noise)
    records = _taken(study.population.dataset, np.random.default_rng([seed, 31]).permutation(rows)[:count])
    outsize = _outsize(records, gradients, start, settings.privacy.clip_norm, noise)
    copies = _copies(len(records), settings.privacy.sampling_rate, noise / settings.privacy.clip_norm)
    still = replace(
        study,
        settings=_still(settings, len(records) + copies),
        population=_dealt(study, records, outsize.record, copies),
    )
    each = gradients.of(records, start, settings.privacy.clip_norm)
    copied = gradients.of(outsize.record, start, settings.privacy.clip_norm)[0]
    runs: list[list[Release]] = []
    while (remaining := steps - sum(map(len, runs))) > 0:
        runs.append(still.run(seed + len(runs), remaining, start))
        if not runs[-1]:
            raise ConfigurationError("no step had all hospitals of the certificate: the audit saw none")
    # The engine's own, with the room that it leaves for roundings.
    noise = runs[0][0].noise
    tests = LawTests(each, copied, copies, rate=settings.privacy.sampling_rate, noise=noise, seed=seed)
    for releases in runs:
        tests.begin()
        for release in releases:
            tests.take(release.total)
    return tests.result(outsize.length / settings.privacy.clip_norm)


@dataclass(frozen=True, repr=False)
class _Outsize:
    """One record, and the length of its gradient before clipping."""

    record: TaskDataset
    length: float


def _outsize(
    records: TaskDataset, gradients: RecordGradients, weights: dict[str, Array], clip_norm: float, noise: float
) -> _Outsize:
    """Return a record of the study, its inputs multiplied, whose gradient stands out of the noise when not clipped."""
    sample = _taken(records, np.arange(min(_CANDIDATES, len(records))))
    inputs, targets = in_memory(sample.inputs), sample.targets
    exchanged = replace(
        sample,
        inputs=torch.cat([inputs, inputs]),
        targets=torch.cat([targets, targets.flip(0)]),
        patients=sample.patients + tuple(f"exchanged-{name}" for name in sample.patients),
    )
    target = clip_norm + _STANDS_OUT * max(noise, clip_norm)
    best = _Outsize(_taken(sample, np.arange(1)), 0.0)
    for power in range(_LARGEST_POWER if inputs.is_floating_point() else 1):
        scaled = replace(exchanged, inputs=in_memory(exchanged.inputs) * 4**power)
        lengths = np.sqrt(np.square(gradients.of(scaled, weights, np.inf)).sum(axis=1))
        place = int(lengths.argmax())
        if lengths[place] > best.length:
            best = _Outsize(_taken(scaled, np.array([place])), float(lengths[place]))
        if best.length >= target:
            break
    return best


def _records(settings: StudySettings, coordinates: int, noise: float) -> int:
    """Return so few that their batches do not hide the noise: on average over the coordinates."""
    variance = settings.privacy.sampling_rate * (1 - settings.privacy.sampling_rate) * settings.privacy.clip_norm**2
    return _RECORDS if variance == 0 else max(2, min(_RECORDS, int(_HIDDEN * coordinates * noise**2 / variance)))


def _copies(records: int, rate: float, noise_multiplier: float) -> int:
    """Return so many that the size of a batch shows through the noise, and that most records are copies."""
    if rate == 1:
        return 3 * records
    needed = max(_RATIO * noise_multiplier**2 / (rate * (1 - rate)), 9 * records)
    return min(int(np.ceil(needed)), _MOST_COPIES)


def _still(settings: StudySettings, records: int) -> StudySettings:
    """Return the same steps with a model that they do not move, and the public batch size of these records."""
    values: dict[str, Any] = settings.as_json()
    values["training"] = values["training"] | {"optimiser": {"learning_rate": _STILL}}
    values["privacy"] = values["privacy"] | {"expected_batch_size": settings.privacy.sampling_rate * records}
    # Bounds on one hospital's sum come from the public batch size.
    values.pop("robustness", None)
    return changed(values)


def _dealt(study: AttackedStudy, records: TaskDataset, record: TaskDataset, copies: int) -> Population:
    """Return the clients with these records and the copies, dealt out to those that are watched. Others have one."""
    watched, count = study.watched, len(study.population)
    total = len(records) + copies
    copied = _taken(record, np.zeros(copies + count, dtype=np.int64))
    dataset = TaskDataset(
        joined([in_memory(records.inputs), in_memory(copied.inputs)]),
        torch.cat([records.targets, copied.targets]),
        tuple(f"record-{place}" for place in range(total + count)),
        grouped=records.grouped,
    )
    rows = [
        np.arange(place, total, watched) if place < watched else np.array([total + place]) for place in range(count)
    ]
    return Population(dataset, tuple(rows), study.population.names)


def _taken(dataset: TaskDataset, rows: np.ndarray) -> TaskDataset:
    index = torch.as_tensor(rows)
    return replace(
        dataset,
        inputs=take_rows(dataset.inputs, index),
        targets=dataset.targets[index],
        patients=tuple(dataset.patients[int(row)] for row in rows),
    )
