"""The public rule by which the next question of a study's synthesis follows from the signed answers.

Coordinator and hospitals compute it, each for itself, in whole numbers, so that all find the same question.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

from study_protocol.queries.answer import AnswerArray
from study_protocol.queries.kinds.marginals import Clique, Groups
from study_protocol.study.queries import PublishedAnswer, QueryDocument
from study_protocol.study.synthesis import MAX_GROUPS, STAGES, Synthesis


def next_question(synthesis: Synthesis, answers: Sequence[PublishedAnswer]) -> QueryDocument | None:
    """Return the question that follows these answers, or None after the last one.

    Args:
        synthesis: the section of the study's settings.
        answers: to the earlier questions of this rule, in order.

    Raises:
        ValueError: an answer is to no question of this rule.
    """
    if not answers:
        return synthesis.first_question()
    for answer in answers:
        if not answer.answer.arrays:
            raise ValueError(f"the answer to query {answer.query} holds no counts")
    first = answers[0]
    if _patients(synthesis, first) < synthesis.least_patients:
        return _again(synthesis) if len(answers) == 1 else None
    if len(answers) == 1:
        return _pairs(synthesis)
    return _tree(synthesis) if len(answers) == STAGES - 1 else None


def _patients(synthesis: Synthesis, first: PublishedAnswer) -> Fraction:
    if synthesis.patients is not None:
        return Fraction(synthesis.patients)
    arrays = first.answer.arrays
    return sum((_sum(array) for array in arrays), Fraction(0)) / len(arrays)


def _sum(array: AnswerArray) -> Fraction:
    return Fraction(sum(value or 0 for value in array.values), array.steps)


def _again(synthesis: Synthesis) -> QueryDocument:
    """Return the first question with what is left of the allowance."""
    outcome = synthesis.outcome_number
    cliques = [_with(outcome, number) for number in _others(synthesis)]
    percent = sum(synthesis.shares[1:])
    return synthesis.document(percent, cliques, title="Synthesis 2: columns by outcome", stage=2)


def _pairs(synthesis: Synthesis) -> QueryDocument:
    outcome = synthesis.outcome_number
    cliques = [_with(outcome, *pair) for pair in itertools.combinations(_others(synthesis), 2)]
    groups = [
        () if number == outcome else _grouped(len(variable.labels)) for number, variable in enumerate(synthesis.columns)
    ]
    return synthesis.document(
        synthesis.shares[1],
        cliques or [_with(outcome, *_others(synthesis))],
        title="Synthesis 2: pairs by outcome",
        stage=2,
        groups=groups,
    )


def _tree(synthesis: Synthesis) -> QueryDocument:
    outcome = synthesis.outcome_number
    cliques = [_with(outcome, *pair) for pair in itertools.pairwise(_others(synthesis))]
    return synthesis.document(
        synthesis.shares[2],
        cliques or [_with(outcome, *_others(synthesis))],
        title="Synthesis 3: pairs of a tree by outcome",
        stage=3,
    )


def _others(synthesis: Synthesis) -> list[int]:
    return [number for number in range(len(synthesis.columns)) if number != synthesis.outcome_number]


def _with(*numbers: int) -> Clique:
    return tuple(sorted(numbers))


def _grouped(cells: int) -> Groups:
    return () if cells <= MAX_GROUPS else tuple(cell * MAX_GROUPS // cells for cell in range(cells))
