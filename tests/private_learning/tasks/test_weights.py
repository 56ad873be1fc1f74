"""First weights that numpy draws are those that a new model of the task would have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from private_learning.tasks import load
from private_learning.tasks.registry import BUILT_IN
from private_learning.tasks.tables import MultilayerPerceptron
from private_learning.tasks.weights import drawn_weights
from private_learning.training.weights import weights_of

COLUMNS = {"label": "ill", "column.age": "18..90", "column.chol": "1..4; missing=2", "column.pain": "1|2|3; missing"}
INPUTS = {name: text for name, text in COLUMNS.items() if name != "label"}
NUMBER = COLUMNS | {"low": 0.0, "high": 9.0}
LABELS = INPUTS | {"labels": "a|b|c"}
TIMES = INPUTS | {"time": "days", "event": "died", "cuts": "30|90|365"}
SHAPES: list[dict[str, Any]] = [
    {"layers": layers, "hidden": 300, "proportional": shared} for layers in (0, 1, 2) for shared in (True, False)
]
# Few enough rows of embeddings that only what is uniform is compared by its largest value.
EVENTS = {"label": "ill", "length": 10, "embedding": 16, "events.drugs": "code=atc; time=day; codes=A|B|C|D"}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("logistic-regression", COLUMNS),
    ("logistic-regression", COLUMNS | {"classes": 5}),
    ("bayesian-logistic-regression", COLUMNS | {"prior-std": 2.5, "patients": 900}),
    ("additive", COLUMNS | {"bins": 20}),
    ("last-layer", {"features": 7, "classes": 2, "bound": 1.0}),
    ("last-layer", {"features": 7, "classes": 3, "bound": 1.0}),
    ("features", {"module": "oriented-gradients", "shape": "1x8x8", "features": 32, "classes": 3, "bound": 1.0}),
    ("mlp", COLUMNS | {"hidden": 300}),
    ("mlp", COLUMNS | {"hidden": 80, "layers": 4, "classes": 6}),
    ("regression", NUMBER),
    ("regression", NUMBER | {"layers": 2, "hidden": 80}),
    ("multi-label", LABELS),
    ("multi-label", LABELS | {"layers": 1, "hidden": 300}),
    *((name, TIMES | shape) for name in ("discrete-survival", "piecewise-exponential") for shape in SHAPES),
    ("sequence", EVENTS | {"layers": 2, "hidden": 20}),
    ("sequence", EVENTS | {"model": "lstm", "classes": 3, "column.age": "18..90"}),
    ("sequence", EVENTS | {"model": "transformer", "layers": 2, "hidden": 24}),
    ("cnn", {"height": 28, "width": 28, "classes": 10}),
    ("resnet", {"height": 28, "width": 20, "classes": 2, "stages": 2, "blocks": 2}),
    ("resnet", {"height": 9, "width": 9, "classes": 5, "first-stride": 2, "zero-last-norm": True}),
    ("multi-label-images", {"height": 9, "width": 9, "channels": 3, "labels": "a|b|c", "stages": 1}),
    ("segmentation", {"height": 9, "width": 9, "classes": 3, "depth": 3}),
    ("signal-cnn", {"channels": 12, "length": 500, "classes": 5, "range": "-5..5"}),
    ("vae", {"height": 9, "width": 14, "classes": 3, "latent": 40}),
    ("cnn", {"height": 9, "width": 30, "channels": 3, "classes": 2, "filters": 8, "hidden": 50}),
]


def test_every_built_in_task_is_among_the_cases() -> None:
    assert {name for name, _ in CASES} == set(BUILT_IN)


@pytest.mark.parametrize(("name", "parameters"), CASES, ids=[f"{name}-{at}" for at, (name, _) in enumerate(CASES)])
def test_names_shapes_types_and_spread_are_torch_s_own(name: str, parameters: dict[str, Any]) -> None:
    torch.manual_seed(1)
    task = load(name, parameters)
    ours, theirs = drawn_weights(task, np.random.default_rng(1)), weights_of(task.model())
    assert ours is not None
    assert {key: (array.shape, array.dtype) for key, array in ours.items()} == {
        key: (array.shape, array.dtype) for key, array in theirs.items()
    }
    for key, array in ours.items():
        # Both uniform in ±b: their largest value is at most b, and of 200 values above 0.9 b but with chance 1e-9.
        if array.size >= 200:
            assert np.abs(array).max() == pytest.approx(np.abs(theirs[key]).max(), rel=0.1), key
            # Of 200 values the standard deviation is within 25 % but with chance 1e-5; seeds are fixed.
            assert array.std() == pytest.approx(theirs[key].std(), rel=0.25), key
        assert array.any() == theirs[key].any(), key
        # What is not drawn is the same.
        if len(np.unique(theirs[key])) == 1 and array.size > 1:
            np.testing.assert_array_equal(array, theirs[key])


def test_draws_are_new_every_time_and_a_task_of_somebody_s_own_is_not_guessed() -> None:
    task = load("mlp", COLUMNS)
    one, other = drawn_weights(task), drawn_weights(task)
    assert one is not None
    assert other is not None
    assert (one["0.weight"] != other["0.weight"]).any()

    class Mine(MultilayerPerceptron):
        """Might have another model."""

    assert drawn_weights(Mine(COLUMNS)) is None
