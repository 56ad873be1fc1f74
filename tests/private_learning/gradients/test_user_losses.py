"""Losses as users write them: refused with a reason, or one record moves the sum by no more than is charged."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from private_learning.gradients import PerRecordGradients, Slots, UnsupportedLayer, confirmation
from tests.private_learning.gradients.references import one_by_one
from tests.private_learning.gradients.user_losses import COUPLED, SEPARATE, Loss

CLIP = 1.0


class Plain(nn.Module):
    """Layer by layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * 2


class Scaled(Plain):
    """By vmap: a parameter that no listed layer has, without an axis."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.scale


class Branching(Scaled):
    """One by one: vmap knows no Python numbers."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if float(x.sum()) < 1e9 else x


ENGINES = {"layerwise": Plain, "vmap": Scaled, "one by one": Branching}
SLOTS = [None, Slots(16)]


def model_of(engine: str) -> Plain:
    torch.manual_seed(1)
    return ENGINES[engine]()


@pytest.mark.quick(
    "batch_dice-layerwise",
    "batch_dice-one by one",
    "by_largest-vmap",
    "counting-vmap",
    "cox-vmap",
    "dropped-one by one",
    "in a buffer-one by one",
    "info_nce-vmap",
    "softmax_over_batch-one by one",
)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", COUPLED)
def test_a_loss_that_looks_at_other_records_is_refused_whatever_the_records_and_weights(name: str, engine: str) -> None:
    for slots in SLOTS:
        model = without_weights(engine)
        # Patients' records that show nothing: what is found out must come from elsewhere.
        x, t = torch.full((13, 2), 60.0), torch.ones(13)
        with pytest.raises(UnsupportedLayer, match=r"the loss|a record's loss"):
            PerRecordGradients(model, COUPLED[name]()).clipped_sum(x, t, clip_norm=CLIP, slots=slots)


def moved(gradients: PerRecordGradients, x: Tensor, t: Tensor, slots: Slots | None, exchanged: bool) -> float:
    """How far the last record moves the sum, in what is charged for it."""
    whole = gradients.clipped_sum(x[:-1], t[:-1], clip_norm=CLIP, slots=slots)
    other = (torch.cat([v[:-2], v[-1:]]) for v in (x, t)) if exchanged else (x, t)
    less = gradients.clipped_sum(*other, clip_norm=CLIP, slots=slots)
    apart = sum((whole.gradients[n].double() - less.gradients[n].double()).square().sum() for n in whole.gradients)
    return math.sqrt(float(apart)) / ((1 + exchanged) * (CLIP + whole.rounding))


def without_weights(engine: str) -> Plain:
    """A model whose outputs are 0: what targets do to one another shows in all its strength."""
    model = model_of(engine)
    nn.init.zeros_(model.layer.weight)
    nn.init.zeros_(model.layer.bias)
    return model


