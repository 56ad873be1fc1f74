"""Tables of an evaluation's answer: figures by group, and counts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from study_protocol.queries.answer import ERRORS, ESTIMATE, PATIENTS, RAW, AnswerTable, Plot, rows_of, value
from study_protocol.queries.counting import Estimates, Floats

GROUP, MEASURE = "group", "measure"
NOT_EVALUATED = "not evaluated"


def figures_table(
    name: str,
    title: str,
    labels: Sequence[tuple[str, Sequence[str] | Floats]],
    estimates: Estimates,
    patients: Floats,
    plot: Plot | None = None,
) -> AnswerTable:
    """Return a table of figures.

    Args:
        labels: columns before the estimates.
        patients: (rows,) how many each row rests on.
    """
    columns = [values for _, values in labels]
    numbers = (estimates.estimate, *estimates.errors, patients)
    return AnswerTable(
        name=name,
        title=title,
        columns=(*(label for label, _ in labels), ESTIMATE, *ERRORS, PATIENTS),
        rows=tuple(
            (*(label if isinstance(label, str) else value(label) for label in before), *after)
            for before, after in zip(zip(*columns, strict=True), rows_of([()] * len(patients), *numbers), strict=True)
        ),
        counts=PATIENTS,
        plot=plot,
    )


def counts_by(name: str, title: str, labels: Sequence[tuple[str, Sequence[str]]], estimates: Estimates) -> AnswerTable:
    """Return a table of counts. `labels` are the columns before the counts."""
    numbers = (estimates.estimate, estimates.raw, *estimates.errors)
    return AnswerTable(
        name=name,
        title=title,
        columns=(*(label for label, _ in labels), ESTIMATE, RAW, *ERRORS),
        rows=rows_of(list(zip(*(values for _, values in labels), strict=True)), *numbers),
        counts=ESTIMATE,
    )


def repeated(values: Sequence[str], each: int = 1, times: int = 1) -> list[str]:
    """Return labels with each repeated so many times, and the whole as often.

    a, b with each 2 and times 2: a a b b a a b b.
    """
    return [value for _ in range(times) for value in values for _ in range(each)]


def stacked(parts: Sequence[Floats]) -> Floats:
    return np.concatenate([np.asarray(part, np.float64) for part in parts])
