"""Losses run on single rows: one record moves the sum by no more than is charged, whatever the loss does."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from private_learning.gradients import PerRecordGradients, Slots, confirmation
from private_learning.gradients.layers import cross_entropy
from private_learning.gradients.separate import NotOneNumber, Separated, each_tensor, separated, settled, tensors_in
from tests.private_learning.gradients.loss_models import ENGINES, SLOTS, model_of, without_weights
from tests.private_learning.gradients.references import one_by_one
from tests.private_learning.gradients.user_losses import COUPLED, SEPARATE, Loss

CLIP = 1.0


def moved(gradients: PerRecordGradients, x: Tensor, t: Tensor, slots: Slots | None, exchanged: bool) -> float:
    """How far the last record moves the sum, in what is charged for it."""
    whole = gradients.clipped_sum(x[:-1], t[:-1], clip_norm=CLIP, slots=slots)
    other = (torch.cat([v[:-2], v[-1:]]) for v in (x, t)) if exchanged else (x, t)
    less = gradients.clipped_sum(*other, clip_norm=CLIP, slots=slots)
    apart = sum((whole.gradients[n].double() - less.gradients[n].double()).square().sum() for n in whole.gradients)
    return math.sqrt(float(apart)) / ((1 + exchanged) * (CLIP + whole.rounding))


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
    "counting-one by one",
    "in a buffer-layerwise",
    "in a buffer-vmap",
    "in a closure-one by one",
    "in an attribute-layerwise",
    "in an attribute-vmap",
    "in_global-one by one",
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


def centred(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of the batch that it sees: alone, every record is its own mean."""
    return (outputs[:, 0] - outputs[:, 0].mean() - targets).square()


def by_value(outputs: Tensor, targets: Tensor) -> Tensor:
    """A Python number of each target, which no batching rule knows."""
    return outputs[:, 0] * float(targets[0])


@pytest.mark.parametrize(("loss", "together"), [(centred, True), (by_value, False)])
def test_rows_are_seen_one_by_one_whichever_way_they_run(loss: Loss, together: bool) -> None:
    separate = Separated(loss)
    outputs, targets = torch.arange(6.0).view(3, 2), torch.tensor([1.0, 2.0, 3.0])
    expected = targets.square() if loss is centred else outputs[:, 0] * targets
    torch.testing.assert_close(separate(outputs, targets), expected)
    assert separate.vectorised is together
    assert settled(separate) is together
    assert separate(outputs[:0], targets[:0]).shape == (0,)


def test_a_choice_that_was_settled_stays() -> None:
    separate = Separated(by_value)
    assert settled(separate) is False
    assert settled(Separated(centred), together=True) is True
    assert settled(cross_entropy) is None
    assert separated(cross_entropy) is cross_entropy
    assert isinstance(separated(centred), Separated)


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (lambda outputs, targets: outputs.mean(), r"shape \(\)"),
        (lambda outputs, targets: outputs, r"shape \(1, 2\)"),
        (lambda outputs, targets: 1.0, "float"),
    ],
    ids=["mean", "matrix", "number"],
)
def test_a_loss_that_is_not_one_number_says_which_shape_it_has(loss: Loss, said: str) -> None:
    with pytest.raises(NotOneNumber, match=said):
        Separated(loss)(torch.ones(3, 2), torch.ones(3))
    with pytest.raises(ValueError, match="one output per record"):
        Separated(loss)(torch.ones(2, 2), torch.ones(3))


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


def test_containers_keep_their_kind_and_order() -> None:
    values = {"a": (torch.ones(1), [torch.full((1,), 2.0), None]), "b": Pair(torch.full((1,), 3.0), torch.zeros(1))}
    doubled = each_tensor(lambda value: 2 * value, values)
    assert [float(value) for value in tensors_in(doubled)] == [2.0, 4.0, 6.0, 0.0]
    assert isinstance(doubled["b"], Pair)
    assert isinstance(doubled["a"], tuple)
    assert doubled["a"][1][1] is None
    with pytest.raises(TypeError, match="must be a tensor"):
        each_tensor(lambda value: value, {"a": 1})
