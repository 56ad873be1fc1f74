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


@pytest.mark.parametrize("entries", [{}, {"patients": 1999}])
def test_with_few_patients_the_first_question_is_asked_again(entries: dict[str, int]) -> None:
    first, again = _chain(5000 if entries else 1999, **entries)
    assert (first.cliques, first.groups) == (again.cliques, again.groups)
    assert again.stage == 2
    assert again.noise_multiplier < first.noise_multiplier
    assert 1 / first.noise_multiplier**2 + 1 / again.noise_multiplier**2 <= section().allowance


@pytest.mark.quick("264")
@pytest.mark.parametrize("cells", [264, 300, 420])
def test_no_question_passes_the_limit_on_cells(cells: int) -> None:
    columns = [{"column": f"x{place}", "edges": list(range(20))} for place in range(3)]
    synthesis = section(columns=[*columns, COLUMNS[3]], max_cells=cells)
    chain = _ask(synthesis, 9000)
    assert [question.cells <= cells for question in chain.questions] == [True] * len(chain.questions)
    # The full table of a pair has 1936 cells, and no third question has room for it.
    assert [len(question.cliques) for question in chain.questions] == [3, 3]
    _checked(synthesis, chain)


def test_a_pair_that_fits_is_asked_where_a_stronger_one_does_not() -> None:
    columns = [{"column": f"x{place}", "edges": list(range(size))} for place, size in enumerate((20, 20, 1))]
    _, second, third = _ask(section(columns=[*columns, COLUMNS[3]], max_cells=400), 9000).questions
    # Seven groups: (7·7 + 7·3 + 7·3)·4 cells. In full a pair has 22·22·4 or 22·3·4 of them.
    assert (second.cells, third.cells) == (364, 264)


@pytest.mark.parametrize("columns", [2, 3])
@pytest.mark.parametrize("outcomes", [1, 2, 3, 7])
@pytest.mark.parametrize("is_limited", [False, True])
def test_few_columns_and_any_outcome_give_records(columns: int, outcomes: int, is_limited: bool) -> None:
    outcome = {"column": "ill", "categories": [f"c{place}" for place in range(outcomes)]}
    wide = [{"column": f"x{place}", "edges": list(range(12))} for place in range(columns - 1)]
    synthesis = section(columns=[outcome, *wide], rows=300)
    if is_limited:
        synthesis = section(columns=[outcome, *wide], rows=300, max_cells=synthesis.least_cells())
    chain = _ask(synthesis, 5000, std=1.0)
    assert chain.document is None
    assert all(question.cells <= synthesis.most_cells() for question in chain.questions)
    assert len(chain.questions) == (2 if columns == 2 or is_limited else 3)
    _checked(synthesis, chain)


def _ask(
    synthesis: Synthesis,
    patients: int,
    *,
    std: float = 0.0,
    values: Sequence[int] | None = None,
) -> Chain:
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
