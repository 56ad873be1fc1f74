"""A record whose gradient cannot be computed adds zero, and moves no other record: with crafted weights, by search."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from private_learning.gradients import ClippedSum, PerRecordGradients, Slots
from private_learning.gradients.layers import cross_entropy
from private_learning.gradients.passes import PassRequest, run
from private_learning.training.patients import LossOfPatients, RowsOfPatients
from study_protocol.study.bounds import MAX_WEIGHT

CLIP, RECORDS = 1.0, 9


class Read(nn.Module):
    """The last state of a recurrent layer, read by a linear one."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.units, self.head = kind(3, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.units(x)[0][:, -1])


class Looked(nn.Module):
    """Embedded tokens, normalised and averaged."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.head = nn.Embedding(6, 4), nn.LayerNorm(4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.table(x)).mean(1) + self.table(x).square().sum(1))


def own_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Not built in, and so run on single rows."""
    return (outputs.logsumexp(1) - outputs.gather(1, targets.unsqueeze(1)).squeeze(1)).square()


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)
    )


def dense() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3))


SHAPES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(5, 3), (5,)),
    "dense": (dense, (5,)),
    "convolutions": (convolutions, (2, 8, 8)),
    "recurrent": (lambda: Read(nn.LSTM), (4, 3)),
    "gated": (lambda: Read(nn.GRU), (4, 3)),
    "lookups": (Looked, (4,)),
    "positions": (
        lambda: nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3), nn.Flatten(), nn.Linear(9, 3)),
        (3, 5),
    ),
    "rows": (lambda: RowsOfPatients(dense()), (2, 5)),
    "rows of convolutions": (lambda: RowsOfPatients(convolutions()), (2, 2, 8, 8)),
}
WAYS: list[tuple[str, Any]] = [("auto", cross_entropy), ("auto", own_loss), ("vmap", cross_entropy)]


def seeded(seed: int) -> Slots:
    """Slots whose draws begin alike: the first records keep their places when the last one goes."""
    draw = np.random.default_rng(seed)
    return Slots(12, lambda count: draw.integers(1 << 63, size=count, dtype=np.uint64))


def records(shape: tuple[int, ...], tokens: bool, rows: bool) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(5)
    x = (
        torch.randint(0, 5, (RECORDS, *shape), generator=draw)
        if tokens
        else torch.randn(RECORDS, *shape, generator=draw)
    )
    # The last record, and nobody else, has numbers that the search may aim at.
    x[-1] = 5 if tokens else x[-1] * 2.0**50
    return x, torch.randint(0, 3, (RECORDS, 2) if rows else (RECORDS,), generator=draw)


def difference(one: ClippedSum, other: ClippedSum) -> float:
    squares = [(one.gradients[name].double() - other.gradients[name].double()).square().sum() for name in one.gradients]
    return math.sqrt(float(torch.stack(squares).sum()))


@pytest.mark.quick(
    "dense-vmap", "gated-closed forms", "linear-closed forms", "linear-own loss", "lookups-closed forms", "rows-vmap"
)
@pytest.mark.parametrize(("method", "loss"), WAYS, ids=["closed forms", "own loss", "vmap"])
@pytest.mark.parametrize("name", SHAPES)
def test_no_weights_make_one_record_stop_the_others_or_move_them(name: str, method: Any, loss: Any) -> None:
    """A climb over the sizes of the weights looks for those with which the last record alone overflows."""
    if (name, method) == ("gated", "vmap"):
        pytest.skip("torch.func does not run nn.GRU")
    torch.manual_seed(2)
    make, shape = SHAPES[name]
    model, tokens, rows = make(), name == "lookups", name.startswith("rows")
    x, y = records(shape, tokens, rows)
    gradients = PerRecordGradients(model, LossOfPatients(loss) if rows else loss, method=method)
    first = {key: value.detach().clone() for key, value in model.named_parameters()}
    draw, alone = np.random.default_rng(11), 0
    size, best, slack = np.zeros(len(first)), 0.0, gradients.rounding(CLIP, 12)
    for _ in range(30):
        tried = size + draw.normal(0.0, 6.0, len(first))
        with torch.no_grad():
            for (key, value), exponent in zip(model.named_parameters(), tried, strict=True):
                value.copy_((first[key] * 2.0**exponent).clamp(-MAX_WEIGHT, MAX_WEIGHT))
        whole = gradients.clipped_sum(x, y, clip_norm=CLIP, slots=seeded(3))
        rest = gradients.clipped_sum(x[:-1], y[:-1], clip_norm=CLIP, slots=seeded(3))
        assert torch.equal(whole.norms[:-1], rest.norms), "to the last bit"
        assert difference(whole, rest) <= CLIP + slack
        assert all(bool(torch.isfinite(value).all()) for value in whole.gradients.values())
        if whole.failed > rest.failed:
            alone += 1
            assert difference(whole, rest) <= slack, "zero, and not something clipped"
        # Upwards, as long as the others bear it.
        elif rest.failed == 0 and float(whole.norms[-1]) > best:
            size, best = tried, float(whole.norms[-1])
    if name in ("dense", "convolutions", "rows", "rows of convolutions"):
        assert alone, "the search has found what it looks for"


