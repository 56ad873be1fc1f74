"""Images and given features."""

import numpy as np
import pytest
import torch

from private_learning.records import DataError, Examples, Table
from private_learning.tasks import TaskError, load

IMAGES = {"height": 9, "width": 6, "classes": 3}
FEATURES = {"features": 4, "classes": 2, "bound": 2.0}


def images(shape: tuple[int, ...] = (5, 9, 6)) -> Examples:
    return Examples.of(np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8), np.arange(shape[0]) % 3)


@pytest.mark.parametrize("shape", [(5, 9, 6), (5, 1, 9, 6)])
def test_images_are_scaled_by_the_public_range_and_go_through_the_network(shape: tuple[int, ...]):
    task = load("cnn", IMAGES)
    data = images(shape)
    dataset = task.dataset(data)
    expected = data.inputs.reshape(5, 1, 9, 6) / 127.5 - 1
    np.testing.assert_allclose(dataset.inputs.numpy(), expected, atol=1e-6)
    outputs = task.model()(dataset.inputs)
    assert outputs.shape == (5, 3)
    assert task.loss(outputs, dataset.targets).shape == (5,)


def test_no_layer_mixes_records():
    model = load("cnn", IMAGES).model()
    inputs = torch.randn(4, 1, 9, 6, generator=torch.Generator().manual_seed(0))
    together = model(inputs)
    alone = torch.cat([model(inputs[i : i + 1]) for i in range(4)])
    torch.testing.assert_close(together, alone)


def test_features_keep_their_direction_and_never_exceed_the_bound():
    x = np.array([[0.3, 0, 0, 0], [30, 40, 0, 0], [1e200, 0, 0, 0], [0, 0, 0, 0]])
    inputs = load("last-layer", FEATURES).dataset(Examples.of(x, [0, 1, 1, 0])).inputs.numpy()
    expected = [[0.3, 0, 0, 0], [1.2, 1.6, 0, 0], [2, 0, 0, 0], [0, 0, 0, 0]]
    np.testing.assert_allclose(inputs[[0, 1, 3]], np.array(expected)[[0, 1, 3]], rtol=1e-6)
    assert np.linalg.norm(inputs[2]) <= 2.0


@pytest.mark.parametrize(
    ("task", "parameters", "data", "message"),
    [
        ("cnn", IMAGES, images((5, 8, 6)), "images of shape"),
        ("cnn", IMAGES, Table.of({"a": [1.0]}), "takes arrays"),
        ("cnn", IMAGES, Examples.of(np.full((2, 9, 6), np.nan), [0, 1]), "2 of 2 records"),
        ("cnn", IMAGES, Examples.of(np.zeros((2, 9, 6)), [0, 3]), "labels: 1 of 2"),
        ("last-layer", FEATURES, Examples.of(np.zeros((2, 5)), [0, 1]), "4 features"),
        ("last-layer", FEATURES, Examples.of(np.array([[np.inf, 0, 0, 0]]), [0]), "1 of 1"),
        ("logistic-regression", {"label": "y", "column.a": "0..1"}, images(), "takes a table"),
    ],
)
def test_bad_data_is_named(task: str, parameters: dict[str, object], data: object, message: str):
    with pytest.raises(DataError, match=message):
        load(task, parameters).dataset(data)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("task", "parameters", "message"),
    [
        ("cnn", {**IMAGES, "heigth": 3}, "heigth"),
        ("cnn", {"height": 9, "classes": 3}, "width"),
        ("cnn", {**IMAGES, "low": 1.0, "high": 1.0}, "low must be below high"),
        ("cnn", {**IMAGES, "high": float("inf")}, "high"),
        ("last-layer", {**FEATURES, "bound": 0.0}, "bound"),
        ("last-layer", {**FEATURES, "bound": float("nan")}, "bound"),
        ("last-layer", {**FEATURES, "features": 0}, "features"),
    ],
)
def test_bad_parameters_are_named(task: str, parameters: dict[str, object], message: str):
    with pytest.raises(TaskError, match=message):
        load(task, parameters)
