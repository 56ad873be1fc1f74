"""What a hospital adds to the evaluation of a model: tables, images, several rows of a patient, nobody."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from client_sdk.errors import ConfigurationError, Refused, TrainingStopped
from client_sdk.guard.split import PatientSplit
from client_sdk.study.delivery import Capabilities
from client_sdk.study.evaluated import EvaluatedPatients, require_form
from client_sdk.study.preparation import able
from private_learning import tasks
from private_learning.records import Examples, Records, Table
from private_learning.tasks import TaskDataset, TaskError
from private_learning.tasks.registry import EXAMPLES
from private_learning.tasks.tables import LogisticRegression
from private_learning.training.weights import weights_of
from study_protocol.cells import column_of
from study_protocol.queries.kinds.evaluation import OUTCOME, PREDICTION, Evaluation
from study_protocol.study.bounds import MAX_WEIGHT
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensors import Array
from tests.factories.hospitals import plain_policy, records
from tests.factories.made_up import made_up
from tests.factories.settings import settings
from tests.factories.trainings import prepared_training

SPLIT = PatientSplit(bytes(range(32)), 0.4)
BINARY = {"prediction": "binary", "noise_multiplier": 6.0}
IMAGES = {"task": "cnn", "task_parameters": {"height": 6, "width": 6, "classes": 3, "filters": 2, "hidden": 4}}


def study(**options: Any) -> StudySettings:
    return settings(statistics={"max_queries": 5, "max_cells": 100}, evaluation={"share": 0.4}, **options)


def taking_part(data: Records, chosen: StudySettings, split: PatientSplit = SPLIT, **policy: Any) -> Capabilities:
    return able(None, data, plain_policy(**policy), chosen, None, "cpu", 60.0, "mercy", "1", split)


def evaluated(data: Records, chosen: StudySettings, **policy: Any) -> EvaluatedPatients:
    found = taking_part(data, chosen, **policy).evaluated
    assert found is not None
    return found


def asked(**entries: Any) -> Evaluation:
    return Evaluation.model_validate({"kind": "evaluation", "model": 1} | BINARY | entries)


def some_weights(chosen: StudySettings) -> dict[str, Array]:
    torch.manual_seed(1)
    model = tasks.load(chosen.training.task, chosen.training.task_parameters).model()
    source = np.random.default_rng(1)
    return {name: source.normal(size=array.shape).astype(np.float32) for name, array in weights_of(model).items()}


def images(count: int = 60) -> Examples:
    source = np.random.default_rng(0)
    inputs, labels = source.uniform(0, 255, (count, 6, 6)), source.integers(0, 3, count)
    return Examples.of(inputs, labels, [f"p{number}" for number in range(count)])


def test_predictions_and_outcomes_are_those_of_the_patients_set_aside_and_of_nobody_else() -> None:
    data, chosen = records(80), study()
    found, weights = evaluated(data, chosen), some_weights(chosen)
    aside = SPLIT.set_aside(data.patients)
    assert found.identifiers == tuple(np.array(data.patients)[aside])
    assert not set(found.identifiers) & set(found.training.dataset.patients)
    columns = found.columns(asked(groups=[{"column": "age", "edges": [50.0]}]), weights)
    # By hand: the logistic function of the one layer, on inputs between -1 and 1.
    age, rate = (2 * data.columns[name][aside] / most - 1 for name, most in (("age", 100.0), ("rate", 10.0)))
    score = weights["weight"][0, 0] * age + weights["weight"][0, 1] * rate + weights["bias"][0]
    assert columns[PREDICTION] == pytest.approx(1 / (1 + np.exp(-score)), abs=1e-6)
    assert columns[OUTCOME].tolist() == data.columns["ill"][aside].tolist()
    assert columns["age"].tolist() == data.columns["age"][aside].tolist()
    # The trained model that is at hand is not disturbed, and only those who are kept are counted.
    keep = np.arange(len(found.identifiers)) % 3 == 0
    assert len(found.columns(asked(), weights, keep)[PREDICTION]) == int(keep.sum())


@pytest.mark.parametrize("width", [5, 13, 100])
def test_what_is_predicted_of_a_patient_does_not_depend_on_how_many_others_there_are(width: int) -> None:
    """To the last bit: on the edge of a bin, the number of patients would decide for everybody at once."""
    names = [f"x{number}" for number in range(width)]
    columns = {f"column.{name}": "0..1" for name in names}
    chosen = study(training={"task": "mlp", "task_parameters": columns | {"label": "ill", "hidden": 7}})
    values = np.random.default_rng(2).uniform(size=width)
    everybody = {name: np.full(60, value) for name, value in zip(names, values, strict=True)}
    data = Table.of(everybody | {"ill": np.arange(60) % 2, "who": [f"p{i}" for i in range(60)]}, patient_column="who")
    found, weights = evaluated(data, chosen), some_weights(chosen)
    scores = set[float]()
    for count in range(1, 18):
        fewer = EvaluatedPatients(found.training, data.take(range(count)))
        scores |= set(fewer.columns(asked(), weights)[PREDICTION].tolist())
    assert len(scores) == 1


def test_probabilities_do_not_depend_on_how_many_others_there_are() -> None:
    """They are computed in fours and eights, and those that are left over by other instructions."""
    chosen = study()
    found, same = evaluated(records(80), chosen), some_weights(chosen)
    differ = 0
    for bias in np.random.default_rng(3).normal(size=400).astype(np.float32):
        weights = {"weight": np.zeros_like(same["weight"]), "bias": np.full_like(same["bias"], bias)}
        differ += len(set(found.columns(asked(), weights)[PREDICTION].tolist())) - 1
    assert differ == 0


def test_images_are_evaluated_although_they_have_no_columns() -> None:
    chosen, data = study(training=IMAGES), images()
    here = taking_part(data, chosen)
    assert here.patients is None
    assert here.evaluated is not None
    question = asked(prediction="classes", classes=3)
    require_form(here.evaluated.training.task, question)
    columns = here.evaluated.columns(question, some_weights(chosen))
    assert set(columns) == {PREDICTION, OUTCOME}
    assert columns[OUTCOME].tolist() == data.labels[SPLIT.set_aside(data.patients)].tolist()
    assert set(columns[PREDICTION]) <= {0.0, 1.0, 2.0}
    assert question.total(columns, 1.0).sum() == len(here.evaluated.identifiers)


@pytest.mark.parametrize(("rule", "expected"), [("first", 0), ("last", -1)])
def test_of_a_patient_with_several_rows_the_rule_says_which_counts(rule: str, expected: int) -> None:
    one = records(40)
    twice = Table.of(
        {name: np.concatenate([column, column[::-1]]) for name, column in one.columns.items()}
        | {"patient": [*one.patients, *one.patients[::-1]]},
        patient_column="patient",
    )
    other = twice.numbers("age")
    other[40:] = 100 - other[40:]
    twice = Table({**twice.columns, "age": column_of(other)}, twice.patients)
    chosen = study(training={"rows_per_patient": 2})
    found, weights = evaluated(twice, chosen), some_weights(chosen)
    assert len(found.identifiers) == int(SPLIT.set_aside(one.patients).sum())
    got = found.columns(asked(rows=rule, groups=[{"column": "age", "edges": [50.0]}]), weights)
    ages = [
        twice.columns["age"][np.flatnonzero(np.array(twice.patients) == who)[expected]] for who in found.identifiers
    ]
    assert got["age"].tolist() == ages
    # Both rows are predicted; the same rule says which of the two counts.
    assert len(got[PREDICTION]) == len(got[OUTCOME]) == len(ages)
    merged = found.columns(asked(rows="mean"), weights)[PREDICTION]
    ends = [found.columns(asked(rows=one), weights)[PREDICTION] for one in ("first", "last")]
    assert merged == pytest.approx((ends[0] + ends[1]) / 2)
    assert found.columns(asked(rows="any"), weights)[PREDICTION] == pytest.approx(np.maximum(*ends))


def test_a_task_that_leaves_rows_out_is_not_evaluated() -> None:
    """Every later patient would be counted with the prediction of another one."""

    class Choosy(LogisticRegression):
        def dataset(self, data: Records) -> TaskDataset:
            return super().dataset(data).without(data.patients[:1])

    chosen = study()
    task = Choosy(chosen.training.task_parameters)
    with pytest.raises(TaskError, match="every row"):
        able(task, records(40), plain_policy(), chosen, None, "cpu", 60.0, "mercy", "1", SPLIT)


def test_who_is_on_the_exclusion_list_is_on_no_side() -> None:
    data, chosen = records(40), study()
    everybody = evaluated(data, chosen)
    gone = everybody.identifiers[0]
    found = evaluated(data, chosen, excluded_patients=[gone])
    assert found.identifiers == everybody.identifiers[1:]


def test_where_nobody_is_set_aside_the_sum_is_of_zeros_and_nobody_learns_it() -> None:
    chosen, data = study(), records(3)
    none = next(
        PatientSplit(bytes([n]) * 32, 0.4)
        for n in range(256)
        if not PatientSplit(bytes([n]) * 32, 0.4).set_aside(data.patients).any()
    )
    found = taking_part(data, chosen, none).evaluated
    assert found is not None
    question = asked(groups=[{"column": "age", "edges": [50.0]}])
    total = question.total(found.columns(question, some_weights(chosen)), 1.0)
    assert total.tolist() == [0] * question.cells


def test_a_score_that_is_no_number_has_a_cell_of_its_own() -> None:
    class Broken(LogisticRegression):
        def predictions(self, outputs: Tensor) -> Tensor:
            return super().predictions(torch.where(outputs > 0, torch.full_like(outputs, torch.nan), outputs))

    chosen, data = study(), records(40)
    whole, weights = evaluated(data, chosen), some_weights(chosen)
    above = int((whole.columns(asked(), weights)[PREDICTION] > 0.5).sum())
    assert 0 < above < len(whole.identifiers)
    task = Broken(chosen.training.task_parameters)
    found = able(task, data, plain_policy(), chosen, None, "cpu", 60.0, "mercy", "1", SPLIT).evaluated
    assert found is not None
    total = asked().total(found.columns(asked(), weights), 1.0)
    assert (total.sum(), total[-1]) == (len(found.identifiers), above)


@pytest.mark.parametrize("weight", [2 * MAX_WEIGHT, -2 * MAX_WEIGHT, np.nan, np.inf])
def test_weights_beyond_the_public_bound_are_refused_whatever_the_records(weight: float) -> None:
    chosen = study()
    weights = {name: np.full_like(array, weight) for name, array in some_weights(chosen).items()}
    with pytest.raises(TrainingStopped, match="out of bounds"):
        evaluated(records(40), chosen).columns(asked(), weights)


NUMBER = {"prediction": "number", "low": 0.0, "high": 1.0, "largest_error": 1.0}


@pytest.mark.parametrize("question", [{"prediction": "classes", "classes": 2}, NUMBER])
def test_a_form_that_the_model_does_not_predict_is_refused_by_settings_alone(question: dict[str, Any]) -> None:
    task = tasks.load("logistic-regression", study().training.task_parameters)
    if question["prediction"] == "classes":
        require_form(task, asked(**question))
        three = tasks.load(IMAGES["task"], IMAGES["task_parameters"])
        with pytest.raises(Refused, match="3 classes"):
            require_form(three, asked(**question))
        return
    with pytest.raises(Refused, match="2 classes"):
        require_form(task, asked(**question))
    chosen = settings(
        statistics={"max_queries": 5, "max_cells": 100},
        evaluation={"share": 0.4, "every": 3, "question": {"noise_multiplier": 6.0, **question}},
    )
    with pytest.raises(ConfigurationError, match=r"evaluation\.question"):
        taking_part(records(40), chosen)


def test_rows_without_a_patient_are_patients_by_their_place(caplog: pytest.LogCaptureFixture) -> None:
    named = records(60)
    unnamed = Table.of(dict(named.columns))
    with caplog.at_level(logging.WARNING):
        found = evaluated(unnamed, study())
    assert "keep the order of the rows" in caplog.text
    # New rows at the end move nobody.
    longer = Table.of({name: np.append(column, column[0]) for name, column in named.columns.items()})
    assert evaluated(longer, study()).identifiers[: len(found.identifiers)] == found.identifiers


def test_training_without_a_split_is_of_everybody() -> None:
    data, chosen = records(40), settings()
    whole = prepared_training(data, plain_policy(), chosen)
    assert whole.dataset.patients == data.patients


NUMBER = {"prediction": "number", "low": 0.0, "high": 30.0, "largest_error": 10.0}


def test_numbers_are_evaluated_in_their_own_unit() -> None:
    parameters = {**EXAMPLES["regression"], "column.age": "18..90"}
    chosen = study(training={"task": "regression", "task_parameters": parameters})
    plain = made_up(tasks.load("regression", parameters), 60)
    assert isinstance(plain, Table)
    data = Table.of(dict(plain.columns) | {"who": [f"p{i}" for i in range(60)]}, patient_column="who")
    found, weights = evaluated(data, chosen), some_weights(chosen)
    aside = SPLIT.set_aside(data.patients)
    columns = found.columns(asked(**NUMBER), weights)
    assert columns[OUTCOME] == pytest.approx(data.columns["los"][aside], abs=1e-5)
    assert ((columns[PREDICTION] >= 0) & (columns[PREDICTION] <= 30)).all()
    assert np.ptp(columns[PREDICTION]) > 1
    require_form(found.training.task, asked(**NUMBER))


@pytest.mark.parametrize("name", ["multi-label", "discrete-survival"])
@pytest.mark.parametrize("form", [BINARY, NUMBER], ids=["binary", "number"])
def test_what_no_question_evaluates_is_refused(name: str, form: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="no question evaluates these yet"):
        require_form(tasks.load(name, EXAMPLES[name]), asked(**form))
