"""Ready questions from declared columns."""

from __future__ import annotations

import pytest

from study_protocol.queries.kinds.glm import GeneralisedLinear
from study_protocol.queries.kinds.moments import Moments
from study_protocol.queries.kinds.survival import Survival
from study_protocol.queries.ready import READY, READY_OF_MODEL, binned
from study_protocol.queries.regression.design import Factor
from study_protocol.queries.variables import Indicator, Range, Variable
from tests.factories.questions import answer_without_noise, column, patients, question

DECLARED = (
    Range(column="age", low=18, high=90),
    Range(column="pressure", low=50, high=250, missing_values=("0",)),
    Variable(column="sex", categories=("f", "m")),
)


@pytest.mark.parametrize(
    ("low", "high", "edges"),
    [
        (18, 90, (20, 30, 40, 50, 60, 70, 80)),
        (0, 1, (0.2, 0.4, 0.6, 0.8)),
        (-0.3, 0.3, (-0.2, -0.1, 0, 0.1, 0.2)),
        (100, 400, (150, 200, 250, 300, 350)),
        (0, 1e-9, (2e-10, 4e-10, 6e-10, 8e-10)),
    ],
)
def test_bins_are_round_and_public(low: float, high: float, edges: tuple[float, ...]) -> None:
    assert binned(Range(column="x", low=low, high=high)).edges == edges


def test_table_one_counts_everybody_in_every_column() -> None:
    asked = READY["table-one"](DECLARED, 4.0)
    found = answer_without_noise(asked, patients(500))
    assert column(found, "patients").tolist() == pytest.approx([500])
    assert column(found, "shares").sum() == pytest.approx(3)


def test_missingness_counts_who_has_a_value() -> None:
    columns = patients(500)
    asked = READY["missingness"](DECLARED, 4.0)
    found = column(answer_without_noise(asked, columns), "tables")
    age, pressure = (int((columns[name] == columns[name]).sum()) for name in ("age", "pressure"))
    sex = sum(one is not None for one in columns["sex"])
    assert found == pytest.approx([age, 500 - age, pressure, 500 - pressure, sex, 500 - sex])


def test_typical_asks_for_moments_of_numbers_and_shares_of_few_categories() -> None:
    ward = Variable(column="ward", categories=("a", "b", "c"), missing_values=("9",))
    many = Variable(column="code", categories=tuple("abcde"))
    asked = READY["typical"]((*DECLARED, ward, many), 4.0)
    assert isinstance(asked, Moments)
    assert asked.numbers[:2] == DECLARED[:2]
    shares = [number for number in asked.numbers if isinstance(number, Indicator)]
    assert [(share.column, share.categories) for share in shares] == [
        *(("sex", ("f",)), ("ward", ("a",)), ("ward", ("b",))),
    ]
    assert shares[1].missing_values == ("9",)
    with pytest.raises(ValueError, match="numbers"):
        READY["typical"]((many,), 4.0)


DAYS = Range(column="age", low=0, high=120, missing_values=("-1",))
DIED = Variable(column="sex", categories=("f",), missing_values=("u",))


def test_survival_takes_a_time_an_event_and_groups() -> None:
    asked = READY["survival"]((DAYS, DIED, Range(column="pressure", low=50, high=250)), 4.0)
    assert isinstance(asked, Survival)
    assert asked.time.edges == tuple(range(0, 121, 5))
    assert asked.time.missing_values == ("-1",)
    assert asked.event.missing_values == ("u",)
    assert asked.by is not None
    assert asked.by.edges == (100, 150, 200)
    names = [table.name for table in answer_without_noise(asked, patients(500)).tables]
    assert {"survival", "median", "log-rank"} <= set(names)
    edged = READY["survival"]((Variable(column="age", edges=(0, 50, 90)), DIED), 4.0)
    assert isinstance(edged, Survival)
    assert edged.time.edges == (0, 50, 90)
    assert edged.by is None


@pytest.mark.parametrize("columns", [(), (DAYS,), (DIED, DAYS), (DAYS, DAYS), (DIED, DIED), (DAYS, DIED, DIED, DIED)])
def test_survival_says_which_columns_it_takes(columns: tuple[Range | Variable, ...]) -> None:
    with pytest.raises(ValueError, match=r"then an event|at least two edges"):
        READY["survival"](columns, 4.0)


WARD = Variable(column="ward", categories=("a", "b", "c"), missing_values=("9",))


def test_a_regression_takes_its_outcome_and_then_its_predictors() -> None:
    asked = READY["regression"]((Variable(column="ill", categories=("no", "yes")), DAYS, WARD, DIED), 4.0)
    assert isinstance(asked, GeneralisedLinear)
    assert (asked.family, asked.outcome.column, asked.columns) == ("logistic", "ill", ("age", "ward", "sex", "ill"))
    assert isinstance(asked.outcome, Indicator)
    assert asked.outcome.categories == ("yes",)
    age, ward, sex = asked.predictors
    assert age == DAYS
    assert ward == Factor(column="ward", categories=("a", "b", "c"), reference="a", missing_values=("9",))
    assert sex == Indicator(column="sex", categories=("f",), missing_values=("u",))
    # The noise that a person states is that of all steps: they cost as much as one question with it.
    assert asked.total_noise_multiplier == 4.0
    linear = READY["regression"]((DAYS, DIED), 4.0)
    assert isinstance(linear, GeneralisedLinear)
    assert (linear.family, linear.outcome) == ("linear", DAYS)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ((), "the outcome, then at least one predictor"),
        ((DIED,), "the outcome, then at least one predictor"),
        ((WARD, DAYS), "column ward: an outcome has a range, or one or two categories"),
        ((DIED, Variable(column="age", edges=(0, 50, 90))), "column age: a predictor has a range or categories"),
    ],
)
def test_a_regression_says_which_columns_it_takes(columns: tuple[Range | Variable, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        READY["regression"](columns, 4.0)


def test_evaluation_is_of_one_model_for_all_and_by_every_column() -> None:
    asked = READY_OF_MODEL["evaluation"](DECLARED, 4.0, 12)
    assert asked.model_number == 12
    assert asked.columns == ("age", "pressure", "sex")
    assert asked.sensitivity == pytest.approx(3**0.5)
    alone = READY_OF_MODEL["evaluation"]((), 4.0, 12)
    assert (alone.columns, alone.cells, alone.sensitivity) == ((), 5, 1.0)
    assert question(alone.model_dump(mode="json")) == alone
