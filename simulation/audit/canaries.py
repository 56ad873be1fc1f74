"""Canaries: records in a study's own columns whose gradients differ most from one another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import linalg as _linalg  # pyright: ignore[reportMissingTypeStubs]

from private_learning.records import Records, Table
from private_learning.tasks import Task, TaskDataset, dataset_of
from private_learning.tasks.inputs import in_memory, joined
from simulation.audit.releases import RecordGradients
from simulation.population import Population
from study_protocol.wire.tensors import Array

Floats = NDArray[np.float64]
_qr = cast(Any, _linalg).qr
# Candidates for each canary, and the most candidates.
_CANDIDATES, _MOST = 4, 2_000
# Beside the longest: a gradient that is shorter, once the others are taken off, adds nothing.
_INDEPENDENT = 0.1


def candidates(task: Task, records: Records, rows_per_patient: int, count: int, seed: int) -> TaskDataset:
    """Return records whose columns, the label among them, come from different patients, drawn at random.

    Of records that are no table only the targets are exchanged.
    """
    draw = np.random.default_rng([seed, 23])
    if isinstance(records, Table):
        columns = {name: values[draw.permutation(len(records))] for name, values in records.columns.items()}
        records = replace(records, columns=columns)
    dataset = dataset_of(task, records).by_patient(rows_per_patient)
    order = torch.as_tensor(draw.permutation(len(dataset)))
    sample = torch.as_tensor(draw.permutation(len(dataset))[: min(_CANDIDATES * count, _MOST)])
    targets = dataset.targets if isinstance(records, Table) else dataset.targets[order]
    inputs = in_memory(dataset.inputs)[sample]
    names = tuple(f"canary-{place}" for place in range(len(sample)))
    return TaskDataset(inputs, targets[sample], names, grouped=dataset.grouped)


def chosen(
    pool: TaskDataset, gradients: RecordGradients, weights: dict[str, Array], clip_norm: float, count: int
) -> TaskDataset:
    """Return at most `count` of the pool, no more than have independent gradients at these weights (pivoted QR)."""
    rows = gradients.of(pool, weights, clip_norm)
    # scipy's types do not say what pivoting returns.
    _, triangle, order = cast(tuple[Floats, Floats, NDArray[np.int64]], _qr(rows.T, mode="economic", pivoting=True))
    sizes = np.abs(np.diag(triangle))
    independent = max(1, int((sizes > _INDEPENDENT * sizes[0]).sum()))
    places = torch.as_tensor(order[: min(count, independent)].copy())
    names = tuple(f"canary-{place}" for place in range(len(places)))
    return TaskDataset(in_memory(pool.inputs)[places], pool.targets[places], names, grouped=pool.grouped)


def with_canaries(population: Population, canaries: TaskDataset, inside: NDArray[np.bool_], clients: int) -> Population:
    """Return the population with the canaries that are `inside`, dealt out to the first clients."""
    whole, start = population.dataset, len(population.dataset)
    dataset = TaskDataset(
        joined([in_memory(whole.inputs), in_memory(canaries.inputs)]),
        torch.cat([whole.targets, canaries.targets]),
        whole.patients + canaries.patients,
        grouped=whole.grouped,
    )
    members = np.flatnonzero(inside) + start
    rows = [
        np.concatenate([client_rows, members[place::clients]]) if place < clients else client_rows
        for place, client_rows in enumerate(population.rows)
    ]
    return Population(dataset, tuple(rows), population.names)
