"""Losses as users write them: refused with a reason, or accepted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from private_learning.gradients import PerRecordGradients, UnsupportedLayer
from private_learning.gradients.generated import ExampleMakers, Shapes
from private_learning.gradients.layers import cross_entropy
from private_learning.gradients.loss_check import refuse_coupled, usable_targets
from private_learning.gradients.separate import NotOneNumber
from tests.private_learning.gradients.loss_models import ENGINES, SLOTS, model_of, without_weights
from tests.private_learning.gradients.user_losses import COUPLED, Loss

CLIP = 1.0


@pytest.mark.quick(
    "batch_dice-layerwise",
    "by_largest-vmap",
    "counting-vmap",
    "cox-vmap",
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


@pytest.mark.quick("vmap")
@pytest.mark.parametrize("engine", ENGINES)
def test_a_loss_that_fits_itself_to_its_first_batch_is_refused(engine: str) -> None:
    x, t = torch.ones(4, 2), torch.ones(4)
    for loss in (by_first_batch, FirstBatch(), in_a_cell()):
        SCALE.clear()
        with pytest.raises(UnsupportedLayer, match="called with first"):
            PerRecordGradients(model_of(engine), loss).norms(x, t)
    # What follows from shapes alone may be kept.
    assert len(PerRecordGradients(model_of(engine), with_constants()).norms(x, t)) == 4


SHAPES = Shapes(torch.Size([2]), torch.float32, torch.Size([]), torch.float32)
OUTPUTS = torch.randn(8, 3, generator=torch.Generator().manual_seed(5))


def half_square(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs[:, 0] - targets).square() / 2


def centred(outputs: Tensor, targets: Tensor) -> Tensor:
    return half_square(outputs - outputs.mean(0), targets)


def straight_through(outputs: Tensor, targets: Tensor) -> Tensor:
    """Equal in value, and not in the gradient."""
    return half_square(outputs, targets) + (outputs.mean() - outputs.mean().detach())


def drawn(outputs: Tensor, targets: Tensor) -> Tensor:
    return half_square(outputs, targets) * torch.rand(len(targets))


def picky(outputs: Tensor, targets: Tensor) -> Tensor:
    if bool((targets < 1e6).any()):
        raise ValueError("only large ones")
    return half_square(outputs, targets)


class Counts:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.calls += 1
        return half_square(outputs, targets)


@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        (centred, "a record's loss changes with the other records"),
        (straight_through, "a record's loss changes with the other records"),
        (drawn, "draws random numbers"),
        (Counts(), r"remembers earlier calls: 'calls'|called with first"),
    ],
    ids=["value", "gradient", "random", "memory"],
)
def test_the_reason_is_said(loss: Loss, reason: str) -> None:
    with pytest.raises(UnsupportedLayer, match=reason):
        refuse_coupled(loss, OUTPUTS, SHAPES, ExampleMakers())


def test_a_loss_of_single_records_passes_and_one_that_takes_no_target_is_remarked() -> None:
    assert refuse_coupled(half_square, OUTPUTS, SHAPES, ExampleMakers()) is None
    assert refuse_coupled(cross_entropy, OUTPUTS, SHAPES, ExampleMakers()) is None
    remark = refuse_coupled(picky, OUTPUTS, SHAPES, ExampleMakers())
    assert remark is not None
    assert "example_targets" in remark


def test_a_loss_of_one_record_has_to_be_one_number() -> None:
    with pytest.raises(NotOneNumber, match="one value per record"):
        refuse_coupled(lambda outputs, targets: outputs - targets[:, None], OUTPUTS, SHAPES, ExampleMakers())


def test_usable_targets_are_those_of_a_finite_loss() -> None:
    def logarithm(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs[:, 0].square() * targets.log()

    usable = usable_targets(logarithm, OUTPUTS, SHAPES, ExampleMakers())
    assert usable
    assert all(float(targets.min()) > 0 for targets in usable)
    everything = usable_targets(half_square, OUTPUTS, SHAPES, ExampleMakers())
    assert any(float(targets.min()) < 0 for targets in everything)
