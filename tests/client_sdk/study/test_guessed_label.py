"""The kind of a label, hopeless records in one sentence, and columns that give the label away."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from client_sdk.errors import ConfigurationError
from client_sdk.study.guessed_columns import guess_columns
from client_sdk.study.guessed_label import giveaways, guess_task
from private_learning.records import Table
from private_learning.tasks import load

N = 200
DRAW = np.random.default_rng(6)
MEASURED = DRAW.normal(60, 15, N)


def table(label: Any, **others: Any) -> Table:
    return Table.of({"age": MEASURED[: len(label)], "y": label, **others})


@pytest.mark.parametrize(
    ("label", "task", "parameters"),
    [
        ([0, 1] * 100, "logistic-regression", {"label": "y", "classes": 2}),
        (["no", "yes"] * 100, "logistic-regression", {"label": "y", "label-values": "no|yes"}),
        (["ja", "nein"] * 100, "logistic-regression", {"label": "y", "label-values": "nein|ja"}),
        ([1, 2, 3, 4] * 50, "logistic-regression", {"label": "y", "label-values": "1|2|3|4"}),
        ([True, False] * 100, "logistic-regression", {"label": "y", "label-values": "False|True"}),
        (MEASURED, "regression", {"label": "y", "low": 0.0, "high": 100.0}),
        ([*range(20)] * 10, "regression", {"label": "y", "low": 0.0, "high": 19.0}),
    ],
    ids=["counted", "words", "yes before no", "codes", "truths", "measured", "many numbers"],
)
def test_the_label_says_the_task(label: Any, task: str, parameters: dict[str, Any]) -> None:
    found = guess_task(table(label), ["y"])
    assert (found.name, found.parameters.keys()) == (task, parameters.keys())
    assert {k: v for k, v in found.parameters.items() if k not in ("low", "high")} == {
        k: v for k, v in parameters.items() if k not in ("low", "high")
    }
    load(found.name, {**found.parameters, "column.age": "0..100"}).dataset(table(label).take(found.rows))


def test_a_person_may_say_another_task() -> None:
    assert guess_task(table([1, 2, 3, 4] * 50), ["y"], task="regression").name == "regression"
    with pytest.raises(ConfigurationError, match="choose logistic-regression"):
        guess_task(table([0, 1] * 100), ["y"], task="sequences")


def test_a_time_with_an_event_is_survival() -> None:
    days = DRAW.exponential(200, N).round() + 1
    records = table(days, status=["alive", "dead"] * 100)
    found = guess_task(records, ["y"], event="status")
    assert found.name == "discrete-survival"
    assert found.parameters["event-values"] == "alive|dead"
    load(found.name, {**found.parameters, "column.age": "0..100"}).dataset(records)


def test_several_labels_are_each_yes_or_no() -> None:
    records = table(["no", "yes"] * 100, z=["yes", "no"] * 100)
    found = guess_task(records, ["y", "z"])
    assert (found.name, found.parameters) == ("multi-label", {"labels": "y|z", "label-values": "no|yes"})
    load(found.name, {**found.parameters, "column.age": "0..100"}).dataset(records)


def test_rows_without_a_label_and_rare_classes_are_left_out() -> None:
    label: list[Any] = ["a", "b"] * 97 + ["rarissima"] * 3 + [None] * 3
    found = guess_task(table(label), ["y"])
    assert len(found.rows) == 194
    assert "rarissima" not in str(found.parameters)
    assert "rarissima" not in found.words


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ([0, 1] * 2 + [1], "5 patients are too few"),
        (["yes"] * N, "one value for all patients"),
        ([None] * N, "all are missing"),
        ([f"w{row}" for row in range(N)], "200 different values, another for nearly every patient"),
        ([f"w{row // 3}" for row in range(N)], "67 different values"),
        (list(range(5000, 5000 + N)), "as an identifier has"),
        ([f"w{row % 40}" for row in range(N)], "fewer than two values"),
        ([1.5] * N, "one value"),
    ],
    ids=["five", "one class", "missing", "unique", "many", "identifier", "rare", "constant"],
)
def test_hopeless_labels_are_said_in_one_sentence(label: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        guess_task(table(label), ["y"])


def test_a_misspelt_label_is_asked_for() -> None:
    with pytest.raises(ConfigurationError, match="did you mean y"):
        guess_task(table([0, 1] * 100), ["Y"])
    with pytest.raises(ConfigurationError, match="no column outcome"):
        guess_task(table([0, 1] * 100), ["outcome"])


def test_columns_that_give_the_label_away() -> None:
    ill = DRAW.integers(0, 2, N)
    outcome = np.where(ill == 1, "yes", "no")
    records = table(outcome, code=np.where(ill == 1, "X", "Z"), score=ill * 100 + DRAW.normal(0, 10, N), other=MEASURED)
    task = guess_task(records, ["y"])
    found = giveaways(guess_columns(records, task.targets).lines, records, task)
    assert set(found) == {"code", "score"}
    number = guess_task(table(MEASURED), ["y"])
    twice = table(MEASURED, double=2 * MEASURED + 3, noisy=MEASURED + DRAW.normal(0, 15, N)).without_columns(["age"])
    assert set(giveaways(guess_columns(twice, number.targets).lines, twice, number)) == {"double"}
