"""Closed-form loss gradients, and the last layer without autograd, against autograd."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from private_learning.gradients import PerRecordGradients
from private_learning.gradients.inspection import known_layers
from private_learning.gradients.layers import cross_entropy, logistic, squared_error
from private_learning.gradients.layerwise import ends_in
from private_learning.gradients.losses import (
    ClassLoss,
    DiscreteHazard,
    Huber,
    LabelsLoss,
    PiecewiseExponential,
    class_loss,
    number_loss,
    signal_of,
)
from private_learning.gradients.pixels import PixelLoss
from private_learning.tasks import load

Loss = Callable[[Tensor, Tensor], Tensor]


def drawn(loss: object, outputs: int) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    if loss is cross_entropy or isinstance(loss, ClassLoss):
        return torch.randint(0, max(2, outputs), (6,), generator=generator)
    if isinstance(loss, LabelsLoss):
        labels = torch.randint(0, 2, (6, outputs), generator=generator).double()
        labels[0, 1] = labels[4, 0] = float("nan")
        return labels
    if isinstance(loss, DiscreteHazard | PiecewiseExponential):
        # Events in every interval, on a cut and at 0; censored within, on a cut and at the end.
        times = torch.tensor([0.1, 0.2, 0.0, 0.4, 0.5, 1.0], dtype=torch.float64)
        return torch.stack([times, torch.tensor([1.0, 1, 1, 0, 0, 0], dtype=torch.float64)], dim=1)
    if loss is logistic:
        return torch.rand(6, generator=generator).round().double()
    return torch.randn(6, outputs, generator=generator, dtype=torch.float64)


CASES = [
    (cross_entropy, 4),
    (logistic, 1),
    (squared_error, 3),
    (squared_error, 1),
    (ClassLoss(2.0), 1),
    (ClassLoss(2.0), 4),
    (ClassLoss(1.0, (1.0, 5.0)), 1),
    (ClassLoss(0.0, (1.0, 0.5, 4.0)), 3),
    (ClassLoss(0.0, (3.0, 1.0)), 1),
    (Huber(1.5), 1),
    (Huber(0.3), 3),
    (LabelsLoss(), 4),
    (DiscreteHazard((0.2, 0.5, 1.0)), 3),
    (PiecewiseExponential((0.2, 0.5, 1.0)), 3),
]


@pytest.mark.parametrize(("loss", "outputs"), CASES)
def test_signals_are_the_gradients_of_the_losses(loss: Loss, outputs: int) -> None:
    torch.manual_seed(0)
    scores = (torch.randn(6, outputs, dtype=torch.float64) * 3).requires_grad_()
    targets = drawn(loss, outputs)
    (true,) = torch.autograd.grad(loss(scores, targets).sum(), scores)
    signal = signal_of(loss)
    assert signal is not None
    torch.testing.assert_close(signal(scores.detach(), targets), true, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("loss", "outputs"), CASES)
@pytest.mark.parametrize("frozen_body", [False, True])
def test_last_layer_equals_one_backward_per_record(loss: Loss, outputs: int, frozen_body: bool) -> None:
    torch.manual_seed(1)
    last = nn.Linear(5, outputs).double()
    body = [nn.Linear(5, 5).double().requires_grad_(False), nn.Tanh()]
    model = nn.Sequential(*body, last) if frozen_body else last
    inputs, targets = torch.randn(6, 5, dtype=torch.float64), drawn(loss, outputs)
    rows = []
    for i in range(6):
        total = loss(model(inputs[i : i + 1]), targets[i : i + 1]).sum()
        rows.append(torch.autograd.grad(total, list(last.parameters())))
    true = torch.tensor([float(torch.cat([g.flatten() for g in row]).norm()) for row in rows], dtype=torch.float64)

    gradients = PerRecordGradients(model, loss, micro_batch=4)
    assert ends_in(model, known_layers(model))
    clip_norm = float(true.median())
    found = gradients.clipped_sum(inputs, targets, clip_norm=clip_norm)
    assert gradients.method == "layerwise"
    torch.testing.assert_close(found.norms, true, rtol=1e-9, atol=0)
    for k, value in enumerate(found.gradients.values()):
        expected = sum(row[k] * min(1.0, clip_norm / float(n)) for row, n in zip(rows, true, strict=True))
        torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-12)


def test_only_a_last_linear_layer_that_nobody_listens_to_is_closed() -> None:
    linear = nn.Linear(3, 3)
    assert not ends_in(nn.Sequential(linear, nn.ReLU()), known_layers(nn.Sequential(linear, nn.ReLU())))
    assert not ends_in(nn.Sequential(linear, linear), known_layers(nn.Sequential(linear, linear)))
    heard = nn.Linear(3, 3)
    heard.register_forward_hook(lambda _module, _inputs, output: 2 * output)
    assert not ends_in(heard, known_layers(heard))
    torch.manual_seed(0)
    inputs, targets = torch.randn(4, 3), torch.randint(0, 3, (4,))
    found = PerRecordGradients(heard, cross_entropy).clipped_sum(inputs, targets, clip_norm=1e9)
    true = torch.autograd.grad(cross_entropy(heard(inputs), targets).sum(), list(heard.parameters()))
    for value, expected in zip(found.gradients.values(), true, strict=True):
        torch.testing.assert_close(value, expected)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_record_that_is_not_finite_has_no_gradient_by_the_closed_form(bad: float) -> None:
    model = nn.Linear(3, 2)
    nn.init.zeros_(model.weight)
    gradients = PerRecordGradients(model, cross_entropy)
    inputs, targets = torch.randn(4, 3), torch.zeros(4, dtype=torch.int64)
    gradients.norms(inputs, targets)
    inputs[3, 2] = bad
    assert torch.isinf(gradients.norms(inputs, targets)).tolist() == [False, False, False, True]


@pytest.mark.parametrize("classes", [2, 3])
def test_built_in_linear_tasks_train_without_autograd(classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    task = load("logistic-regression", {"label": "sick", "classes": classes, "column.age": "18..90"})
    model = task.model()
    torch.manual_seed(0)
    inputs, targets = torch.randn(6, 1), torch.randint(0, classes, (6,))
    true = torch.autograd.grad(task.loss(model(inputs), targets).sum(), list(model.parameters()))
    gradients = PerRecordGradients(model, task.loss)
    gradients.norms(inputs, targets)

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("autograd was asked")

    # The comparison with autograd is over; from here on the closed form is alone.
    monkeypatch.setattr(torch.autograd, "grad", refused)
    found = gradients.clipped_sum(inputs, targets, clip_norm=1e9)
    for value, expected in zip(found.gradients.values(), true, strict=True):
        torch.testing.assert_close(value, expected)


def test_scores_of_two_columns_are_no_logistic_regression() -> None:
    with pytest.raises(ValueError, match="one output of the model, not 2"):
        PerRecordGradients(nn.Linear(3, 2), logistic).norms(torch.randn(4, 3), torch.zeros(4))


def test_focal_and_weighted_losses_are_those_of_their_formula() -> None:
    for classes, score in ((2, [0.7]), (3, [0.7, -1.2, 0.1])):
        powers = [math.exp(value) for value in ([0.0, *score] if classes == 2 else score)]
        weights = (0.5, 2.0, 3.0)[:classes]
        for label in range(classes):
            p = powers[label] / sum(powers)
            found = ClassLoss(2.5, weights)(torch.tensor([score], dtype=torch.float64), torch.tensor([label]))
            assert float(found) == pytest.approx(-weights[label] * (1 - p) ** 2.5 * math.log(p), rel=1e-12)


def test_without_numbers_of_their_own_losses_are_the_plain_ones() -> None:
    assert (class_loss(2), class_loss(3), number_loss(None)) == (logistic, cross_entropy, squared_error)
    assert class_loss(2, 2.0) == ClassLoss(2.0)
    scores, labels = torch.randn(5, 3, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2, 1, 0])
    torch.testing.assert_close(ClassLoss()(scores, labels), cross_entropy(scores, labels))
    torch.testing.assert_close(ClassLoss(0.0, (2.0, 2.0, 2.0))(scores, labels), 2 * cross_entropy(scores, labels))
    torch.testing.assert_close(ClassLoss()(scores[:, :1], labels % 2), logistic(scores[:, :1], labels % 2))


def test_huber_is_squared_up_to_delta_and_twice_that_of_torch() -> None:
    outputs = torch.tensor([[-4.0], [0.5], [3.0]], dtype=torch.float64)
    found = Huber(2.0)(outputs, torch.zeros(3))
    torch.testing.assert_close(
        found, 2 * functional.huber_loss(outputs, torch.zeros_like(outputs), reduction="none", delta=2.0).squeeze(1)
    )
    assert found[1] == 0.25


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("gamma", [0.0, 1.0, 2.0, 3.5])
def test_losses_of_extreme_scores_and_their_gradients_are_finite(gamma: float, outputs: int) -> None:
    scores = torch.tensor([[200.0], [-200.0], [0.0], [60.0]]).repeat(1, outputs)
    scores[:, 1:] *= -1
    labels = torch.tensor([0, 1, 1, 1])
    loss, given = ClassLoss(gamma), scores.clone().requires_grad_()
    (true,) = torch.autograd.grad(loss(given, labels).sum(), given)
    assert torch.isfinite(loss(scores, labels)).all()
    assert torch.isfinite(loss.signal(scores, labels)).all()
    torch.testing.assert_close(loss.signal(scores, labels), true, rtol=1e-5, atol=1e-6)


FAR = (0.0, 1.0, -1.0, 88.0, -104.0, 1e4, -1e4, 1e20, -1e20, 3e38, -3e38)
PIXELS = torch.tensor([[[0, 1], [-1, 2]]])


@pytest.mark.parametrize(
    ("loss", "targets", "bound"),
    [
        (cross_entropy, torch.tensor([1]), 1.0),
        (ClassLoss(0.0, (1.0, 5.0, 2.0)), torch.tensor([1]), 5.0),
        # γ (1 − p)^(γ − 1) p |log p| is at most γ/e, for p |log p| is at most 1/e.
        (ClassLoss(1.0), torch.tensor([0]), 1 + 1 / math.e),
        (ClassLoss(2.0, (1.0, 5.0, 2.0)), torch.tensor([2]), 2 * (1 + 2 / math.e)),
        (ClassLoss(10.0), torch.tensor([0]), 1 + 10 / math.e),
        (LabelsLoss(), torch.tensor([[0.0, 1.0, math.nan]]), 1.0),
        (Huber(0.3), torch.zeros(1, 3), 0.6),
        (DiscreteHazard((0.2, 0.5, 1.0)), torch.tensor([[0.4, 1.0]]), 1.0),
        (DiscreteHazard((0.2, 0.5, 1.0)), torch.tensor([[1.0, 0.0]]), 1.0),
        (PiecewiseExponential((0.2, 0.5, 1.0)), torch.tensor([[0.4, 1.0]]), 0.3 * math.exp(30)),
        (PiecewiseExponential((0.2, 0.5, 1.0)), torch.tensor([[1.0, 0.0]]), 0.5 * math.exp(30)),
        (PixelLoss((1.0, 2.0, 5.0), 0.7), PIXELS, 5.0 + 0.7),
    ],
    ids=lambda value: str(value) if isinstance(value, float) else None,
)
def test_no_score_makes_a_gradient_infinite_or_larger_than_public_numbers_say(
    loss: Loss, targets: Tensor, bound: float
) -> None:
    scores = torch.tensor(list(itertools.product(FAR, repeat=3)))
    if isinstance(loss, PixelLoss):
        scores = scores[:, :, None, None].expand(-1, -1, 2, 2)
    scores = scores.clone().requires_grad_()
    of_each = targets.expand(len(scores), *targets.shape[1:])
    (true,) = torch.autograd.grad(loss(scores, of_each).sum(), scores)
    assert float(true.abs().max()) <= bound * (1 + 1e-6)
    signal = signal_of(loss)
    if signal is not None:
        torch.testing.assert_close(signal(scores.detach(), of_each), true, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("gamma", [0.0, 1.0, 2.0, 10.0])
def test_of_one_score_for_two_classes_neither(gamma: float) -> None:
    loss, scores = ClassLoss(gamma, (3.0, 1.0)), torch.tensor(FAR)[:, None].requires_grad_()
    for label in (0, 1):
        labels = torch.full((len(FAR),), label)
        (true,) = torch.autograd.grad(loss(scores, labels).sum(), scores)
        assert float(true.abs().max()) <= (3.0, 1.0)[label] * (1 + gamma / math.e)
        torch.testing.assert_close(loss.signal(scores.detach(), labels), true, rtol=1e-5, atol=1e-6)


def test_a_hazard_goes_on_as_its_tangent_where_it_is_nobodys() -> None:
    loss, targets = PiecewiseExponential((1.0,)), torch.tensor([[0.5, 0.0]]).repeat(3, 1)
    found = loss(torch.tensor([[29.0], [30.0], [32.0]], dtype=torch.float64), targets)
    expected = [0.5 * math.exp(29), 0.5 * math.exp(30), 0.5 * math.exp(30) * 3]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=0)


def test_a_label_that_is_not_known_moves_nothing() -> None:
    scores = torch.randn(1, 3, generator=torch.Generator().manual_seed(2))
    some, all_known = torch.tensor([[1.0, float("nan"), 0.0]]), torch.tensor([[1.0, 0.0]])
    kept = scores[:, [0, 2]]
    torch.testing.assert_close(LabelsLoss()(scores, some), LabelsLoss()(kept, all_known))
    assert LabelsLoss().signal(scores, some)[0, 1] == 0


def test_a_hazard_that_nobody_is_exposed_to_moves_nothing() -> None:
    loss = PiecewiseExponential((0.5, 1.0))
    outputs = torch.tensor([[0.3, 200.0]], requires_grad=True)
    found = loss(outputs, torch.tensor([[0.25, 1.0]]))
    (grad,) = torch.autograd.grad(found.sum(), outputs)
    assert bool(torch.isfinite(found).all())
    assert torch.equal(grad, loss.signal(outputs.detach(), torch.tensor([[0.25, 1.0]])))
    assert grad[0, 1] == 0
