"""Shared parts of the kinds of question about numbers: checks of their columns, tables of their answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from study_protocol.queries.answer import ERRORS, ESTIMATE, HIGH, LOW, PATIENTS, RAW, AnswerTable, Plot, rows_of
from study_protocol.queries.counting import Estimates, Floats
from study_protocol.queries.variables import Indicator, Range

NORMAL_SAMPLING = (
    "The sampling error of everything but counts and means is that of a normal distribution: where a column has long "
    "tails, it is larger."
)
TOO_FEW = "Where no estimate is shown, there are too few patients for so much noise: it would divide by nearly zero."


def require_numbers_once(numbers: Sequence[Range | Indicator]) -> None:
    """Raises ValueError: the same column in the same range twice. Indicators of other categories are other numbers."""
    keys = [(n.column, n.categories if isinstance(n, Indicator) else None) for n in numbers]
    twice = [name for (name, _), times in Counter(keys).items() if times > 1]
    if twice:
        raise ValueError(f"column {twice[0]}: stands twice")


def label_of(number: Range | Indicator) -> str:
    return number.column if isinstance(number, Range) else f"{number.column}: {' or '.join(number.categories)}"


def numbers_table(
    name: str, title: str, labels: Sequence[Sequence[str]], estimates: Estimates, patients: Floats | float
) -> AnswerTable:
    """Return a table with one row for each number.

    Args:
        labels: (column,) or (column, with).
        patients: (rows,) how many each row rests on.
    """
    names = ("column", "with")[: len(labels[0])] if labels else ("column",)
    return AnswerTable(
        name=name,
        title=title,
        columns=(*names, ESTIMATE, *ERRORS, PATIENTS),
        rows=rows_of(labels, estimates.estimate, *estimates.errors, np.broadcast_to(patients, len(labels))),
        counts=PATIENTS,
        plot=Plot(kind="points", x="column", y=ESTIMATE, low=LOW, high=HIGH) if len(names) == 1 else None,
    )


def counts_table(name: str, title: str, labels: Sequence[Sequence[str]], estimates: Estimates) -> AnswerTable:
    names = ("column",)[: len(labels[0])]
    return AnswerTable(
        name=name,
        title=title,
        columns=(*names, ESTIMATE, RAW, *ERRORS),
        rows=rows_of(labels, estimates.estimate, estimates.raw, *estimates.errors),
        counts=ESTIMATE,
    )
