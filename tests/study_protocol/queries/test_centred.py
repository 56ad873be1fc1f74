"""Centred squares: their sensitivity against exact fractions and a fine grid, and the form that a question takes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from study_protocol.queries.kinds import QUESTION, Question
from study_protocol.queries.kinds.evaluation import OUTCOME, PREDICTION
from study_protocol.versions import CENTRED_SQUARES, PROTOCOL, UNNUMBERED
from tests.factories.evaluations import EVALUATIONS
from tests.factories.questions import DOCUMENTS, question

HALF = Fraction(1, 2)
MOMENTS, NUMBER = DOCUMENTS["moments"], EVALUATIONS["number"]
# Δ² of one number, and of an evaluation.
MOMENTS_SQUARE, NUMBER_SQUARE = Fraction(9, 4), Fraction(13, 4)
# From a rounding to the coarsest grid to one that is far below the floats' own.
MULTIPLIERS = st.sampled_from([0.001, 0.3, 4.0, 1e6])


def squared_norm(y: Fraction) -> Fraction:
    return 1 + y**2 + (y**2 - HALF) ** 2


def test_the_largest_norm_of_one_number_is_at_the_ends_of_its_range() -> None:
    """On 4,001 exact fractions: 9/4 at ±1 alone, and 5/4 at 0."""
    norms = {y: squared_norm(y) for y in (Fraction(step, 2000) for step in range(-2000, 2001))}
    assert max(norms.values()) == MOMENTS_SQUARE
    assert [y for y, norm in norms.items() if norm == MOMENTS_SQUARE] == [-1, 1]
    assert norms[Fraction(0)] == Fraction(5, 4)


def test_the_largest_norm_of_an_evaluation_is_at_the_ends_of_both_ranges() -> None:
    """On 401 exact fractions of each: (1, y, 1 - y², e, e² - ½) adds a part of y alone and a part of e alone."""
    steps = [Fraction(step, 200) for step in range(-200, 201)]
    outcome = {y: y**2 + (1 - y**2) ** 2 for y in steps}
    assert max(outcome.values()) == 1
    assert max(outcome.values()) + max(squared_norm(e) for e in steps) == NUMBER_SQUARE


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64, 512])
def test_stated_sensitivities_are_not_below_the_exact_ones(count: int) -> None:
    """1.5·√m and √(3.25·partitions), rounded up by one float at most."""
    numbers = [{"column": f"x{place}", "low": 0, "high": 1} for place in range(count)]
    stated = Fraction(question({"kind": "moments", "numbers": numbers, "centred": True}).sensitivity)
    assert count * MOMENTS_SQUARE <= stated**2 <= count * MOMENTS_SQUARE * (1 + Fraction(1, 2**51))
    if count <= 8:
        groups = [{"column": f"g{place}", "categories": ["a"]} for place in range(count)]
        apart = question(NUMBER | {"groups": groups, "apart": True}, centred=True)
        stated = Fraction(apart.sensitivity)
        assert count * NUMBER_SQUARE <= stated**2 <= count * NUMBER_SQUARE * (1 + Fraction(1, 2**51))


def exact_norm(vector: NDArray[np.int64]) -> Fraction:
    return Fraction(sum(int(step) ** 2 for step in vector))


@pytest.mark.parametrize("multiplier", [0.001, 4.0, 1e6])
def test_no_value_of_a_fine_grid_passes_the_sensitivity_after_rounding(multiplier: float) -> None:
    """5,001 values over a range and beyond, and its ends, one patient each, as whole numbers of grid steps."""
    asked = question({"kind": "moments", "numbers": [{"column": "x", "low": -1, "high": 1}]}, centred=True)
    asked = asked.model_copy(update={"noise_multiplier": multiplier})
    grid = asked.grid()
    values = np.concatenate([np.linspace(-1.25, 1.25, 5001), [-1.0, 1.0, np.nextafter(1.0, 0.0), 0.0]])
    norms = [exact_norm(asked.total({"x": values[row : row + 1]}, grid.spacing)) for row in range(len(values))]
    assert max(norms) <= Fraction(grid.sensitivity) ** 2
    # Up to the grid's own step the bound is reached, so that it is not larger than it needs to be.
    assert float(max(norms)) ** 0.5 == pytest.approx(grid.sensitivity, rel=1e-4)


@given(
    values=st.lists(st.floats(-1, 1) | st.just(np.nan) | st.sampled_from([-1.0, 1.0, 0.0]), min_size=1, max_size=6),
    multiplier=MULTIPLIERS,
)
def test_one_patient_with_several_numbers_moves_the_sum_by_no_more_than_the_sensitivity(
    values: list[float], multiplier: float
) -> None:
    """Of the m numbers that a question asks about, those that a patient lacks add nothing."""
    numbers = [{"column": f"x{place}", "low": -1, "high": 1} for place in range(len(values))]
    asked = question({"kind": "moments", "numbers": numbers}, noise_multiplier=multiplier, centred=True)
    grid = asked.grid()
    patient = {f"x{place}": np.array([value]) for place, value in enumerate(values)}
    moved = asked.total(patient, grid.spacing)
    assert exact_norm(moved) <= Fraction(grid.sensitivity) ** 2
    assert not moved.reshape(-1, 3)[np.isnan(values)].any()


@given(predicted=st.floats(), outcome=st.floats(), multiplier=MULTIPLIERS)
def test_one_evaluated_patient_moves_the_sum_by_no_more_than_the_sensitivity(
    predicted: float, outcome: float, multiplier: float
) -> None:
    asked = question(NUMBER, noise_multiplier=multiplier, centred=True)
    grid = asked.grid()
    moved = asked.total({PREDICTION: np.array([predicted]), OUTCOME: np.array([outcome])}, grid.spacing)
    assert 0 < exact_norm(moved) <= Fraction(grid.sensitivity) ** 2


@pytest.mark.parametrize("document", [MOMENTS, NUMBER], ids=["moments", "number"])
def test_a_question_without_the_entry_has_the_digest_of_before(document: dict[str, Any]) -> None:
    left_out, plain, centred = (question(document, **entry) for entry in ({}, {"centred": False}, {"centred": True}))
    assert "centred" not in left_out.model_dump(mode="json")
    assert left_out == plain
    assert left_out.digest() == plain.digest() != centred.digest()
    assert centred.model_dump(mode="json")["centred"] is True
    assert QUESTION.validate_json(centred.model_dump_json()) == centred
    assert [asked.protocol for asked in (left_out, plain, centred)] == [UNNUMBERED, UNNUMBERED, CENTRED_SQUARES]


@pytest.mark.parametrize("document", [MOMENTS, NUMBER], ids=["moments", "number"])
def test_a_form_that_is_left_open_is_centred_where_all_programs_read_it(document: dict[str, Any]) -> None:
    open_form, plain = question(document), question(document, centred=False)
    centred = question(document, centred=True)
    assert open_form.in_form_for(PROTOCOL) == centred
    assert open_form.in_form_for(CENTRED_SQUARES - 1) is open_form
    assert plain.in_form_for(PROTOCOL) is plain
    assert centred.in_form_for(UNNUMBERED) is centred


@pytest.mark.parametrize("document", [DOCUMENTS["count"], EVALUATIONS["bins"]], ids=["count", "binary"])
def test_a_question_without_squares_has_one_form(document: dict[str, Any]) -> None:
    asked: Question = question(document)
    assert asked.in_form_for(PROTOCOL) is asked
    assert asked.protocol == UNNUMBERED
