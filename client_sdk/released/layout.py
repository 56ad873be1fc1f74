"""How records become a model's inputs, in words that another program can follow."""

from __future__ import annotations

from typing import Any

from private_learning.tasks import Task
from private_learning.tasks.columns import Declared, NumberColumn
from private_learning.tasks.curves import CurveColumn
from private_learning.tasks.tables import TableTask


def layout_of(task: Task) -> list[dict[str, Any]]:
    """Return one description for each column of a table, in order, and none for a task on arrays.

    column, first: the name and the place of its first input.
    A number: its place in the range, −1 at low and 1 at high. One beyond it counts as the nearest bound. If `missing`
    is a
    number, that number stands in for a missing value, and one further input is 1 (else 0). If `unit` says days, the
    cells are dates. If `typical` is a pair, these two become −1 and 1, and values beyond them lie farther out. If
    `log_offset` is a number, it is added, and the natural logarithm is scaled, also that of the two ends.
    A number with `edges`: they lie between bins, each on the edge of the bin above it, and `rows` are the inputs that
    stand for the bins. A missing value has zeros, and if `missing` is a number, one further input is 1 (else 0).
    A category: one input each, 1 for the record's own. If `missing` is true, a further one for a missing value. If
    there are `shares`, each is subtracted from its category's input where the value is known.
    `missing_values` are what a file may write for a missing value, beside an empty cell. If `may_lack` is true, a table
    without the column is read as one whose cells are all empty.
    """
    if not isinstance(task, TableTask):
        return []
    described, first = list[dict[str, Any]](), 0
    for column in task.columns:
        described.append({"column": column.name, "first": first, **_encoding(column)})
        first += column.width
    return described


def _encoding(column: Declared) -> dict[str, Any]:
    if isinstance(column, NumberColumn):
        described: dict[str, Any] = {"low": column.low, "high": column.high, "missing": column.missing}
        described |= {"unit": "days since 1970-01-01"} if column.dates else {}
        described |= {"typical": list(column.typical)} if column.typical else {}
        described |= {"log_offset": column.offset} if column.log else {}
        if isinstance(column, CurveColumn):
            described |= {"edges": column.edges.tolist(), "rows": column.basis.tolist()}
    else:
        described = {"categories": list(column.categories), "missing": column.missing}
        described |= {"shares": list(column.shares)} if column.shares else {}
    described |= {"may_lack": True} if column.may_lack else {}
    return {**described, "missing_values": list(column.missing_values)}
