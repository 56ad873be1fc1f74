"""The public rule by which questions follow from answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from study_protocol.queries.kinds.marginals import Marginals
from study_protocol.study.queries import PublishedAnswer, QueryDocument
from study_protocol.study.synthesis import Synthesis
from synthesis.chain import Chain, follow
from synthesis.file import columns_of
from synthesis.forecast import simulated_answer
from synthesis.released import noised_of, records_of
from synthesis.rule import next_question
from tests.factories.synthesis import COLUMNS, answered, section


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


@pytest.mark.parametrize("bins", [10, 60, 300])
def test_no_question_has_more_numbers_than_the_settings_were_checked_for(bins: int) -> None:
    """Also a pair of columns with many bins in full, where pairs in groups have few."""
    fine = [{"column": name, "edges": list(range(bins - 2))} for name in "abc"]
    synthesis, answers = section(columns=[*fine, COLUMNS[3]]), list[PublishedAnswer]()
    codes = np.random.default_rng(1).integers(bins, size=(6000, 1)) + np.zeros((1, 4), np.int64)
    codes[:, 3] = codes[:, 3] % 2
    while (document := next_question(synthesis, answers)) is not None:
        assert document.question.cells <= synthesis.most_cells()
        answers.append(simulated_answer(document, codes, len(codes), np.random.default_rng(2)))
    assert len(answers) == (3 if bins < 300 else 2)


@pytest.mark.parametrize("entries", [{}, {"patients": 1999}])
def test_with_few_patients_the_first_question_is_asked_again(entries: dict[str, int]) -> None:
    first, again = _chain(5000 if entries else 1999, **entries)
    assert (first.cliques, first.groups) == (again.cliques, again.groups)
    assert again.stage == 2
    assert again.noise_multiplier < first.noise_multiplier
    assert 1 / first.noise_multiplier**2 + 1 / again.noise_multiplier**2 <= section().allowance


def _ask(synthesis: Synthesis, patients: int, *, std: float = 0.0, values: Sequence[int] | None = None) -> Chain:
    """The complete chain of answers. values: of all cells of an answer, by stage, in place of patients' counts."""
    answers: dict[str, PublishedAnswer] = {}
    while (document := (chain := follow(synthesis, answers.get)).document) is not None:
        answer = answered(document, patients, std=std)
        if values is not None:
            arrays = tuple(
                array.model_copy(update={"values": (values[len(answers)] * array.steps,) * len(array.values)})
                for array in answer.answer.arrays
            )
            answer = answer.model_copy(update={"answer": answer.answer.model_copy(update={"arrays": arrays})})
        answers[document.digest()] = answer
    return chain


def _checked(synthesis: Synthesis, chain: Chain) -> Any:
    records = records_of(synthesis, chain)
    sizes = [len(variable.labels) for variable in synthesis.columns]
    assert records.shape == (synthesis.rows, len(sizes))
    assert records.min() >= 0
    assert (records < np.array(sizes)).all()
    assert len(columns_of(synthesis.columns, records)["ill"]) == synthesis.rows
    return records


def test_the_rule_may_end_after_two_questions() -> None:
    # Columns that do not depend on each other have an empty forest. Each has four cells.
    synthesis = section(rows=500, columns=[COLUMNS[1], COLUMNS[1] | {"column": "smokes"}, COLUMNS[3]])
    chain = _ask(synthesis, 0, values=(400, 100))
    assert [question.stage for question in chain.questions] == [1, 2]
    assert chain.document is None
    noised = noised_of(synthesis, chain)
    assert (len(noised.pairs), len(noised.edges)) == (1, 0)
    _checked(synthesis, chain)


@pytest.mark.parametrize("patients", [0, 5000])
@pytest.mark.parametrize("count", [0, -3])
def test_answers_without_a_patient_give_records(count: int, patients: int) -> None:
    synthesis = section(rows=300, patients=patients or None)
    chain = _ask(synthesis, 0, values=(count, count, count))
    assert len(chain.questions) == 2
    _checked(synthesis, chain)


def test_one_column_beside_the_outcome_is_asked_twice() -> None:
    synthesis = section(columns=[COLUMNS[0], COLUMNS[3]], rows=400)
    chain = _ask(synthesis, 5000)
    assert [question.cliques for question in chain.questions] == [((0, 1),), ((0, 1),)]
    _checked(synthesis, chain)


def test_an_outcome_of_one_observed_category_gives_records_of_it() -> None:
    synthesis = section(columns=[*COLUMNS[:3], {"column": "ill", "edges": [-1e9]}], rows=400)
    answers: dict[str, PublishedAnswer] = {}
    while (document := follow(synthesis, answers.get).document) is not None:
        answer = answered(document, 30_000)
        arrays = tuple(
            # Only the second of three outcomes has patients.
            array.model_copy(
                update={"values": tuple(v * (place % 3 == 1) for place, v in enumerate(array.values) if v is not None)}
            )
            for array in answer.answer.arrays
        )
        answers[document.digest()] = answer.model_copy(
            update={"answer": answer.answer.model_copy(update={"arrays": arrays})}
        )
    assert set(_checked(synthesis, follow(synthesis, answers.get))[:, 3].tolist()) == {1}


def test_columns_of_many_cells_and_much_noise_give_records() -> None:
    wide = [
        {"column": "age", "edges": list(range(120))},
        {"column": "town", "categories": [f"t{n}" for n in range(60)]},
    ]
    synthesis = section(columns=[*wide, *COLUMNS[1:]], rows=1000, allowance=0.001)
    chain = _ask(synthesis, 3000, std=30.0)
    assert chain.document is None
    _checked(synthesis, chain)


def test_the_rule_does_not_depend_on_the_order_of_answers_kept() -> None:
    synthesis = section()
    chain = _ask(synthesis, 5000, std=1.0)
    by_digest = {answer.sha256: answer for answer in chain.answers}
    for order in (list(by_digest), list(reversed(by_digest))):
        again = follow(synthesis, {digest: by_digest[digest] for digest in order}.get)
        assert again == chain


def test_a_very_small_difference_decides_as_whole_numbers_do() -> None:
    # Floats do not tell 2⁵³ from 2⁵³ + 1 after a division. The rule looks at whole numbers only.
    synthesis = section(least_patients=2000)
    for steps, again in ((0, False), (-1, True)):
        document = synthesis.first_question()
        answer = answered(document, 0)
        arrays = list(answer.answer.arrays)
        arrays = [
            array.model_copy(
                update={"values": (2000 * array.steps + steps * (place == 0), *(0,) * (len(array.values) - 1))}
            )
            for place, array in enumerate(arrays)
        ]
        changed = answer.model_copy(update={"answer": answer.answer.model_copy(update={"arrays": tuple(arrays)})})
        following = next_question(synthesis, [changed])
        assert following is not None
        assert ("columns by outcome" in following.question.title) == again
