"""The kind `glm`: its steps and their costs, what it refuses to ask and to answer, and how often intervals hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from study_protocol.queries.answer import Answer, NoisedSum
from study_protocol.queries.kinds import QUESTION
from study_protocol.queries.kinds.glm import GeneralisedLinear
from study_protocol.queries.regression.steps import step_noise

DOCUMENT: dict[str, Any] = {
    "kind": "glm",
    "family": "logistic",
    "noise_multiplier": 2.0,
    "outcome": {"column": "y", "categories": ["1.0"]},
    "predictors": [
        {"column": "age", "low": -3.0, "high": 3.0},
        {"column": "weight", "low": -3.0, "high": 3.0},
        {"column": "sex", "categories": ["f"]},
    ],
}
COUNTS = {"family": "poisson", "outcome": {"column": "y", "low": 0.0, "high": 4.0}}
NUMBER = {"family": "linear", "outcome": {"column": "y", "low": -6.0, "high": 6.0}}


def question(**entries: Any) -> GeneralisedLinear:
    return GeneralisedLinear.model_validate(DOCUMENT | entries)


def records(count: int, generator: np.random.Generator) -> dict[str, Any]:
    age, weight = np.clip(generator.standard_normal((2, count)), -3, 3)
    sex = generator.choice(["f", "m"], count)
    linear = -0.5 + 0.5 * age - 0.3 * weight + 0.4 * (sex == "f")
    drawn = (generator.random(count) < 1 / (1 + np.exp(-linear))).astype(float)
    return {"age": age, "weight": weight, "sex": sex, "y": drawn}


def asked(first: GeneralisedLinear, patients: dict[str, Any], generator: np.random.Generator) -> Answer:
    """Return the last answer, under noise."""
    step: GeneralisedLinear | None = first
    answer = None
    while step is not None:
        grid = step.grid()
        total, std = step.total(patients, grid.spacing) * grid.spacing, grid.std * grid.spacing
        answer = step.answer(NoisedSum(total + generator.normal(0, std, len(total)), std, 0))
        step = step.next_question(answer)
    assert answer is not None
    return answer


def coefficients(answer: Answer, name: str) -> list[Any]:
    table = answer.tables[0]
    return [row[table.columns.index(name)] for row in table.rows]


@pytest.mark.parametrize("entries", [{}, COUNTS, NUMBER, {"steps": 1}])
def test_a_person_writes_the_noise_of_the_whole_analysis(entries: dict[str, Any]) -> None:
    first = question(**entries)
    assert first.total_noise_multiplier == 2.0
    costs = first.costs_after()
    assert len(costs) == first.sums - 1 == first.steps - 1
    noises = [first.noise_multiplier, *(cost.noise_multiplier for cost in costs)]
    assert sum(noise**-2 for noise in noises) == pytest.approx(0.25, rel=1e-6)
    assert min(noises) == pytest.approx(first.least_noise, rel=1e-6)
    assert QUESTION.validate_json(first.model_dump_json()) == first


def test_costs_after_are_those_of_the_questions_that_follow() -> None:
    first = question(by_hospital=True).of_hospitals(("b", "a"))
    step, costs = first, []
    while True:
        answer = step.answer(NoisedSum(np.zeros(step.cells), 1e-3, 0))
        following = step.next_question(answer)
        if following is None:
            break
        step = following
        grid = step.grid()
        costs.append((grid.std, grid.sensitivity, step.cells))
        assert step.approved_form() == first
        assert QUESTION.validate_json(step.model_dump_json()) == step
    assert costs == [(cost.noise_std, cost.sensitivity, cost.cells) for cost in first.costs_after()]


def test_slopes_have_one_place_for_all_hospitals() -> None:
    pooled, apart = question(), question(by_hospital=True).of_hospitals(tuple("abcd"))
    slopes = 3
    # For each further hospital its gradient, its information, and that with every slope.
    assert apart.cells - pooled.cells == 3 * (slopes + 2)
    assert apart.grid() == pooled.grid()
    patients = records(50, np.random.default_rng(0))
    placed = apart.placed(apart.at_hospital("c").total(patients, pooled.grid().spacing), "c")
    assert placed.shape == (apart.cells,)
    assert sorted(placed[placed != 0].tolist()) == sorted(pooled.total(patients, pooled.grid().spacing).tolist())


def test_a_question_whose_next_step_could_not_be_written_is_refused() -> None:
    """Else its first step would be charged and lead nowhere."""
    categories = [f"c{place}" for place in range(64)]
    factors = [{"column": f"f{place}", "categories": categories, "reference": "c0"} for place in range(5)]
    with pytest.raises(ValidationError, match="315 columns"):
        question(predictors=factors)
    widest = question(predictors=[*factors[:4], *[{"column": f"x{place}", "low": 0, "high": 1} for place in range(3)]])
    answer = widest.answer(NoisedSum(np.zeros(widest.cells), 1.0, 0))
    assert widest.next_question(answer) is not None


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"outcome": {"column": "y", "low": 0.0, "high": 1.0}}, "of family logistic it has categories"),
        (COUNTS | {"outcome": {"column": "y", "low": 1.0, "high": 4.0}}, "low is 0, and high a whole number"),
        (COUNTS | {"outcome": {"column": "y", "low": 0.0, "high": 2.5}}, "low is 0, and high a whole number"),
        ({"interactions": [["age", "height"]]}, "not two of the predictors"),
        ({"interactions": [["age", "sex"], ["sex", "age"]]}, "a pair stands twice"),
        ({"outcome": {"column": "sex", "categories": ["f"]}}, "column sex: stands twice"),
        ({"weights": {"column": "w", "low": 0.0, "high": 2.0}}, "weights: low is above 0"),
        ({"offset": {"column": "t", "low": 0.0, "high": 2.0}, "offset_is": "exposure"}, "exposure is above 0"),
        (NUMBER | {"offset": {"column": "t", "low": 0.0, "high": 2.0}}, "subtract it from the outcome"),
        ({"step": 5}, "step: is 1 to steps"),
        (NUMBER | {"steps": 3}, "2 steps at most"),
        ({"at": [0.0] * 4}, "step 1 has none"),
        (
            {"step": 2, "total_noise_multiplier": 2.0, "noise_multiplier": step_noise("logistic", 2.0, 2, 4)},
            "later steps have 4 coefficients",
        ),
        ({"total_noise_multiplier": 3.0}, "noise_multiplier: is that of the step"),
        ({"hospitals": ["a"]}, "with by_hospital alone"),
        ({"family": "gamma"}, "family"),
    ],
)
def test_a_question_that_has_no_meaning_is_refused_in_words(entries: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        question(**entries)


def test_patients_with_every_value_are_counted() -> None:
    generator = np.random.default_rng(3)
    patients = records(4000, generator)
    patients["age"][:1000] = np.nan
    answer = asked(question(noise_multiplier=1.0), patients, generator)
    (row,) = answer.tables[-1].rows
    low, high = (row[answer.tables[-1].columns.index(name)] for name in ("low", "high"))
    assert isinstance(low, float)
    assert isinstance(high, float)
    assert low < 3000 < high


def test_ratios_are_exponentials_of_coefficients() -> None:
    generator = np.random.default_rng(4)
    answer = asked(question(noise_multiplier=1.0), records(5000, generator), generator)
    ratios = {row[0]: row[1:] for row in answer.tables[1].rows}
    for row in answer.tables[0].rows:
        _, estimate, _, _, low, high, _, p_value = row
        assert ratios[row[0]] == pytest.approx([np.exp(float(value or 0)) for value in (estimate, low, high)])
        assert isinstance(p_value, float)
        assert 0 <= p_value <= 1
        # An interval at 95 % is without 0 exactly where p is below 5 %.
        assert (p_value < 0.05) == (float(low or 0) > 0 or float(high or 0) < 0)


def _collinear(patients: dict[str, Any]) -> dict[str, Any]:
    return patients | {"weight": patients["age"]}


def _constant(patients: dict[str, Any]) -> dict[str, Any]:
    return patients | {"y": np.zeros(len(patients["y"]))}


def _separated(patients: dict[str, Any]) -> dict[str, Any]:
    return patients | {"y": (patients["age"] > 0).astype(float)}


def _few(patients: dict[str, Any]) -> dict[str, Any]:
    return {name: values[:40] for name, values in patients.items()}


@pytest.mark.parametrize("spoiled", [_collinear, _constant, _separated, _few])
@pytest.mark.parametrize("seed", range(5))
def test_where_coverage_cannot_be_kept_there_are_words_and_no_numbers(spoiled: Any, seed: int) -> None:
    generator = np.random.default_rng(seed)
    answer = asked(question(noise_multiplier=1.0), spoiled(records(3000, generator)), generator)
    assert coefficients(answer, "estimate") == coefficients(answer, "low") == [None] * 4
    assert answer.notes[0].startswith("No estimates")
    assert "What helps" in answer.notes[1]
    if spoiled is _collinear:
        assert "age" in answer.notes[0]
        assert "weight" in answer.notes[0]


@pytest.mark.parametrize(("high", "seed"), [(4.0, 0), (4.0, 1), (6.0, 2)])
def test_clipped_counts_that_vary_more_than_poisson_have_words_and_no_numbers(high: float, seed: int) -> None:
    """Twice the variance of Poisson's law. Under the law itself the same question has numbers, but for 1 in 370."""
    generator = np.random.default_rng(seed)
    first = question(family="poisson", outcome={"column": "y", "low": 0.0, "high": high}, noise_multiplier=1.0)
    patients = records(10_000, generator)
    rate = np.exp(0.5 * patients["age"] - 0.3 * patients["weight"])
    poisson = asked(first, patients | {"y": generator.poisson(rate).astype(float)}, generator)
    assert None not in coefficients(poisson, "low")
    varied = asked(first, patients | {"y": generator.poisson(generator.gamma(rate)).astype(float)}, generator)
    assert coefficients(varied, "low") == [None] * 4
    assert "at the range's high" in varied.notes[0]
    assert "a higher high" in varied.notes[0]


