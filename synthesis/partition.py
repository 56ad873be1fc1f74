"""Groups of a column's cells, in whole numbers, so that all machines find the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from study_protocol.queries.kinds.marginals import Groups
from study_protocol.queries.variables import Variable
from study_protocol.study.synthesis import MAX_GROUPS


def groups_of(variable: Variable, counts: Sequence[Sequence[int]], most: int = MAX_GROUPS) -> Groups:
    """Return the group of each cell. (): each cell is one.

    Bins are joined with their neighbours, into groups of about equal mass. The largest categories stand alone, and the
    others are two groups by the share of the outcome's second cell.

    Args:
        variable: the column.
        counts: noised patients of each cell by outcome, in any unit.
        most: so many groups at most, from 2.
    """
    if len(counts) <= most:
        return ()
    masses = [max(sum(row), 0) + 1 for row in counts]
    if variable.edges is not None:
        return _in_order(masses, most)
    return _by_rate(masses, [Fraction(row[1], mass) for row, mass in zip(counts, masses, strict=True)], most)


def _in_order(masses: Sequence[int], most: int) -> Groups:
    # Missing values are no neighbour of the largest ones: they stand alone where they are half a group.
    alone = masses[-1] * 2 * most > sum(masses)
    bins = list(masses[:-1] if alone else masses)
    most -= alone
    groups: list[int] = []
    group, held, left = 0, 0, sum(bins)
    for mass in bins:
        if held and group < most - 1 and (2 * held + mass) * (most - group) > 2 * left:
            group, left, held = group + 1, left - held, 0
        groups.append(group)
        held += mass
    return tuple([*groups, group + 1] if alone else groups)


def _by_rate(masses: Sequence[int], rates: Sequence[Fraction], most: int) -> Groups:
    falling = sorted(range(len(masses)), key=lambda cell: (-masses[cell], cell))
    largest, rest = falling[: most - 2], sorted(falling[most - 2 :], key=lambda cell: (rates[cell], cell))
    groups = [0] * len(masses)
    for group, cell in enumerate(largest):
        groups[cell] = group
    half, held = sum(masses[cell] for cell in rest), 0
    for place, cell in enumerate(rest):
        is_low = place == 0 or (2 * held < half and place < len(rest) - 1)
        groups[cell] = most - 2 if is_low else most - 1
        held += masses[cell]
    return tuple(groups)
