"""A number as the target: its public range, both losses, metrics in its own unit, what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import HuberRegressor, LinearRegression
from sklearn.metrics import mean_absolute_error, r2_score
from torch import Tensor

from private_learning.gradients.layers import squared_error
from private_learning.gradients.losses import Huber
from private_learning.records import DataError, Table
from private_learning.tasks import TaskError, load
from private_learning.tasks.registry import EXAMPLES
from tests.factories.made_up import made_up

BASE: dict[str, Any] = {"label": "los", "low": 0.0, "high": 30.0, "column.x": "-1..1"}


def task_of(**parameters: object) -> Any:
    return load("regression", BASE | parameters)


def table(x: list[float], los: list[Any]) -> Table:
    return Table.of({"x": x, "los": los})


def test_targets_are_clipped_and_scaled_and_come_back_in_their_own_unit() -> None:
    task = task_of()
    data = task.dataset(table([0.0, 0.5, 1.0], [-4.0, 15.0, 1e308]))
    assert data.targets.tolist() == [-1.0, 0.0, 1.0]
    assert data.targets.dtype == torch.float32
    assert task.outcomes(data.targets).tolist() == [0.0, 15.0, 30.0]
    assert task.predictions(torch.tensor([[-9.0], [0.0], [0.5]])).tolist() == [[0.0], [15.0], [22.5]]
    assert task.prediction_names(1) == ("prediction_los",)
    use = task.inspect(table([0.0, 0.5, 1.0], [-4.0, 15.0, 1e308]))[0]
    assert (use.name, use.values, use.clipped) == ("los", 3, 2)


def test_the_largest_bounds_do_not_overflow() -> None:
    task = task_of(low=-1.7e308, high=1.7e308)
    data = task.dataset(table([0.0, 0.5], [1.7e308, -1e308]))
    assert torch.isfinite(data.targets).all()


def _fitted(task: Any, data: Any) -> Tensor:
    model = task.model().double()
    # It goes on until no step changes the loss: where it stops sooner, on one processor or another, is chance.
    exactly: dict[str, Any] = {"tolerance_grad": 1e-12, "tolerance_change": 0.0, "line_search_fn": "strong_wolfe"}
    optimiser = torch.optim.LBFGS(model.parameters(), max_iter=300, **exactly)

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = task.loss(model(data.inputs.double()), data.targets).mean()
        value.backward()
        return value

    optimiser.step(closure)
    return model(data.inputs.double()).detach()


def test_without_noise_it_is_least_squares_and_its_metrics_are_those_of_scikit_learn() -> None:
    task = load("regression", {**EXAMPLES["regression"], "loss": "squared", "delta": None})
    records = made_up(task, 200, seed=2)
    data, truth = task.dataset(records), records.numbers("los")
    outputs, inputs = _fitted(task, data), data.inputs.double().numpy()
    other = LinearRegression().fit(inputs, truth)
    expected = np.clip(other.predict(inputs), 0, 30)
    # All in float64 but the 200 targets: each lies in [-1, 1] and is rounded by at most 2⁻²⁵, which is 15 times as many
    # days. Least squares project, so that no prediction moves by more than the length of all roundings.
    rounding = 15 * 2**-25 * math.sqrt(200)
    np.testing.assert_allclose(task.predictions(outputs).squeeze(1), expected, rtol=0, atol=rounding)
    found = task.metrics(outputs, data.targets)
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((expected - truth) ** 2)), rel=1e-4)
    assert found["mae"] == pytest.approx(mean_absolute_error(truth, expected), rel=1e-4)
    assert found["r2"] == pytest.approx(r2_score(truth, expected), rel=1e-4)
    assert set(task.metrics(torch.zeros(2, 1), torch.zeros(2))) == {"rmse", "mae"}


def test_huber_s_loss_is_in_the_label_s_unit_and_less_moved_by_outliers() -> None:
    task = task_of(loss="huber", delta=3.0)
    assert task.loss == Huber(3.0 / 15.0)
    assert task_of().loss is squared_error
    draw = np.random.default_rng(4)
    x = draw.uniform(-1, 1, 300)
    los = 10 + 4 * x + draw.normal(0, 1, 300)
    los[:30] = 30.0
    found = task.outcomes(_fitted(task, task.dataset(table(x.tolist(), los.tolist()))).squeeze(1)).numpy()
    # Huber's at a known scale: scikit-learn estimates it, so its threshold is set to the same number of days.
    other = HuberRegressor(epsilon=1.35, alpha=0, tol=1e-9, max_iter=5000).fit(x[:, None], los)
    same = task_of(loss="huber", delta=1.35 * float(other.scale_))
    found_same = same.outcomes(_fitted(same, same.dataset(table(x.tolist(), los.tolist()))).squeeze(1)).numpy()
    np.testing.assert_allclose(found_same, other.predict(x[:, None]), atol=0.01)
    plain = task_of()
    squared = plain.outcomes(_fitted(plain, plain.dataset(table(x.tolist(), los.tolist()))).squeeze(1)).numpy()
    assert np.abs(found - (10 + 4 * x)).mean() < np.abs(squared - (10 + 4 * x)).mean() / 2


@pytest.mark.parametrize(
    ("los", "words"),
    [
        ([1.0, float("nan")], "column los: 1 of 2 are missing: leave these rows out, the first in row 2"),
        (["1", "long"], "column los: 1 of 2 values are no numbers"),
        ([1.0, float("inf")], "an infinity"),
    ],
    ids=["missing", "text", "infinite"],
)
def test_labels_that_are_none_are_refused(los: list[Any], words: str) -> None:
    with pytest.raises(DataError) as caught:
        task_of().dataset(table([0.0, 0.0], los))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"low": 30.0}, "low must be below high"),
        ({"loss": "huber"}, "belong together"),
        ({"delta": 1.0}, "belong together"),
        ({"loss": "absolute"}, "loss"),
        ({"high": float("inf")}, "high"),
    ],
)
def test_parameters_that_are_none_are_refused(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(TaskError, match=words):
        task_of(**parameters)