def test_sums_that_a_hospital_falsified_still_have_an_answer() -> None:
    for scale in (0.0, -1e12, 1e18):
        for entries in ({}, COUNTS, NUMBER):
            step: GeneralisedLinear | None = question(**entries)
            while step is not None:
                answer = step.answer(NoisedSum(np.full(step.cells, scale), 5.0, 0))
                step = step.next_question(answer)


@pytest.mark.slow
@pytest.mark.parametrize("entries", [{}, COUNTS, NUMBER])
def test_intervals_cover(entries: dict[str, Any]) -> None:
    """400 cohorts of 4,000 patients at ε = 2, δ = 10⁻⁵ (noise multiplier 2.05): between 91.5 % and 98.5 %.

    The mean of 4 coefficients deviates by at most 1.1 % even if they were covered or missed together. So a true
    coverage of 95 % fails once in 700 seeds at most.
    """
    generator, covered = np.random.default_rng(11), []
    first = question(noise_multiplier=2.05, **entries)
    truth = np.array([0.5, -0.3, 0.4, -0.5])
    for _ in range(400):
        patients = records(4000, generator)
        linear = 0.5 * patients["age"] - 0.3 * patients["weight"] + 0.4 * (patients["sex"] == "f") - 0.5
        if first.family == "poisson":
            patients["y"] = generator.poisson(np.exp(linear)).astype(float)
        if first.family == "linear":
            patients["y"] = linear + generator.standard_normal(4000)
        answer = asked(first, patients, generator)
        low, high = (np.array(coefficients(answer, end), float) for end in ("low", "high"))
        covered.append(((low <= truth) & (truth <= high)).mean())
    assert 0.915 < float(np.mean(covered)) < 0.985
