"""Survival: likelihoods by hand and by scikit-learn's models on expanded records, cuts, censoring, what is refused."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from sklearn.linear_model import LogisticRegression, PoissonRegressor
from torch import Tensor, nn

from private_learning.gradients import PerRecordGradients
from private_learning.gradients.inspection import trainable
from private_learning.records import DataError, Table
from private_learning.tasks import TaskError, load
from private_learning.tasks.parts import of_part

CUTS = (30.0, 90.0, 200.0)
BASE: Mapping[str, Any] = {
    "time": "days",
    "event": "died",
    "cuts": "30|90|200",
    "column.x": "-3..3",
    "column.y": "-3..3",
}
NAMES = ["discrete-survival", "piecewise-exponential"]


def made_up(count: int = 400) -> Table:
    """Exponential times with a known hazard, censored by others; some beyond the last cut."""
    draw = np.random.default_rng(11)
    x, y = draw.uniform(-3, 3, count), draw.uniform(-3, 3, count)
    dies = draw.exponential(150 * np.exp(-0.4 * x + 0.2 * y))
    censored = draw.uniform(0, 400, count)
    return Table.of({"x": x, "y": y, "days": np.minimum(dies, censored), "died": (dies <= censored).astype(int)})


def task_of(name: str, **parameters: object) -> Any:
    return load(name, {**BASE, **parameters})


def targets_of(task: Any, days: list[float], died: list[int]) -> Tensor:
    count = len(days)
    return task.dataset(Table.of({"x": [0.0] * count, "y": [0.0] * count, "days": days, "died": died})).targets


def fitted(task: Any, table: Table) -> tuple[nn.Module, Any]:
    """Without noise, to the optimum, in float64."""
    data = task.dataset(table)
    model = task.model().double()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.LBFGS(parameters, max_iter=500, line_search_fn="strong_wolfe", tolerance_grad=1e-12)

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = task.loss(model(data.inputs.double()), data.targets).mean()
        value.backward()
        return value

    optimiser.step(closure)
    return model, data


def expanded(data: Any) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """One row for each patient and interval: (intervals and inputs, event in it, time in it, whether it is whole)."""
    rows, events, times, whole = [], [], [], []
    ends = [0.0, *(cut / CUTS[-1] for cut in CUTS)]
    for x, (time, event) in zip(data.inputs.double().tolist(), data.targets.double().tolist(), strict=True):
        for place, (a, b) in enumerate(pairwise(ends)):
            if time <= a:
                break
            here = event == 1 and time <= b + 1e-9
            rows.append([float(k == place) for k in range(len(CUTS))] + x)
            events.append(float(here))
            times.append(min(time, b) - a)
            whole.append(float(here or time >= b - 1e-9))
    return np.array(rows), np.array(events), np.array(times), np.array(whole)


def test_discrete_time_is_logistic_regression_on_one_row_for_each_interval_at_risk() -> None:
    model, data = fitted(task_of("discrete-survival"), made_up())
    rows, events, _, whole = expanded(data)
    known = whole == 1
    other = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-10, max_iter=2000)
    other.fit(rows[known], events[known])
    found = torch.cat([model[1].bias, model[0].weight[0]]).detach().numpy()  # pyright: ignore
    np.testing.assert_allclose(found, other.coef_[0], atol=2e-4)


def test_piecewise_exponential_is_poisson_regression_with_the_exposure_as_offset() -> None:
    model, data = fitted(task_of("piecewise-exponential"), made_up())
    rows, events, times, _ = expanded(data)
    # A Poisson count with an offset has the same likelihood as its rate, weighed by the exposure.
    other = PoissonRegressor(alpha=0, fit_intercept=False, tol=1e-10, max_iter=5000)
    other.fit(rows, events / times, sample_weight=times)
    found = torch.cat([model[1].bias, model[0].weight[0]]).detach().numpy()  # pyright: ignore
    np.testing.assert_allclose(found, other.coef_, atol=2e-3)


def test_one_interval_without_inputs_gives_events_over_time_at_risk() -> None:
    task = load("piecewise-exponential", {**BASE, "cuts": "200"})
    targets = targets_of(task, [50.0, 100.0, 300.0], [1, 0, 1])
    # 1 event in (50 + 100 + 200) days at risk, in horizons of 200 days.
    score = torch.tensor([[math.log(1 / (350 / 200))]], dtype=torch.float64).repeat(3, 1)
    signal = task.loss.signal(score, targets)
    assert float(signal.sum()) == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize(
    ("day", "died", "expected"),
    [
        # Chances of the event of 1/2 in every interval: ln 2 for each that counts.
        (10.0, 1, 1),
        (30.0, 1, 1),
        (30.5, 1, 2),
        (90.0, 1, 2),
        (200.0, 1, 3),
        (200.5, 1, 3),
        (0.0, 1, 1),
        (0.0, 0, 0),
        (29.0, 0, 0),
        (30.0, 0, 1),
        (89.0, 0, 1),
        (200.0, 0, 3),
        (1e300, 0, 3),
    ],
)
def test_intervals_at_risk(day: float, died: int, expected: int) -> None:
    task = task_of("discrete-survival")
    found = task.loss(torch.zeros(1, 3), targets_of(task, [day], [died]))
    assert float(found) == pytest.approx(expected * math.log(2))


@pytest.mark.parametrize(
    ("day", "died", "exposure", "place"),
    [
        (30.0, 1, (30, 0, 0), 0),
        (60.0, 1, (30, 30, 0), 1),
        (60.0, 0, (30, 30, 0), None),
        (250.0, 1, (30, 60, 110), None),
        (0.0, 1, (0, 0, 0), 0),
    ],
)
def test_exposures(day: float, died: int, exposure: tuple[float, ...], place: int | None) -> None:
    task = task_of("piecewise-exponential")
    scores = torch.tensor([[0.3, -1.0, 0.7]], dtype=torch.float64)
    found = float(task.loss(scores, targets_of(task, [day], [died])))
    mass = sum(e / 200 * math.exp(z) for e, z in zip(exposure, scores[0].tolist(), strict=True))
    assert found == pytest.approx(mass - (0 if place is None else scores[0, place].item()), rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [{}, {"proportional": False}, {"layers": 1, "hidden": 4}], ids=str)
def test_a_patients_gradient_is_the_one_of_its_own_likelihood(name: str, shape: dict[str, Any]) -> None:
    task, table = task_of(name, **shape), made_up(12)
    data = task.dataset(table)
    torch.manual_seed(3)
    model = task.model().double()
    parameters = [p for p in model.parameters() if p.requires_grad]
    with torch.no_grad():
        for p in parameters:
            p.add_(torch.randn_like(p) / 2)
    engine = PerRecordGradients(model, task.loss)
    norms = engine.norms(data.inputs.double(), data.targets)
    assert engine.method == "layerwise"
    for row, norm in enumerate(norms.tolist()):
        total = task.loss(model(data.inputs[row : row + 1].double()), data.targets[row : row + 1]).sum()
        true = torch.autograd.grad(total, parameters)
        assert norm == pytest.approx(math.sqrt(sum(float(g.square().sum()) for g in true)), rel=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_a_new_model_lets_half_of_the_patients_live(name: str) -> None:
    for shape in ({}, {"proportional": False}):
        task = task_of(name, **shape)
        found = task.predictions(task.model()(torch.zeros(2, 2)))
        assert found.shape == (2, 3)
        assert found[:, -1].tolist() == pytest.approx([0.5, 0.5])
        assert (found.diff(dim=1) < 0).all()
        assert task.prediction_names(3) == ("survival_30", "survival_90", "survival_200")


def test_predictions_of_both_tasks_are_products_over_the_intervals() -> None:
    scores = torch.tensor([[0.1, -0.4, 1.0]], dtype=torch.float64)
    hazards = [1 / (1 + math.exp(-z)) for z in scores[0].tolist()]
    free = np.cumprod([1 - h for h in hazards])
    np.testing.assert_allclose(task_of("discrete-survival").predictions(scores)[0], free)
    mass = np.cumsum([math.exp(z) * d / 200 for z, d in zip(scores[0].tolist(), (30, 60, 110), strict=True)])
    np.testing.assert_allclose(task_of("piecewise-exponential").predictions(scores)[0], np.exp(-mass))


@pytest.mark.parametrize("name", NAMES)
def test_metrics_are_finite_and_name_what_the_records_can_say(name: str) -> None:
    task = task_of(name)
    data = task.dataset(made_up())
    model, _ = fitted(task, made_up())
    found = task.metrics(model(data.inputs.double()).detach(), data.targets)
    assert set(found) == {"log_likelihood", "concordance", "brier"}
    assert found["concordance"] > 0.6
    nobody = targets_of(task, [300.0, 300.0], [0, 0])
    assert set(task.metrics(torch.zeros(2, 3), nobody)) == {"log_likelihood", "brier"}


def test_what_the_records_hold_is_counted() -> None:
    task = task_of("discrete-survival")
    found = task.target_counts(targets_of(task, [10.0, 20.0, 300.0, 200.0], [1, 0, 1, 0]))
    assert found == {"event": 1, "censored before the last cut": 1, "no event until the last cut": 2}
    table = Table.of({"x": [0.0] * 2, "y": [0.0] * 2, "days": [10.0, 300.0], "died": [1, 1]})
    assert next((use.name, use.clipped) for use in task.inspect(table)) == ("days", 1)


@pytest.mark.parametrize(
    ("days", "died", "words"),
    [
        ([1.0, -2.0], [0, 1], "time column days: 1 times are below 0, the first in row 2"),
        ([1.0, float("nan")], [0, 1], "column days: 1 of 2 are missing"),
        ([1.0, float("inf")], [0, 1], "an infinity"),
        (["1", "soon"], [0, 1], "column days: 1 of 2 values are no numbers"),
        (
            [1.0, 2.0],
            [0, 2],
            "event column died: 1 of 2 values are none of the study's event-values 0|1, the first",
        ),
        ([1.0, 2.0], [None, 1], "event column died: 1 of 2"),
    ],
    ids=["below 0", "no time", "infinite", "text", "no event", "no event value"],
)
def test_times_and_events_that_are_none_are_refused(days: list[Any], died: list[Any], words: str) -> None:
    table = Table.of({"x": [0.0, 0.0], "y": [0.0, 0.0], "days": days, "died": died})
    with pytest.raises(DataError) as caught:
        task_of("piecewise-exponential").dataset(table)
    assert words in str(caught.value)


def test_events_may_be_words() -> None:
    task = task_of("discrete-survival", **{"event-values": "alive|dead"})
    table = Table.of({"x": [0.0, 0.0], "y": [0.0, 0.0], "days": [1, 2], "died": ["dead", "alive"]})
    assert task.dataset(table).targets[:, 1].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"cuts": "90|30"}, "rising"),
        ({"cuts": "0|30"}, "rising"),
        ({"cuts": "soon"}, "rising"),
        ({"cuts": "30|inf"}, "rising"),
        ({"event-values": "1"}, "event-values"),
        ({"event": "days"}, "different columns"),
    ],
)
def test_parameters_that_are_none_are_refused(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(TaskError, match=words):
        task_of("discrete-survival", **parameters)


def test_cox_is_refused_with_the_reason() -> None:
    with pytest.raises(TaskError, match=r"partial likelihood.*piecewise-exponential"):
        load("cox", dict(BASE))


@pytest.mark.parametrize("wanted", ["head", "lora:1", ("*.bias",)], ids=["head", "lora", "pattern"])
def test_the_ones_before_the_constants_are_never_trained(wanted: Any, tmp_path: Path) -> None:
    task = task_of("piecewise-exponential", layers=1, hidden=4)
    tensors = {name: p.detach() for name, p in task.model().named_parameters() if p.requires_grad}
    path = tmp_path / "public.safetensors"
    save_file(tensors, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    chosen = of_part(task, "piecewise-exponential", wanted, digest, path).model()
    ones = dict(chosen.named_parameters())["3.weight"]
    assert not ones.requires_grad
    assert (ones == 1).all()
    assert "3.bias" in trainable(chosen)
