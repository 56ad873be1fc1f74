"""The public rule by which the next question of a study's synthesis follows from the signed answers.

Coordinator and hospitals compute it, each for itself, in whole numbers, so that all find the same question.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from study_protocol.queries.kinds.marginals import Clique, Groups, Marginals
from study_protocol.study.queries import PublishedAnswer, QueryDocument
from study_protocol.study.synthesis import STAGES, Synthesis
from synthesis.forest import Column, association, spanning_forest
from synthesis.partition import groups_of
from synthesis.reading import UNIT, ReadTable, read_tables

# Standard deviations of noise in one cell: an outcome with fewer patients says nothing of pairs.
_LEAST_OF_OUTCOME = 4


def next_question(synthesis: Synthesis, answers: Sequence[PublishedAnswer]) -> QueryDocument | None:
    """Return the question that follows these answers, or None after the last one.

    Args:
        synthesis: the section of the study's settings.
        answers: to the earlier questions of this rule, in order.

    Raises:
        ValueError: an answer is to no question of this rule.
    """
    document = synthesis.first_question()
    if not answers:
        return document
    first = read_tables(document.question, answers[0], synthesis.outcome_number)
    if len(first) < 2 or _patients(synthesis, first) < synthesis.least_patients:
        return _again(synthesis) if len(answers) == 1 else None
    pairs = _pairs(synthesis, first)
    if len(answers) == 1:
        return pairs
    return _forest(synthesis, pairs, first, answers[1]) if len(answers) == STAGES - 1 else None


def _patients(synthesis: Synthesis, first: Mapping[Clique, ReadTable]) -> Fraction:
    if synthesis.patients is not None:
        return Fraction(synthesis.patients)
    return Fraction(sum(int(table.counts.sum()) for table in first.values()), len(first) * UNIT)


def _again(synthesis: Synthesis) -> QueryDocument:
    """Return the first question with what is left of the allowance."""
    outcome = synthesis.outcome_number
    cliques = [_with(outcome, number) for number in _others(synthesis)]
    percent = sum(synthesis.shares[1:])
    return synthesis.document(percent, cliques, title="Synthesis 2: columns by outcome", stage=2)


def _pairs(synthesis: Synthesis, first: Mapping[Clique, ReadTable]) -> QueryDocument:
    outcome = synthesis.outcome_number
    cliques = [_with(outcome, *pair) for pair in itertools.combinations(_others(synthesis), 2)]
    groups = [
        () if number == outcome else groups_of(variable, first[number,].counts.tolist(), synthesis.most_groups)
        for number, variable in enumerate(synthesis.columns)
    ]
    percent = synthesis.shares[1]
    return synthesis.document(percent, cliques, title="Synthesis 2: pairs by outcome", stage=2, groups=groups)


def _forest(
    synthesis: Synthesis, pairs: QueryDocument, first: Mapping[Clique, ReadTable], second: PublishedAnswer
) -> QueryDocument | None:
    question, outcome = pairs.question, synthesis.outcome_number
    assert isinstance(question, Marginals)
    coarse = {
        column: _grouped(table, question.groups[column] if question.groups else ())
        for (column,), table in first.items()
    }
    outcomes = _outcomes(first)
    associations = {
        (first_column, second_column): association(
            table.counts, coarse[first_column], coarse[second_column], outcomes, max(int(table.std), 1), UNIT
        )
        for (first_column, second_column), table in read_tables(question, second, outcome).items()
    }
    sizes = [len(variable.labels) for variable in synthesis.columns]
    cells = {
        (first_column, second_column): sizes[first_column] * sizes[second_column] * sizes[outcome]
        for first_column, second_column in associations
    }
    cliques = [_with(outcome, *pair) for pair in spanning_forest(associations, cells, synthesis.most_cells())]
    if not cliques:
        return None
    return synthesis.document(synthesis.shares[2], cliques, title="Synthesis 3: pairs of a tree by outcome", stage=3)


def _outcomes(first: Mapping[Clique, ReadTable]) -> list[int]:
    """Return patients by outcome, 0 for an outcome that has no more than noise."""
    sums: list[int] = [
        sum(column) // len(first)
        for column in zip(*(table.counts.sum(axis=0).tolist() for table in first.values()), strict=True)
    ]
    noise = max(table.std for table in first.values())
    return [count if count > _LEAST_OF_OUTCOME * noise else 0 for count in sums]


def _grouped(table: ReadTable, groups: Groups) -> Column:
    numbers, noise = groups or tuple(range(len(table.counts))), int(table.std**2)
    cells = [np.equal(numbers, group) for group in range(max(numbers) + 1)]
    counts = np.array([table.counts[each].sum(axis=0) for each in cells], object)
    return Column(counts, [noise * int(each.sum()) for each in cells])


def _others(synthesis: Synthesis) -> list[int]:
    return [number for number in range(len(synthesis.columns)) if number != synthesis.outcome_number]


def _with(*numbers: int) -> Clique:
    return tuple(sorted(numbers))
