"""What several partitions of the same patients say of all, and of every group."""

from __future__ import annotations

import numpy as np
import pytest

from study_protocol.queries.groups import EVERYBODY, evenly, groups_of, sums_by_group
from study_protocol.queries.variables import Variable

SEX = Variable(column="sex", categories=("f", "m"))
AGES = Variable(column="age", edges=(50.0,))


@pytest.mark.parametrize(
    "partitions", [((),), ((SEX,),), ((SEX, AGES),), ((SEX,), (AGES,)), ((SEX, AGES), (AGES,), (SEX,))]
)
def test_sums_are_those_of_least_squares_and_so_are_their_variances(
    partitions: tuple[tuple[Variable, ...], ...],
) -> None:
    """Of numpy: unknown are all groups' sums, bound to one sum over everybody; noise is equal in all."""
    sizes = [len(groups_of(partition)) for partition in partitions]
    source = np.random.default_rng(len(sizes))
    parts = [source.normal(10, 3, (size, 2, 3)) for size in sizes]
    found = sums_by_group(partitions, parts, 1.5)
    # Parameters: everybody, and of each partition all groups but its last.
    design = np.zeros((sum(sizes), 1 + sum(size - 1 for size in sizes)))
    row, place = 0, 1
    for size in sizes:
        design[row : row + size - 1, place : place + size - 1] = np.eye(size - 1)
        design[row + size - 1, 0] = 1
        design[row + size - 1, place : place + size - 1] = -1
        row, place = row + size, place + size - 1
    observed = np.concatenate([part.reshape(len(part), -1) for part in parts])
    fitted = np.linalg.lstsq(design, observed, rcond=None)[0]
    covariance = 1.5**2 * np.linalg.inv(design.T @ design)
    values = np.concatenate([fitted[:1], *([design @ fitted] if max(sizes) > 1 else [])])
    variances = [covariance[0, 0], *np.diagonal(design @ covariance @ design.T)][: len(values)]
    assert found[0].group == EVERYBODY
    assert len(found) == len(values)
    for one, value, variance in zip(found, values, variances, strict=True):
        assert one.values.ravel() == pytest.approx(value)
        assert one.variance == pytest.approx(variance)


def test_patients_are_expected_where_one_expects_any() -> None:
    assert groups_of((SEX, AGES))[:2] == ["sex: f, age: below 50", "sex: f, age: 50 and above"]
    assert evenly((), 8).tolist() == [8]
    assert evenly((SEX, AGES), 8).tolist() == [2, 2, 0, 2, 2, 0, *[0] * 6]
    assert evenly((Variable(column="x", presence=True),), 8).tolist() == [4, 4]