def climbed(engine: str, loss: Loss, slots: Slots | None, exchanged: bool) -> float:
    """The farthest that a climb of a fixed seed finds."""
    gradients, draw, best = PerRecordGradients(without_weights(engine), loss), torch.Generator().manual_seed(3), 0.0
    x, t = torch.full((14, 2), 6.0), torch.ones(14)
    for step in range(14):
        change = torch.randn(14, 2, generator=draw) * 4.0 ** (step % 4 - 1)
        near = x + change * (step > 1), t.clone()
        # One target of another kind, then whichever some others may be.
        near[1][-1] = 0.0 if step % 2 else 1000.0
        near[1][torch.randint(0, 14, (step // 3,), generator=draw)] = 0.0
        far = moved(gradients, *near, slots, exchanged)
        if far >= best:
            best, (x, t) = far, near
    return best


@pytest.mark.quick(
    "by_largest-vmap",
    "by_length-vmap",
    "counting-one by one",
    "in a buffer-layerwise",
    "in a buffer-vmap",
    "in a closure-one by one",
    "in an attribute-layerwise",
    "in an attribute-vmap",
    "in_global-one by one",
    "masked_mean-vmap",
    "softmax_over_batch-vmap",
)
@pytest.mark.filterwarnings("ignore:std\\(\\):UserWarning")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", [n for n in COUPLED if n not in ("mixup", "dropped", "noisy")])
def test_a_loss_that_every_check_misses_moves_no_other_record(
    name: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name in ("in an attribute", "in a buffer", "in a closure", "in_global", "counting"):
        pytest.skip("what is remembered from call to call is refused, and not kept apart")
    monkeypatch.setattr(confirmation, "refuse_coupled", lambda *_: None)
    for slots in SLOTS:
        for exchanged in (False, True):
            # Without slots nothing bounds the order of summation: 14 records in float32.
            room = 1e-5 if slots is None else 1e-12
            assert climbed(engine, COUPLED[name](), slots, exchanged) <= 1 + room


def test_the_climb_finds_what_a_coupled_loss_can_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack has teeth: without single rows the same losses move the sum far."""
    monkeypatch.setattr(confirmation, "refuse_coupled", lambda *_: None)
    monkeypatch.setattr("private_learning.gradients.layerwise.separated", lambda loss: loss)
    found = {
        name: climbed("layerwise", COUPLED[name](), None, False) for name in ("pos_weight", "centred", "by_largest")
    }
    assert min(found.values()) > 1.5, found


@pytest.mark.quick("huber-layerwise")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", SEPARATE)
def test_a_loss_of_one_record_is_accepted_and_has_the_gradients_of_one_backward_per_record(
    name: str, engine: str
) -> None:
    draw, model, loss = torch.Generator().manual_seed(2), model_of(engine).double(), SEPARATE[name]()
    x = torch.randn(7, 2, generator=draw, dtype=torch.float64)
    t = torch.randint(0, 3 if name in ("ordinal", "weighted", "smoothed", "dice") else 2, (7,), generator=draw).double()
    true = one_by_one(model, loss, x, t)
    norms = torch.stack([value.reshape(7, -1).square().sum(1) for value in true.values()]).sum(0).sqrt()
    bound = float(norms.median())
    for slots in SLOTS:
        gradients = PerRecordGradients(model, loss)
        done: Any = gradients.clipped_sum(x, t, clip_norm=bound, slots=slots)
        # These look at values: PyTorch's own checks that variances are not negative, and that classes exist.
        reads = name in ("branching", "gaussian", "dice")
        assert gradients.method == ("one by one" if reads and engine != "layerwise" else engine)
        torch.testing.assert_close(done.norms, norms, rtol=1e-9, atol=1e-12)
        for parameter, value in true.items():
            expected = torch.einsum("i,i...->...", (bound / norms).clamp(max=1.0), value)
            torch.testing.assert_close(done.gradients[parameter], expected, rtol=1e-9, atol=1e-9 * bound)


SCALE: dict[str, float] = {}


def by_first_batch(outputs: Tensor, targets: Tensor) -> Tensor:
    SCALE.setdefault("scale", float(targets.abs().mean()) + 1e-3)
    return ((outputs.mean(1) - targets) / SCALE["scale"]).square()


class FirstBatch(nn.Module):
    """Divides by what its first batch showed."""

    scale: float | None = None

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self.scale is None:
            self.scale = float(targets.abs().mean()) + 1e-3
        return ((outputs.mean(1) - targets) / self.scale).square()


def in_a_cell() -> Loss:
    kept: list[float] = []

    def found(outputs: Tensor, targets: Tensor) -> Tensor:
        if not kept:
            kept.append(float(targets.abs().mean()) + 1e-3)
        return ((outputs.mean(1) - targets) / kept[0]).square()

    return found


def with_constants() -> Loss:
    kept: list[Tensor] = []

    def found(outputs: Tensor, targets: Tensor) -> Tensor:
        if not kept:
            kept.append(torch.linspace(1, 2, outputs.shape[1]))
        return ((outputs * kept[0]).mean(1) - targets).square()

    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_a_loss_that_fits_itself_to_its_first_batch_is_refused(engine: str) -> None:
    x, t = torch.ones(4, 2), torch.ones(4)
    for loss in (by_first_batch, FirstBatch(), in_a_cell()):
        SCALE.clear()
        with pytest.raises(UnsupportedLayer, match="called with first"):
            PerRecordGradients(model_of(engine), loss).norms(x, t)
    # What follows from shapes alone may be kept.
    assert len(PerRecordGradients(model_of(engine), with_constants()).norms(x, t)) == 4
