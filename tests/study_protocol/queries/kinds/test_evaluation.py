"""Questions about released models: what they refuse, whom they count where, how much one patient moves."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from study_protocol.queries.answer import NoisedSum
from study_protocol.queries.kinds.evaluation import OUTCOME, PREDICTION
from study_protocol.queries.variables import UnreadableColumn
from tests.factories.evaluations import EVALUATIONS, SQUARES, evaluated
from tests.factories.questions import AGES, SEX, answer_without_noise, column, exact, question

FORMS = pytest.mark.parametrize("form", EVALUATIONS)
ODD = st.sampled_from([0.0, 1.0, 2.0, -4.0, 6.0, 9.0, 1e308, -1e308, np.inf, -np.inf, np.nan, 5e-324, 0.4])


@FORMS
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_one_patient_moves_the_sum_by_its_own_vector_and_by_no_more_than_the_sensitivity(
    form: str, data: st.DataObject
) -> None:
    """Whatever a model predicts; the norm is that of whole numbers, exactly."""
    asked = question(EVALUATIONS[form], noise_multiplier=data.draw(st.sampled_from([0.001, 0.3, 4.0, 1e6])))
    size = data.draw(st.integers(1, 4))
    values = st.lists(ODD | st.floats(), min_size=size, max_size=size)
    columns: dict[str, Any] = {
        "sex": np.array(
            data.draw(st.lists(st.sampled_from(["f", "m", "x", None]), min_size=size, max_size=size)), object
        ),
        **{name: np.array(data.draw(values), np.float64) for name in ("age", PREDICTION, OUTCOME)},
    }
    grid = asked.grid()
    mine = asked.total({name: values[:1] for name, values in columns.items()}, grid.spacing)
    others = asked.total({name: values[1:] for name, values in columns.items()}, grid.spacing)
    assert np.array_equal(asked.total(columns, grid.spacing) - others, mine)
    assert 0 < sum(int(step) ** 2 for step in mine) <= Fraction(grid.sensitivity) ** 2


@FORMS
def test_the_sensitivity_is_reached(form: str) -> None:
    """So that it is not larger than it needs to be."""
    asked = question(EVALUATIONS[form])
    ends = {"binary": (1.0, 1.0), "classes": (2.0, 2.0), "number": (100.0, 6.0)}[EVALUATIONS[form]["prediction"]]
    one: dict[str, Any] = {"sex": np.array(["f"], object), "age": np.array([50.0])}
    one |= {name: np.array([end]) for name, end in zip((PREDICTION, OUTCOME), ends, strict=True)}
    assert np.linalg.norm(exact(asked, one)) == pytest.approx(np.sqrt(SQUARES[form]), rel=1e-5)
    assert asked.sensitivity == pytest.approx(np.sqrt(SQUARES[form]), rel=1e-15)


@FORMS
def test_sums_of_hospitals_add_up_and_an_empty_hospital_adds_zero(form: str) -> None:
    asked, columns = question(EVALUATIONS[form]), evaluated(form, 3000)
    spacing = asked.grid().spacing
    parts = [asked.total({name: values[i::3] for name, values in columns.items()}, spacing) for i in range(3)]
    assert np.array_equal(sum(parts), asked.total(columns, spacing))
    assert asked.total(evaluated(form, 0), spacing).tolist() == [0] * asked.cells


@pytest.mark.quick("bins", "classes", "classes-apart", "number", "number-apart", "number-centred", "threshold")
@FORMS
def test_nobody_at_all_still_has_an_answer(form: str) -> None:
    """Whatever the noise: nothing is divided by zero, and no answer is refused after it was paid for."""
    asked = question(EVALUATIONS[form])
    source = np.random.default_rng(1)
    for level in (0.0, -50.0, 1e-9, 1.5, 8.0):
        for std in (0.0, 4.0):
            found = asked.answer(NoisedSum(level + std * source.normal(size=asked.cells), std, 3))
            assert found == type(found).model_validate_json(found.model_dump_json())
            assert np.isfinite(column(found, "patients")).all()


@pytest.mark.slow_cases("apart", "classes-apart", "tree")
@FORMS
def test_equal_sums_have_equal_answers_and_everybody_is_in_a_group(form: str) -> None:
    asked, columns = question(EVALUATIONS[form]), evaluated(form, 200)
    found = answer_without_noise(asked, columns)
    assert found == answer_without_noise(asked, columns)
    everybody, *groups, left_out = column(found, "patients", "raw").tolist()
    assert everybody + left_out == pytest.approx(200)
    partitions = 2 if asked.apart else 1 if asked.groups else 0  # type: ignore[union-attr]
    assert sum(groups) == pytest.approx(200 * partitions)


def counted(form: str, predicted: list[float], outcome: list[float]) -> list[float]:
    """The sum without groups, on the scale of patients."""
    asked = question(EVALUATIONS[form], groups=[], apart=False)
    return exact(asked, {PREDICTION: np.array(predicted), OUTCOME: np.array(outcome)}).tolist()


def test_what_cannot_be_used_is_counted_apart_and_raises_nothing() -> None:
    """A refusal that depended on a value would tell of it. Cells: no, yes below and above the threshold; unusable."""
    assert counted("threshold", [np.nan, 0.5, 0.5, 0.5], [1, np.nan, 2, 0.5]) == [0, 0, 0, 0, 4]
    assert counted("threshold", [-3, np.inf, -np.inf, 0.4, 0.39999], [0, 0, 1, 1, 1]) == [1, 1, 2, 1, 0]
    assert counted("classes", [0, 3, -1, 1.5, np.nan, 2], [0, 0, 0, 0, 1, np.inf]) == [1, *[0] * 8, 5]
    odd = counted("number", [np.nan, 1.0, 1.0, np.inf, -1e308], [1.0, np.nan, np.inf, 1.0, 1e308])
    assert odd == pytest.approx([2, 1, 1, 0, 2, 3], abs=1e-4)


def test_a_question_asks_of_the_released_model_and_only_who_is_set_aside_bears_it() -> None:
    asked = question(EVALUATIONS["tree"], where=[{"column": "ward", "categories": ["1"]}])
    assert asked.model_number == 7
    assert question({"kind": "count"}).model_number is None
    assert asked.bears == "evaluated"
    assert asked.columns == ("ward", "sex", "age")
    with pytest.raises(UnreadableColumn, match="no column 'ward'"):
        asked.total(evaluated("tree", 5), 1.0)
    with pytest.raises(UnreadableColumn, match="predictions"):
        question(EVALUATIONS["threshold"]).total({"age": np.zeros(3)}, 1.0)


def test_who_is_asked_about_is_who_meets_every_condition() -> None:
    columns = evaluated("tree", 2000)
    asked = question(EVALUATIONS["bins"], where=[{"column": "age", "low": 40, "high": 80}])
    met = (columns["age"] >= 40) & (columns["age"] < 80)
    kept = {name: values[met] for name, values in columns.items()}
    spacing = asked.grid().spacing
    assert np.array_equal(asked.total(columns, spacing), question(EVALUATIONS["bins"]).total(kept, spacing))


HOSTILE: list[tuple[str, str, dict[str, Any]]] = [
    ("threshold", "at most 256", {"groups": [SEX, {"column": "age", "edges": list(range(70))}]}),
    ("threshold", "has bins or edges", {"bins": 4}),
    ("threshold", "all above 0 and below 1", {"edges": [0.0, 0.5]}),
    ("threshold", "all above 0 and below 1", {"edges": [0.5, 1.0]}),
    ("threshold", "rise from one", {"edges": [0.5, 0.5]}),
    ("threshold", "finite number", {"edges": [float("nan")]}),
    ("threshold", "at least 1 item", {"edges": []}),
    ("bins", "greater than or equal to 2", {"bins": 1}),
    ("bins", "less than or equal to 256", {"bins": 257}),
    ("bins", "valid integer", {"bins": True}),
    ("bins", "sex: stands twice", {"groups": [SEX, SEX]}),
    ("bins", "classes: is not for", {"classes": 3}),
    ("bins", "greater than or equal to 0", {"model": -1}),
    ("bins", "valid integer", {"model": "1"}),
    ("bins", "control character", {"groups": [SEX | {"column": PREDICTION}]}),
    ("tree", "cells, and at most", {"bins": 256, "groups": [{"column": c, "edges": [*range(20)]} for c in "ab"]}),
    ("classes", "classes: is needed", {"classes": None}),
    ("classes", "edges: is not for", {"edges": [0.5]}),
    ("classes", "less than or equal to 64", {"classes": 65}),
    ("number", "largest_error: is needed", {"largest_error": None}),
    ("number", "low: is below high", {"low": 6.0}),
    ("number", "valid boolean", {"centred": 1}),
    ("bins", "centred: is not for predictions of the form binary", {"centred": True}),
    ("number", "within ±1e\\+100", {"high": 1e300}),
    ("number", "at least 1e-100 wide", {"largest_error": 1e-200}),
    ("number", "greater than 0", {"largest_error": 0.0}),
]


@pytest.mark.parametrize(("form", "words", "entries"), HOSTILE, ids=[f"{f} {i}" for i, (f, _, _) in enumerate(HOSTILE)])
def test_what_is_no_sound_question_is_refused_in_words(form: str, words: str, entries: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=words):
        question(EVALUATIONS[form], **entries)


ROWS = "Of a patient with several rows, the first counts."


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (
            "threshold",
            "how many patients there are by outcome (yes, no) and predicted probability (bins that end at 0.4)",
        ),
        (
            "apart",
            "how many patients there are by outcome (yes, no) and predicted probability (20 equal bins), by sex (f, m, "
            "other, missing) and age (below 40, 40 to 60, 60 to 80, 80 and above, missing), each by itself",
        ),
        (
            "classes",
            "how many patients there are by outcome and prediction (3 classes each), by sex (f, m, other, missing)",
        ),
        (
            "number",
            "mean and spread of the outcome (clipped to -4 to 6) and of the error of its prediction (clipped to 3 in "
            "size)",
        ),
    ],
    ids=["threshold", "apart", "classes", "number"],
)
def test_an_officer_reads_which_model_is_evaluated_and_how(form: str, words: str) -> None:
    assert question(EVALUATIONS[form]).in_words() == f"How good model 7 of this study is: {words}, of patients. {ROWS}"


def test_small_groups_are_suppressed() -> None:
    """Of ten patients in each age group and bin, figures on fewer than the limit leave with their counts."""
    asked = question(EVALUATIONS["bins"], groups=[AGES])
    answer = answer_without_noise(asked, evaluated("bins", 300)).suppressed(10)
    for table in answer.tables:
        place = table.columns.index(table.counts or "")
        assert all(float(row[place] or 0) >= 10 for row in table.rows)
        assert table.rows
