"""The public rule by which questions follow from answers."""

from __future__ import annotations

import pytest

from study_protocol.queries.kinds.marginals import Marginals
from study_protocol.study.queries import PublishedAnswer, QueryDocument
from synthesis.rule import next_question
from tests.factories.synthesis import answered, section


def _chain(count: int, **entries: int) -> list[Marginals]:
    """The questions, each after noiseless answers from so many patients to those before."""
    synthesis, answers, asked = section(**entries), list[PublishedAnswer](), list[Marginals]()
    while (document := next_question(synthesis, answers)) is not None:
        question = QueryDocument.model_validate_json(document.model_dump_json()).question
        assert isinstance(question, Marginals)
        assert document.question == question
        asked.append(question)
        answers.append(answered(document, count))
    return asked


def test_three_questions_follow_one_another() -> None:
    asked = _chain(5000)
    assert [question.stage for question in asked] == [1, 2, 3]
    synthesis = section()
    assert sum(1 / question.noise_multiplier**2 for question in asked) <= synthesis.allowance
    assert all(question.cells <= synthesis.most_cells() for question in asked[:2])


@pytest.mark.parametrize("entries", [{}, {"patients": 1999}])
def test_with_few_patients_the_first_question_is_asked_again(entries: dict[str, int]) -> None:
    first, again = _chain(5000 if entries else 1999, **entries)
    assert (first.cliques, first.groups) == (again.cliques, again.groups)
    assert again.stage == 2
    assert again.noise_multiplier < first.noise_multiplier
    assert 1 / first.noise_multiplier**2 + 1 / again.noise_multiplier**2 <= section().allowance