class Raises(nn.Module):
    """Raises for what nobody but the last record has."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.body = way, dense()

    def forward(self, x: Tensor) -> Tensor:
        if self.way == "index":
            places = (x[:, :1] > 100).long()
            # One column: place 1 is out of range, which no operator says before it runs.
            x = x + 0 * x[:, :1].gather(1, places)
        if self.way == "value" and float(x[:, 0].max()) > 100:
            raise ArithmeticError("no such patient")
        return self.body(x)


def raising_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(outputs, torch.where(targets == 2, 7, targets))


@pytest.mark.parametrize(
    ("model", "loss", "way"),
    [
        (Raises("index"), cross_entropy, "layerwise"),
        (Raises("value"), cross_entropy, "one by one"),
        (dense(), raising_loss, "layerwise"),
    ],
    ids=["an index out of range", "an exception of the model", "an exception of the loss"],
)
@pytest.mark.parametrize("in_slots", [True, False])
def test_what_is_raised_for_one_record_counts_as_zero(model: nn.Module, loss: Any, way: str, in_slots: bool) -> None:
    torch.manual_seed(4)
    x, y = torch.randn(RECORDS, 5), torch.randint(0, 2, (RECORDS,))
    gradients = PerRecordGradients(model, loss)
    slots = (lambda: seeded(3)) if in_slots else (lambda: None)
    x[-1, 0], y[-1] = 1000.0, 2
    whole = gradients.clipped_sum(x, y, clip_norm=CLIP, slots=slots())
    rest = gradients.clipped_sum(x[:-1], y[:-1], clip_norm=CLIP, slots=slots())
    assert gradients.method == way
    assert (whole.failed, rest.failed, float(whole.norms[-1])) == (1, 0, math.inf)
    torch.testing.assert_close(whole.norms[:-1], rest.norms, rtol=0 if in_slots else 1e-6, atol=0)
    assert difference(whole, rest) <= (gradients.rounding(CLIP, 12) if in_slots else 1e-5)
    assert torch.isinf(gradients.norms(x, y, slots=slots())).tolist() == [False] * (RECORDS - 1) + [True]
    only = gradients.clipped_sum(x[-1:], y[-1:], clip_norm=CLIP, slots=slots())
    assert only.failed == 1
    assert not any(value.any() for value in only.gradients.values())


def test_a_model_that_changes_what_it_is_given_is_tried_again_with_the_record_itself() -> None:
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = dense()

        def forward(self, x: Tensor) -> Tensor:
            return self.body(x.mul_(2.0))

    torch.manual_seed(6)
    gradients = PerRecordGradients(InPlace(), cross_entropy)
    x, y = torch.randn(RECORDS, 5), torch.randint(0, 3, (RECORDS,))
    x[-1] = math.nan
    whole = gradients.clipped_sum(x, y, clip_norm=CLIP, slots=seeded(3))
    assert whole.failed == 1
    assert difference(whole, gradients.clipped_sum(x[:-1], y[:-1], clip_norm=CLIP, slots=seeded(3))) <= 1e-5


@contextmanager
def half_precision() -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        yield


@pytest.mark.parametrize("options", [{}, {"groups": True}, {"centre": True}], ids=["plain", "groups", "centre"])
@pytest.mark.parametrize("lower", [False, True], ids=["float32", "bfloat16"])
def test_a_failing_record_is_left_out_of_groups_centres_and_lower_precision(
    options: dict[str, bool], lower: bool
) -> None:
    torch.manual_seed(7)
    model = dense()
    x, y = torch.randn(RECORDS, 5), torch.randint(0, 3, (RECORDS,))
    x[-1] = 3e38
    names = [key for key, _ in model.named_parameters()]
    more: dict[str, Any] = {}
    if "groups" in options:
        more["groups"] = [[key] for key in names]
    if "centre" in options:
        more["centre"] = {key: 0.1 * torch.ones_like(value) for key, value in model.named_parameters()}
    gradients = PerRecordGradients(model, cross_entropy)
    with half_precision() if lower else nullcontext():
        whole = gradients.clipped_sum(x, y, clip_norm=CLIP, slots=seeded(3), **more)
        rest = gradients.clipped_sum(x[:-1], y[:-1], clip_norm=CLIP, slots=seeded(3), **more)
    assert whole.failed == 1
    assert torch.equal(whole.norms[:-1], rest.norms)
    assert difference(whole, rest) <= whole.rounding


class ByPlace:
    """An engine that fails for some values in place 1 alone, as the edge of a kernel may."""

    def __init__(self, fails: Callable[[Tensor], Tensor]) -> None:
        self.parameters, self.calls, self._fails = {"w": nn.Parameter(torch.zeros(1))}, 0, fails

    def run(self, x: Tensor, y: Tensor) -> Any:
        self.calls += 1
        assert self.calls < 50, "it has to end"
        bad = self._fails(x) & (torch.arange(len(x)) == 1)

        class Done:
            finite = torch.where(bad, torch.inf, torch.zeros(len(x)))
            squares: ClassVar[dict[str, Tensor]] = {"w": x.square()}

            def add_weighted(self, factors: dict[str, Tensor], into: dict[str, Tensor], *, release: bool) -> None:
                into["w"] = (factors["w"] * x).sum().reshape(1)

        return Done()


@pytest.mark.parametrize(
    ("fails", "left"),
    [(lambda x: x < 0.35, [0.1, 0.3, 0.4]), (lambda x: x < 9, [])],
    ids=["the first two copies", "every copy"],
)
def test_a_copy_that_fails_in_another_place_does_not_go_on_for_ever(fails: Any, left: list[float]) -> None:
    x = torch.tensor([0.1, 0.2, 0.3, 0.4])
    engine: Any = ByPlace(fails)
    found = run(
        engine, x.clone(), x.clone(), lambda factors: factors, PassRequest(CLIP), lambda: (x.clone(), x.clone())
    )
    assert torch.isfinite(found.norms).tolist() == [value in left for value in (0.1, 0.2, 0.3, 0.4)]
    assert float(sum(found.sum.values(), torch.zeros(1))) == pytest.approx(sum(left), rel=1e-3)
