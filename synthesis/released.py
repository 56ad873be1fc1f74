"""From the signed answers of a synthesis to the tables of its model, and to its records."""

from __future__ import annotations

import numpy as np

from study_protocol.study.synthesis import Synthesis
from synthesis.chain import Chain
from synthesis.model.arithmetic import Integers
from synthesis.model.make import make_records
from synthesis.model.noised import Noised, NoisedTable, Pair, pooled
from synthesis.reading import UNIT, ReadTable, read_tables


def noised_of(synthesis: Synthesis, chain: Chain) -> Noised:
    """Return the noised tables of a complete chain, in patients.

    Raises:
        ValueError: the chain is not complete, an answer does not have its question's tables, or one hides a count.
    """
    if chain.document is not None:
        raise ValueError("a question of the synthesis has no answer yet")
    columns: dict[int, list[NoisedTable]] = {}
    pairs: dict[Pair, NoisedTable] = {}
    edges: dict[Pair, NoisedTable] = {}
    groups: dict[int, Integers] = {}
    for question, answer in zip(chain.questions, chain.answers, strict=True):
        groups |= {column: np.array(cells, np.int64) for column, cells in enumerate(question.groups) if cells}
        for clique, read in read_tables(question, answer, synthesis.outcome_number).items():
            if len(clique) == 1:
                columns.setdefault(clique[0], []).append(_in_patients(read))
            else:
                # The second question has all pairs, the third one those of a forest.
                (pairs if question is chain.questions[1] else edges)[clique[0], clique[1]] = _in_patients(read)
    return Noised(
        sizes=tuple(len(variable.labels) for variable in synthesis.columns),
        outcome=synthesis.outcome_number,
        groups=groups,
        columns={column: pooled(tables) for column, tables in columns.items()},
        pairs=pairs,
        edges=edges,
    )


def records_of(synthesis: Synthesis, chain: Chain) -> Integers:
    """Return the synthetic records as cells of each column, shape (rows, columns). Raises ValueError."""
    return make_records(noised_of(synthesis, chain), synthesis.rows, synthesis.seed)


def _in_patients(read: ReadTable) -> NoisedTable:
    return NoisedTable(read.counts.astype(np.float64) / UNIT, float(read.std) / UNIT)
