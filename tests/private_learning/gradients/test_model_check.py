"""The comparison that decides whether layer-wise book-keeping is trusted: it passes the right and finds the wrong."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from private_learning.gradients import PerRecordGradients
from private_learning.gradients.errors import NotLayerwise, UnsupportedLayer
from private_learning.gradients.layers import LinearLayer
from private_learning.gradients.layerwise import Layerwise
from private_learning.gradients.model import Method
from private_learning.gradients.model_check import (
    refuse_memory,
    refuse_mixing,
    repeatable,
    tolerance,
    verify,
    weights_tried,
)

X = torch.linspace(-1, 1, 12).view(3, 4)
Y = torch.tensor([0.0, 1.0, 2.0])
CPU = torch.device("cpu")


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.sum(1) - targets).square()


def test_randomness_is_rewound_inside_and_restored_outside() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    with repeatable(CPU) as rewind:
        first = torch.rand(3)
        rewind()
        assert torch.equal(torch.rand(3), first)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_right_model_passes_and_tells_what_it_holds() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5), nn.Linear(3, 2))
    refuse_mixing(model, X)
    # Inputs and output gradients of both layers: 4 + 3 + 3 + 2 numbers.
    assert verify(Layerwise(model, loss), X, Y) == 12


def test_a_wrong_closed_form_is_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Layerwise(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), loss)
    plain = LinearLayer.weighted_sum

    def off(
        self: LinearLayer, a: Tensor, g: Tensor, weights: dict[str, Tensor], kept: dict[str, list[Tensor]]
    ) -> object:
        found = plain(self, a, g, weights, kept)
        return found | ({"bias": found["bias"] * 1.01} if self.name == "1" else {})

    monkeypatch.setattr(LinearLayer, "weighted_sum", off)
    with pytest.raises(NotLayerwise, match=r"'1\.bias' disagrees"):
        verify(engine, X, Y)


def test_a_wrong_norm_alone_is_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Layerwise(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), loss)
    plain = LinearLayer.squares

    def off(self: LinearLayer, a: Tensor, g: Tensor) -> object:
        values, kept = plain(self, a, g)
        return {key: 1.02 * value for key, value in values.items()}, kept

    monkeypatch.setattr(LinearLayer, "squares", off)
    with pytest.raises(NotLayerwise, match="disagrees"):
        verify(engine, X, Y)


class Mixing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


class Counting(nn.Module):
    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        return x


class Remembering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = 0.0

    def forward(self, x: Tensor) -> Tensor:
        before, self.last = self.last, float(x.mean())
        return x + before


class Sorting(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[x.sum(1).argsort()]


class Attending(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(x @ x.T, 1) @ x


@pytest.mark.parametrize("kind", [Mixing, Sorting, Attending])
def test_records_that_meet_are_refused(kind: type[nn.Module]) -> None:
    for model in (kind(), nn.Sequential(nn.Dropout(0.5), kind())):
        with pytest.raises(UnsupportedLayer, match="other records of its batch"):
            refuse_mixing(model, torch.randn(8, 4, generator=torch.Generator().manual_seed(1)))


@pytest.mark.parametrize(("kind", "name"), [(Counting, "'seen'"), (Remembering, "'last'")])
def test_what_is_kept_from_call_to_call_is_refused(kind: type[nn.Module], name: str) -> None:
    with pytest.raises(UnsupportedLayer, match=name):
        refuse_memory(kind(), X, 2 * X)


def test_weights_are_tried_and_put_back_whatever_happens() -> None:
    model = nn.Linear(4, 3)
    own = model.weight.detach().clone()
    tried = weights_tried(model)
    next(tried)
    assert not torch.equal(model.weight, own)
    tried.close()
    assert torch.equal(model.weight, own)


def test_the_allowance_follows_the_precision() -> None:
    assert tolerance(torch.float64, CPU) < tolerance(torch.float32, CPU) < tolerance(torch.bfloat16, CPU)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert tolerance(torch.float32, CPU) == tolerance(torch.bfloat16, CPU)


class Fitted(nn.Module):
    """Takes the mean of its first batch off, whoever is in it."""

    stored: Tensor
    done: Tensor

    def __init__(self, keeps: str) -> None:
        super().__init__()
        self.layer, self.keeps, self.mean = nn.Linear(4, 2), keeps, torch.zeros(4)
        self.register_buffer("stored", torch.zeros(4))
        self.register_buffer("done", torch.tensor(False))

    def forward(self, x: Tensor) -> Tensor:
        if not bool(self.done):
            self.done.fill_(True)
            if self.keeps == "public":
                self.mean = torch.ones(x.shape[1])
            else:
                self.mean = x.mean(0) if self.keeps == "attribute" else self.mean
                self.stored.copy_(x.mean(0) if self.keeps == "buffer" else self.mean)
        return self.layer(x - self.mean - self.stored)


def test_a_model_that_fits_itself_to_its_first_batch_is_refused() -> None:
    for keeps in ("attribute", "buffer"):
        with pytest.raises(UnsupportedLayer, match="called with first"):
            PerRecordGradients(Fitted(keeps), loss).norms(X, Y)
    # What follows from shapes alone may be kept.
    assert len(PerRecordGradients(Fitted("public"), loss).norms(X, Y)) == len(X)


class OfMany(nn.Module):
    """Mixes records in large batches alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x - x.mean(0) if len(x) > 64 else x)


def test_records_are_tried_in_batches_as_wide_as_a_pass() -> None:
    with pytest.raises(UnsupportedLayer, match="other records"):
        PerRecordGradients(OfMany(), loss).norms(X, Y)


class Drawing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(self.layer(x), 0.5, training=True)


def test_a_model_that_draws_in_evaluation_mode_is_refused() -> None:
    with pytest.raises(UnsupportedLayer, match="evaluation mode"):
        PerRecordGradients(Drawing().eval(), loss).norms(X, Y)


class OfBatches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.batch_norm(self.layer(x), None, None, training=True)


def test_a_model_that_runs_on_no_single_record_is_refused_in_words() -> None:
    with pytest.raises(UnsupportedLayer, match="not on one record by itself"):
        PerRecordGradients(OfBatches(), loss).norms(X, Y)


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.div_(2))


@pytest.mark.parametrize("method", ["auto", "vmap"])
def test_what_a_model_and_a_loss_change_in_place_is_not_the_caller_s(method: Method) -> None:
    def shifted(outputs: Tensor, targets: Tensor) -> Tensor:
        targets -= 1
        return loss(outputs, targets)

    torch.manual_seed(3)
    model, x, y = InPlace(), X.clone(), Y.clone()
    gradients = PerRecordGradients(model, shifted, method=method)
    norms = [gradients.norms(x, y) for _ in range(2)]
    assert torch.equal(x, X)
    assert torch.equal(y, Y)
    for found in norms:
        for row, norm in enumerate(found):
            single = loss(model(X[row : row + 1].clone()), Y[row : row + 1] - 1).sum()
            true = torch.cat([g.flatten() for g in torch.autograd.grad(single, list(model.parameters()))]).norm()
            torch.testing.assert_close(float(norm), float(true), rtol=1e-5, atol=0.0)
