"""From the signed answers of a synthesis to the tables of its model."""

from __future__ import annotations

import numpy as np

from study_protocol.study.synthesis import Synthesis
from synthesis.chain import Chain
from synthesis.model.arithmetic import Integers
from synthesis.model.make import make_records
from synthesis.model.noised import Noised, Pair, Table, pooled


def noised_of(synthesis: Synthesis, chain: Chain) -> Noised:
    """Return the noised tables of a complete chain, in patients.

    Raises:
        ValueError: the chain is not complete, or an answer does not have its question's tables.
    """
    if chain.document is not None:
        raise ValueError("a question of the synthesis has no answer yet")
    outcome = synthesis.outcome_number
    columns: dict[int, list[Table]] = {}
    pairs: dict[Pair, Table] = {}
    edges: dict[Pair, Table] = {}
    groups: dict[int, Integers] = {}
    for question, published in zip(chain.questions, chain.answers, strict=True):
        arrays, grouped = published.answer.arrays, any(question.groups)
        if tuple(array.shape for array in arrays) != question.shapes:
            raise ValueError(f"the answer to query {published.query} does not have the tables that were asked for")
        groups |= {number: np.array(each, np.int64) for number, each in enumerate(question.groups) if each}
        for clique, array, times in zip(question.cliques, arrays, question.times, strict=True):
            values = np.array([0 if value is None else value for value in array.values], np.float64)
            counts = np.moveaxis(values.reshape(array.shape) / array.steps, clique.index(outcome), -1)
            table = Table(np.ascontiguousarray(counts), published.noise.present / times)
            others = tuple(number for number in clique if number != outcome)
            if len(others) == 1:
                columns.setdefault(others[0], []).append(table)
            elif len(others) == 2:
                (pairs if grouped or question.stage < len(synthesis.shares) else edges)[others[0], others[1]] = table
    sizes = tuple(len(variable.labels) for variable in synthesis.columns)
    pooled_columns = {number: pooled(tables) for number, tables in columns.items()}
    return Noised(sizes, outcome, groups, pooled_columns, pairs, edges)


def records_of(synthesis: Synthesis, chain: Chain) -> Integers:
    """Return the synthetic records as cells of each column, shape (rows, columns). Raises ValueError."""
    return make_records(noised_of(synthesis, chain), synthesis.rows, synthesis.seed)
