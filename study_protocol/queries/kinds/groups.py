"""Questions whose answer is a curve for each group of patients: the groups, and tables by group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from study_protocol.queries.answer import ERRORS, ESTIMATE, HIGH, LOW, PATIENTS, RAW, AnswerTable, Plot, rows_of
from study_protocol.queries.counting import Estimates, Floats, join_estimates
from study_protocol.queries.phrases import variable_in_words
from study_protocol.queries.variables import Patients, Variable


def group_count(by: Variable | None) -> int:
    return 1 if by is None else len(by.labels)


def group_names(by: Variable | None) -> tuple[tuple[str, ...], ...]:
    """Return the first cells of each group's rows, shape (groups,). They are empty if all patients are one group."""
    return ((),) if by is None else tuple((label,) for label in by.labels)


def group_places(by: Variable | None, patients: Patients, count: int) -> NDArray[np.int64]:
    """Return the group of every patient, shape (count,). Raises UnreadableColumn."""
    return np.zeros(count, np.int64) if by is None else by.places(patients)


def by_in_words(by: Variable | None) -> str:
    return "" if by is None else f" by {variable_in_words(by)}"


def take_rows(estimates: Estimates, places: Sequence[int]) -> Estimates:
    """Return some rows of the estimates."""
    return Estimates(*(getattr(estimates, field.name)[list(places)] for field in fields(Estimates)))


def curve_table(
    name: str,
    title: str,
    by: Variable | None,
    x: tuple[str, Sequence[float | str]],
    curves: Sequence[Estimates],
    patients: Sequence[Floats | float] | None,
    plot: Literal["bars", "steps", "line", "points"] | None = None,
) -> AnswerTable:
    """Return a table with the rows of every group one after another.

    Args:
        x: the column's name and its (rows,) values, the same in every group.
        curves: (groups,) of (rows,) each.
        patients: (groups,) how many every row rests on. None if the rows count patients.
        plot: the form of the drawing. None for no drawing.
    """
    labels = [(*group, value) for group in group_names(by) for value in x[1]]
    estimates = join_estimates(curves)
    if patients is None:
        last, columns = (estimates.raw, *estimates.errors), (ESTIMATE, RAW, *ERRORS)
    else:
        rests = np.concatenate([np.broadcast_to(counts, len(x[1])) for counts in patients])
        last, columns = (*estimates.errors, rests), (ESTIMATE, *ERRORS, PATIENTS)
    # A hospital's column may be called as one of ours.
    reserved = {x[0], *columns, RAW}
    heads = () if by is None else (f"column {by.column}" if by.column in reserved else by.column,)
    return AnswerTable(
        name=name,
        title=title,
        columns=(*heads, x[0], *columns),
        rows=rows_of(labels, estimates.estimate, *last),
        counts=ESTIMATE if patients is None else PATIENTS,
        plot=None
        if plot is None
        else Plot(kind=plot, x=x[0], y=ESTIMATE, low=LOW, high=HIGH, by=heads[0] if heads else None),
    )
