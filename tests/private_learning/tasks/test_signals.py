"""Signals: the range of every channel, and parameters."""

from __future__ import annotations

import numpy as np
import pytest

from private_learning.records import Examples
from private_learning.tasks import load
from private_learning.tasks.signals import SignalNetwork, SignalParameters
from tests.private_learning.tasks.image_tasks import (
    SIGNALS,
)


def test_signals_are_scaled_by_the_range_of_their_channel() -> None:
    task = load("signal-cnn", SIGNALS)
    x = np.zeros((2, 2, 40))
    x[0, 0], x[0, 1], x[1, 0], x[1, 1] = 2.5, 50, -9, 300
    inputs = task.inputs(Examples.of(x, [0, 2])).numpy()
    np.testing.assert_allclose(inputs[:, :, 0], [[0.5, -0.5], [-1, 1]])
    (use,) = task.inspect(Examples.of(x, [0, 2]))
    assert (use.name, use.values, use.clipped) == ("samples", 160, 80)
    one = load("signal-cnn", {"length": 40, "classes": 2, "range": "-1..1", "filters": 8})
    assert one.inputs(Examples.of(np.zeros((3, 40)), [0, 1, 1])).shape == (3, 1, 40)


def test_filters_double_twice_and_every_convolution_halves_the_length() -> None:
    task = load("signal-cnn", SIGNALS | {"layers": 4, "kernel": 5})
    assert isinstance(task, SignalNetwork)
    assert task.parameters.widths == [4, 8, 16, 16]
    assert dict(task.layout.normalised) == {
        "blocks.0": (4, 2, 5),
        "blocks.2": (8, 4, 5),
        "blocks.4": (16, 8, 5),
        "blocks.6": (16, 16, 5),
    }
    shapes = {key: tuple(p.shape) for key, p in task.model().named_parameters() if key.endswith("conv.weight")}
    assert shapes == {f"{key}.conv.weight": shape for key, shape in task.layout.normalised.items()}


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("-5..5", [(-5.0, 5.0)]),
        ("-5..5|0..2e2", [(-5.0, 5.0), (0.0, 200.0)]),
        ("5..5", []),
        ("1|2", []),
        ("0..inf", []),
    ],
)
def test_ranges_are_read_or_none_of_them(text: str, ranges: list[tuple[float, float]]) -> None:
    assert SignalParameters.model_construct(range=text).ranges == ranges
