"""Arrays of signed answers as whole numbers of one unit, by the columns that they cross."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study_protocol.queries.kinds import Question
from study_protocol.queries.kinds.marginals import Clique, Marginals
from study_protocol.study.queries import PublishedAnswer

UNIT = 1024
"""What one patient counts for. A power of 2, so that a division by it is exact."""


@dataclass(frozen=True)
class ReadTable:
    """counts: cells of each column, the outcome last, in units, as Python's integers. std: of one cell, in units."""

    counts: NDArray[Any]
    std: Fraction


def read_tables(question: Question, answer: PublishedAnswer, outcome: int) -> Mapping[Clique, ReadTable]:
    """Return each table by its columns without the outcome, the outcome's axis last.

    Args:
        question: that was answered.
        answer: its content.
        outcome: number of the outcome.

    Raises:
        ValueError: the answer has not one array for each table of the question, a count is not shown, or grid or noise
            are not the question's.
    """
    marginals = _require_form(question, answer)
    tables: dict[Clique, ReadTable] = {}
    for clique, times, array in zip(marginals.cliques, marginals.times, answer.answer.arrays, strict=True):
        if None in array.values:
            raise ValueError(f"the answer to query {answer.query} hides a count. Set statistics.suppress_below to 0")
        counts = np.empty(len(array.values), object)
        counts[:] = [(value or 0) * UNIT // array.steps for value in array.values]
        other_columns = tuple(column for column in clique if column != outcome)
        moved = np.moveaxis(counts.reshape(array.shape), clique.index(outcome), -1)
        tables[other_columns] = ReadTable(moved, Fraction(answer.noise.present) * UNIT / times)
    return tables


def _require_form(question: Question, answer: PublishedAnswer) -> Marginals:
    """Return the question. Raises ValueError: the answer has other tables, another grid or less noise than it has."""
    arrays = answer.answer.arrays
    if not isinstance(question, Marginals) or tuple(array.shape for array in arrays) != question.shapes:
        raise ValueError(f"the answer to query {answer.query} does not hold the tables of the synthesis's question")
    grid = question.grid()
    steps = tuple(times * round(1 / grid.spacing) for times in question.times)
    # Less noise than was charged, up to roundings of the account.
    if tuple(array.steps for array in arrays) != steps or answer.noise.present < grid.std * grid.spacing * (1 - 1e-6):
        raise ValueError(f"the answer to query {answer.query} states another grid or less noise than its question has")
    return question
