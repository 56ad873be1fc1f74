"""The questions of a synthesis so far, from the signed answers alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from study_protocol.queries.kinds.marginals import Marginals
from study_protocol.study.queries import PublishedAnswer, QueryDocument
from study_protocol.study.synthesis import Synthesis
from synthesis.rule import next_question


@dataclass(frozen=True)
class Chain:
    """The answers of a synthesis, in order, and their questions. document: has no answer yet. None: it is complete."""

    answers: tuple[PublishedAnswer, ...]
    questions: tuple[Marginals, ...]
    document: QueryDocument | None


def follow(synthesis: Synthesis, answer_of: Callable[[str], PublishedAnswer | None]) -> Chain:
    """Follow the rule from its first question, as far as there are answers.

    Args:
        synthesis: the section of the study's settings.
        answer_of: digest of a question -> its answer, which the caller has verified. None: there is none yet.

    Raises:
        ValueError: an answer is to no question of the rule.
    """
    answers: list[PublishedAnswer] = []
    questions: list[Marginals] = []
    while (document := next_question(synthesis, answers)) is not None:
        answer = answer_of(document.digest())
        if answer is None:
            break
        if not isinstance(document.question, Marginals):
            raise ValueError("a question of the rule is of another kind")
        answers.append(answer)
        questions.append(document.question)
    return Chain(tuple(answers), tuple(questions), document)
