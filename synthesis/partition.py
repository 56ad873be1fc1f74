"""Groups of a column's cells, in whole numbers, so that all machines find the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from study_protocol.queries.kinds.marginals import Groups
from study_protocol.queries.variables import Variable
from study_protocol.study.synthesis import MAX_GROUPS


def groups_of(variable: Variable, counts: Sequence[Sequence[int]], max_groups: int = MAX_GROUPS) -> Groups:
    """Return the group of each cell. (): each cell is one.

    Bins are joined with their neighbours, into groups of about equal mass. The largest categories stand alone, and the
    others are two groups by the share of the outcome's second cell.

    Args:
        variable: the column.
        counts: noised patients of each cell by outcome, in any unit.
        max_groups: so many groups at most, from 2.
    """
    if len(counts) <= max_groups:
        return ()
    masses = [max(sum(row), 0) + 1 for row in counts]
    if variable.edges is not None:
        return _in_order(masses, max_groups)
    return _by_rate(masses, [Fraction(row[1], mass) for row, mass in zip(counts, masses, strict=True)], max_groups)


def _in_order(masses: Sequence[int], max_groups: int) -> Groups:
    # Missing values are no neighbour of the largest ones: they stand alone where they are half a group.
    has_missing_group = masses[-1] * 2 * max_groups > sum(masses)
    bins = list(masses[:-1] if has_missing_group else masses)
    max_groups -= has_missing_group
    groups: list[int] = []
    group, group_mass, remaining_mass = 0, 0, sum(bins)
    for mass in bins:
        if (
            group_mass
            and group < max_groups - 1
            and (2 * group_mass + mass) * (max_groups - group) > 2 * remaining_mass
        ):
            group, remaining_mass, group_mass = group + 1, remaining_mass - group_mass, 0
        groups.append(group)
        group_mass += mass
    return tuple([*groups, group + 1] if has_missing_group else groups)


def _by_rate(masses: Sequence[int], rates: Sequence[Fraction], max_groups: int) -> Groups:
    falling = sorted(range(len(masses)), key=lambda cell: (-masses[cell], cell))
    largest, rest = falling[: max_groups - 2], sorted(falling[max_groups - 2 :], key=lambda cell: (rates[cell], cell))
    groups = [0] * len(masses)
    for group, cell in enumerate(largest):
        groups[cell] = group
    half, low_mass = sum(masses[cell] for cell in rest), 0
    for place, cell in enumerate(rest):
        is_low = place == 0 or (2 * low_mass < half and place < len(rest) - 1)
        groups[cell] = max_groups - 2 if is_low else max_groups - 1
        low_mass += masses[cell]
    return tuple(groups)
