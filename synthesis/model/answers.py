"""Noised tables of a synthesis from its signed answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from study_protocol.queries.kinds.marginals import Marginals
from study_protocol.study.queries import PublishedAnswer
from study_protocol.study.synthesis import Synthesis
from synthesis.model.arithmetic import Integers
from synthesis.model.noised import Noised, Pair, Table, pooled
from synthesis.reading import UNIT, ReadTable, read_tables
from synthesis.rule import asked_so_far


def noised_from(synthesis: Synthesis, answers: Sequence[PublishedAnswer]) -> Noised:
    """Return the tables of these answers.

    Args:
        synthesis: the section of the study's settings.
        answers: to the questions of the rule, in order, at least the first. The caller has verified signatures.

    Raises:
        ValueError: an answer is to no question of the rule, or there is none.
    """
    if not answers:
        raise ValueError("no question of the synthesis is answered yet")
    columns: dict[int, list[Table]] = {}
    pairs: dict[Pair, Table] = {}
    edges: dict[Pair, Table] = {}
    groups: dict[int, Integers] = {}
    for document, answer in zip(asked_so_far(synthesis, answers), answers, strict=True):
        for others, read in read_tables(document, answer, synthesis.outcome_number).items():
            if len(others) == 1:
                columns.setdefault(others[0], []).append(_table(read))
            else:
                (pairs if answer is answers[1] else edges)[others[0], others[1]] = _table(read)
        question = document.question
        if isinstance(question, Marginals):
            groups |= {column: np.array(cells, np.int64) for column, cells in enumerate(question.groups) if cells}
    return Noised(
        sizes=tuple(len(variable.labels) for variable in synthesis.columns),
        outcome=synthesis.outcome_number,
        groups=groups,
        columns={column: pooled(tables) for column, tables in columns.items()},
        pairs=pairs,
        edges=edges,
    )


def _table(read: ReadTable) -> Table:
    return Table(read.counts.astype(np.float64) / UNIT, float(read.std) / UNIT)
