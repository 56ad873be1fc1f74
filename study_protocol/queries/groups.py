"""Groups of patients in one question: one partition, or several over the same patients, and what all groups say of all.

A partition puts every patient into one group: the product of variables' cells. Without a variable it has one group.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from study_protocol.queries.counting import Floats
from study_protocol.queries.variables import Patients, Places, Variable

EVERYBODY = "all patients"
Partition = tuple[Variable, ...]


@dataclass(frozen=True)
class GroupSum:
    """One group's part of a noised sum: values (…), unbiased, and the variance of the noise in each of them."""

    group: str
    values: Floats
    variance: float


def groups_of(partition: Partition) -> list[str]:
    """Return the names of the groups, in the order of `places_of`."""
    labels = [[f"{variable.column}: {label}" for label in variable.labels] for variable in partition]
    return [", ".join(cell) or EVERYBODY for cell in itertools.product(*labels)]


def size_of(partition: Partition) -> int:
    return math.prod(len(variable.labels) for variable in partition)


def evenly(partition: Partition, patients: int) -> Floats:
    """Return so many patients, spread over the groups in which one expects any, shape (groups,)."""
    usual = np.array([all(cell) for cell in itertools.product(*(variable.usual for variable in partition))], bool)
    return patients * usual / usual.sum()


def places_of(partition: Partition, patients: Patients, count: int) -> Places:
    """Return the group of every patient, shape (count,). Raises UnreadableColumn."""
    if not partition:
        return np.zeros(count, np.int64)
    places = tuple(variable.places(patients) for variable in partition)
    return np.ravel_multi_index(places, [len(variable.labels) for variable in partition])


def sums_by_group(partitions: Sequence[Partition], parts: Sequence[Floats], std: float) -> list[GroupSum]:
    """Return the sum over all patients first, then of every group if there are several.

    Every partition's groups add up to all patients. Least squares gives one sum for all and moves the groups of a
    partition by equal amounts. That is linear and unbiased.

    Args:
        parts: for each partition (groups, …), with noise of this standard deviation in each number.
    """
    sizes = [len(part) for part in parts]
    inverse = sum(1 / size for size in sizes)
    everybody = np.sum([part.sum(axis=0) / size for part, size in zip(parts, sizes, strict=True)], axis=0) / inverse
    variance = std**2 / inverse
    sums = [GroupSum(EVERYBODY, everybody, variance)]
    for partition, part, size in zip(partitions, parts, sizes, strict=True):
        if size > 1:
            moved = part + (everybody - part.sum(axis=0)) / size
            spread = std**2 * (1 - 1 / size) + variance / size**2
            sums += [
                GroupSum(name, group_sum, spread) for name, group_sum in zip(groups_of(partition), moved, strict=True)
            ]
    return sums
