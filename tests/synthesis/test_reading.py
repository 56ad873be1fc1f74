"""Arrays of answers as whole numbers, and what is refused."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from synthesis.reading import UNIT, read_tables
from tests.factories.synthesis import answered, drawn, section


def test_tables_are_the_counts_with_the_outcome_last() -> None:
    synthesis = section(outcome="sex")
    document = synthesis.first_question()
    answer = answered(document, 500, seed=4)
    tables = read_tables(document.question, answer, synthesis.outcome_number)
    assert list(tables) == [(0,), (2,), (3,)]
    source = np.random.default_rng(4)
    age, sex, *_ = drawn(document.question, 500, source)
    expected = np.zeros((9, 4), int)
    np.add.at(expected, (age, sex), 1)
    assert (tables[0,].counts == expected * UNIT).all()
    assert type(tables[0,].counts[0, 0]) is int


def test_noise_is_per_count_and_not_per_weighted_count() -> None:
    document = section().first_question()
    answer = answered(document, 500)
    tables = read_tables(document.question, answer, 3)
    for table, weight in zip(tables.values(), document.question.times, strict=True):
        assert table.std == Fraction(answer.noise.present) * UNIT / weight


def test_a_hidden_count_and_another_shape_are_refused() -> None:
    document = section().first_question()
    answer = answered(document, 500)
    first = answer.answer.arrays[0]
    hidden = first.model_copy(update={"values": (None, *first.values[1:])})
    arrays = (hidden, *answer.answer.arrays[1:])
    changed = answer.model_copy(update={"answer": answer.answer.model_copy(update={"arrays": arrays})})
    with pytest.raises(ValueError, match=r"Set statistics\.suppress_below to 0"):
        read_tables(document.question, changed, 3)
    fewer = answer.model_copy(update={"answer": answer.answer.model_copy(update={"arrays": arrays[1:]})})
    with pytest.raises(ValueError, match="does not hold the tables"):
        read_tables(document.question, fewer, 3)
