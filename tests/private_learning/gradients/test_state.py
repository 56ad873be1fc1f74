"""What a loss or a model keeps between calls is found at its place; what it only holds is not."""

from __future__ import annotations

import functools
import random
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from private_learning.gradients.state import changed, kept_of_first_call, state_of

KEPT: dict[str, list[float]] = {"sums": []}


class Remembers:
    """An object with one of each kind of memory."""

    count = 0

    def __init__(self) -> None:
        self.mean, self.values, self.recent = 0.0, torch.zeros(3), deque[int]()
        self.generator, self.draw = torch.Generator(), np.random.default_rng(1)
        self.old, self.array, self.names = random.Random(1), np.zeros(2), {"a"}

    def __call__(self, x: Tensor) -> Tensor:
        return x


def change_class(_: Remembers) -> None:
    Remembers.count += 1


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda r: setattr(r, "mean", 1.0), "mean"),
        (lambda r: r.values.add_(1), "values"),
        (lambda r: r.recent.append(1), "recent"),
        (lambda r: torch.rand(1, generator=r.generator), "generator"),
        (lambda r: r.draw.normal(), "draw"),
        (lambda r: r.old.random(), "old"),
        (lambda r: r.array.__setitem__(0, 5.0), "array"),
        (lambda r: r.names.add("b"), "names"),
        (lambda r: setattr(r, "more", 1), "more"),
        (change_class, "Remembers.count"),
    ],
    ids=["number", "tensor", "deque", "torch", "numpy", "random", "array", "set", "attribute", "class"],
)
def test_a_change_is_found_at_its_place(change: Callable[[Remembers], object], place: str) -> None:
    remembers = Remembers()
    # Attributes of a class are looked at through its methods.
    root: Any = Remembers if place.startswith("Remembers") else remembers
    before = state_of(root)
    assert changed(before, state_of(root)) is None
    change(remembers)
    found = changed(before, state_of(root))
    assert found is not None
    assert found.startswith(place)


def in_a_closure() -> tuple[Callable[[Tensor], Tensor], list[float]]:
    sums: list[float] = []

    def loss(x: Tensor) -> Tensor:
        sums.append(float(x.sum()))
        return x

    return loss, sums


def in_a_global(x: Tensor) -> Tensor:
    KEPT["sums"].append(float(x.sum()))
    return x


def test_closures_globals_defaults_and_partials_are_reached() -> None:
    loss, _ = in_a_closure()

    def with_default(x: Tensor, kept: list[float] = []) -> Tensor:  # noqa: B006
        kept.append(1.0)
        return x

    def first(kept: list[float], x: Tensor) -> Tensor:
        kept.append(1.0)
        return x

    for function in (loss, in_a_global, with_default, functools.partial(first, [])):
        before = state_of(function)
        function(torch.ones(2))
        assert changed(before, state_of(function)) is not None


def test_parameters_are_the_training_s_to_change_and_buffers_are_not() -> None:
    model = nn.BatchNorm1d(2)
    before = state_of(model)
    with torch.no_grad():
        model.weight.add_(1.0)
        model.bias.add_(1.0)
    assert changed(before, state_of(model)) is None
    model(torch.randn(4, 2))
    assert changed(before, state_of(model)) == "running_mean"


def test_a_large_tensor_is_followed_by_torch_s_count_of_changes() -> None:
    class Large(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.zeros((1 << 20) + 1)

    model = Large()
    before = state_of(model)
    assert changed(before, state_of(model)) is None
    model.table[0] = 1.0
    assert changed(before, state_of(model)) == "table"


class Cache:
    """Keeps what `make` makes of the first input."""

    def __init__(self, make: Callable[[Tensor], Any]) -> None:
        self.make, self.kept = make, None

    def __call__(self, x: Tensor) -> None:
        if self.kept is None:
            self.kept = self.make(x)


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (lambda x: float(x.sum()), "kept"),
        (lambda x: x.clone(), "kept"),
        (lambda x: torch.linspace(0, 1, len(x)), None),
        (lambda x: len(x), None),
        (lambda x: None, None),
    ],
    ids=["sum", "records", "by-shape", "length", "nothing"],
)
def test_a_cache_of_data_is_told_from_one_of_shapes(make: Callable[[Tensor], Any], place: str | None) -> None:
    first, second = torch.ones(3), torch.full((3,), 7.0)
    assert kept_of_first_call(Cache(make), lambda root: root(first), lambda root: root(second)) == place


def test_what_cannot_be_copied_and_is_filled_counts_as_filled_by_data() -> None:
    class Uncopied(Cache):
        def __deepcopy__(self, memo: dict[int, Any]) -> Any:
            raise TypeError("no copies")

    root = Uncopied(lambda x: len(x))
    assert kept_of_first_call(root, lambda r: r(torch.ones(3)), lambda r: r(torch.ones(3))) == "kept"
