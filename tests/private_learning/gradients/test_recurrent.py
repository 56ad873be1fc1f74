"""Recurrent layers against one backward per record, and against whoever is in the other slots."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from private_learning.gradients import PerRecordGradients, UnsupportedLayer
from private_learning.gradients.capture import Capture
from private_learning.gradients.clipping import SAFETY
from private_learning.gradients.errors import NotLayerwise
from private_learning.gradients.inspection import gradients_of
from private_learning.gradients.recurrent import RecurrentCell, RecurrentRule
from private_learning.gradients.slots import Slots
from tests.private_learning.gradients.test_slots import MODELS, alone

RECORDS, STEPS, WIDTH = 5, 6, 3
KINDS = {
    "LSTM": nn.LSTM,
    "GRU": nn.GRU,
    "RNN tanh": nn.RNN,
    "RNN relu": lambda *sizes, **more: nn.RNN(*sizes, nonlinearity="relu", **more),
}


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.flatten(1).sin() - targets[:, None]).square().sum(1)


def lengths_of(x: Tensor) -> Tensor:
    """Between 1 and the steps, by the records' own numbers."""
    return (x[:, :, 0].abs() * 7).long().sum(1).remainder(x.shape[1]).add(1).cpu()


def joined(states: Any) -> Tensor:
    """(batch, numbers) of what the layer says at the end."""
    return torch.cat([s.transpose(0, 1).flatten(1) for s in (states if isinstance(states, tuple) else (states,))], 1)


class Whole(nn.Module):
    """One recurrent module, padded or packed, whose outputs, last states or both are used; states given or not."""

    def __init__(self, kind: str, *, packed: bool, used: str, given: bool, batch_first: bool, **more: Any) -> None:
        super().__init__()
        self.rnn = KINDS[kind](WIDTH, 4, batch_first=batch_first, **more)
        self.packed, self.used, self.first = packed, used, batch_first
        self.start = nn.Linear(WIDTH, 4 * self.ways * self.rnn.num_layers) if given else None
        self.head = nn.Linear(self.ways * (more.get("proj_size") or 4), 2)

    @property
    def ways(self) -> int:
        return 2 if self.rnn.bidirectional else 1

    def states(self, x: Tensor) -> Any:
        if self.start is None:
            return None
        every = self.start(x[:, 0]).view(len(x), -1, 4).transpose(0, 1).contiguous()
        width = self.rnn.proj_size or 4
        return (every[..., :width], every.cos()) if isinstance(self.rnn, nn.LSTM) else every

    def forward(self, x: Tensor) -> Tensor:
        given = x if self.first else x.transpose(0, 1)
        if self.packed:
            given = pack_padded_sequence(given, lengths_of(x), batch_first=self.first, enforce_sorted=False)
        y, last = self.rnn(given, self.states(x))
        if self.packed:
            y, _ = pad_packed_sequence(y, batch_first=self.first, total_length=x.shape[1])
        y = self.head(y if self.first else y.transpose(0, 1))
        return {"outputs": y.flatten(1), "states": joined(last), "both": torch.cat([y.flatten(1), joined(last)], 1)}[
            self.used
        ]


class Stack(nn.Module):
    """Codes, an embedding, two recurrent layers in a row, one of them called twice, and the mean over time."""

    def __init__(self) -> None:
        super().__init__()
        self.codes, self.first = nn.Embedding(9, 4), nn.LSTM(4, 4, batch_first=True)
        self.second, self.head = nn.GRU(4, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        codes = x[:, :, 0].abs().mul(3).long().remainder(9)
        y, state = self.first(self.codes(codes))
        y, _ = self.first(y, state)
        return self.head(self.second(y.transpose(0, 1))[0].mean(0))


class Cells(nn.Module):
    """A loop of cells, written by hand."""

    def __init__(self, cell: Any) -> None:
        super().__init__()
        self.cell, self.head = cell, nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        state = None
        for t in range(x.shape[1]):
            state = self.cell(x[:, t], state)
        return self.head(state[0] if isinstance(state, tuple) else state)


def agrees(model: nn.Module, x: Tensor, y: Tensor, relative: float) -> PerRecordGradients:
    """The norms and the clipped sum are those of one backward per record; neither clips all nor nothing."""
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    rows = [gradients_of(loss(model(x[i : i + 1]), y[i : i + 1]).sum(), parameters) for i in range(len(x))]
    true = torch.stack([torch.cat([g.flatten() for g in row.values()]).double().norm() for row in rows])
    bound = float(true.median())
    gradients = PerRecordGradients(model, loss)
    found = gradients.clipped_sum(x, y, clip_norm=bound)
    torch.testing.assert_close(found.norms, true, rtol=relative, atol=1e-12)
    factors = (bound * SAFETY[x.dtype] / true).clamp(max=1.0)
    for name in parameters:
        expected = sum(f * row[name].double() for f, row in zip(factors, rows, strict=True))
        torch.testing.assert_close(found.gradients[name].double(), expected, rtol=relative, atol=bound * relative)
    return gradients


def records(dtype: torch.dtype = torch.float64, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(RECORDS, STEPS, WIDTH, generator=generator, dtype=dtype)
    return x, torch.randn(RECORDS, generator=generator, dtype=dtype)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_norms_and_sums_are_those_of_one_backward_per_record(data: st.DataObject) -> None:
    draw = data.draw
    kind = draw(st.sampled_from(list(KINDS)))
    more: dict[str, Any] = {"proj_size": 2} if kind == "LSTM" and draw(st.booleans()) else {}
    more |= {name: draw(st.booleans()) for name in ("packed", "given", "batch_first", "bidirectional", "bias")}
    used, layers = draw(st.sampled_from(["outputs", "states", "both"])), draw(st.integers(1, 3))
    torch.manual_seed(draw(st.integers(0, 99)))
    model = Whole(kind, used=used, num_layers=layers, **more).double()
    for parameter in model.parameters():
        parameter.requires_grad_(draw(st.integers(0, 4)) > 0)
    model.head.bias.requires_grad_()
    x, y = records(seed=draw(st.integers(0, 99)))
    # With everything before the loss frozen there is nothing to compare with.
    assume(model(x).requires_grad)
    gradients = agrees(model, x, y, relative=1e-9)
    assert gradients.method == "layerwise", gradients.reason


@pytest.mark.quick("True-RNN relu")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("packed", [False, True])
def test_in_single_precision_to_five_digits(kind: str, packed: bool) -> None:
    torch.manual_seed(3)
    model = Whole(kind, packed=packed, used="both", given=True, batch_first=True, bidirectional=True, num_layers=2)
    assert agrees(model, *records(torch.float32), relative=1e-5).method == "layerwise"


@pytest.mark.quick("GRUCell-False", "RNNCell-False")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "make", [nn.LSTMCell, nn.GRUCell, nn.RNNCell, lambda *s, **m: nn.RNNCell(*s, nonlinearity="relu", **m)]
)
def test_cells_in_a_loop(make: Any, bias: bool) -> None:
    torch.manual_seed(4)
    assert agrees(Cells(make(WIDTH, 4, bias=bias)).double(), *records(), relative=1e-9).method == "layerwise"


def test_two_in_a_row_and_one_called_twice() -> None:
    torch.manual_seed(5)
    assert agrees(Stack().double(), *records(), relative=1e-9).method == "layerwise"


@pytest.mark.slow
def test_dropout_between_layers_is_torch_s_own() -> None:
    """The engine compares with autograd under the same randomness; were it another, so would be the method."""
    torch.manual_seed(6)
    more = {"used": "both", "given": False, "batch_first": True, "num_layers": 2, "dropout": 0.5}
    x, y = records(torch.float32)
    gradients = PerRecordGradients(Whole("GRU", packed=False, **more), loss)
    gradients.clipped_sum(x, y, clip_norm=1.0)
    assert gradients.method == "layerwise", gradients.reason
    gradients = PerRecordGradients(Whole("GRU", packed=True, **more), loss)
    gradients.clipped_sum(x, y, clip_norm=1.0)
    assert "drops units of packed sequences" in gradients.reason
    assert agrees(Whole("GRU", packed=True, **more).double().eval(), *records(), relative=1e-9).method == "layerwise"


class Ragged(nn.Module):
    """Shapes that follow the longest record: unpacked to that length, or cut off before."""

    def __init__(self, cut: bool) -> None:
        super().__init__()
        self.rnn, self.head, self.cut = nn.GRU(WIDTH, 4, batch_first=True), nn.Linear(4, 2), cut

    def forward(self, x: Tensor) -> Tensor:
        lengths = x[:, :, 0].ne(0).sum(1)
        if self.cut:
            return self.head(self.rnn(x[:, : int(lengths.max())])[1][0])
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.head(pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]).sum(1)


@pytest.mark.parametrize("short", [False, True])
def test_shapes_that_follow_the_longest_record_are_found_out_whatever_the_records(short: bool) -> None:
    torch.manual_seed(7)
    model, (x, y) = Ragged(cut=False).double().eval(), records()
    gradients = PerRecordGradients(model, lambda o, t: loss(o, t))
    x[:, :, 0] = x[:, :, 0].abs() + 1
    if short:
        x[:3, 4:] = 0
    found = gradients.norms(x[:3], y[:3])
    assert "pass total_length" in gradients.reason
    assert gradients.method == "one by one"
    parameters = list(model.parameters())
    for i in range(3):
        row = torch.autograd.grad(loss(model(x[i : i + 1]), y[i : i + 1]).sum(), parameters)
        true = torch.cat([g.flatten() for g in row]).norm()
        torch.testing.assert_close(float(found[i]), float(true), rtol=1e-9, atol=0.0)


def test_sequences_that_are_cut_behind_the_longest_of_the_batch_are_refused() -> None:
    # A short record's last state lies farther behind its end in a batch with longer ones.
    with pytest.raises(UnsupportedLayer, match="other records"):
        PerRecordGradients(Ragged(cut=True).double().eval(), lambda o, t: loss(o, t)).norms(*records())


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_record_has_one_gradient_in_a_slot_whatever_its_companions_lengths(kind: str, packed: bool) -> None:
    torch.manual_seed(8)
    model = Whole(kind, packed=packed, used="both", given=False, batch_first=True, bidirectional=True, num_layers=2)
    generator = torch.Generator().manual_seed(9)
    x, y = torch.randn(60, 9, WIDTH, generator=generator), torch.randn(60, generator=generator)
    order = lengths_of(x)
    short, long = (torch.arange(1, 60)[at[1:]].tolist() for at in (order <= 3, order >= 7))
    MODELS["recurrent"] = (model, loss, x, y)
    try:
        for slot in (0, 17):
            first, norm = alone("recurrent", "layerwise", [], slot, 18)
            assert any(bool(value.any()) for value in first.values())
            for others in (short[:1], short[:9], long[:1], long[:9], list(range(1, 18))):
                again, same = alone("recurrent", "layerwise", others, slot, 18)
                assert same == norm
                assert all(torch.equal(value, again[name]) for name, value in first.items())
    finally:
        del MODELS["recurrent"]


def test_what_is_behind_the_end_of_a_sequence_counts_nothing() -> None:
    """States that would overflow there, were they carried on."""
    torch.manual_seed(10)
    model = Whole("RNN relu", packed=True, used="states", given=False, batch_first=True, num_layers=1)
    with torch.no_grad():
        model.rnn.weight_hh_l0.copy_(torch.eye(4) * 1e30)
    x, y = records(torch.float32)
    x = x.repeat(1, 4, 1).abs()
    x[:, 1:, 0] = 0
    x[:, 0, 0] = 0.0
    found = PerRecordGradients(model, loss, method="layerwise").norms(x, y)
    assert bool(torch.isfinite(found).all())
    assert lengths_of(x).tolist() == [1] * RECORDS


def test_numbers_that_are_not_finite_count_as_zero_where_they_reach() -> None:
    model = Whole("LSTM", packed=False, used="states", given=False, batch_first=True, num_layers=1)
    x, y = records(torch.float32)
    gradients = PerRecordGradients(model, loss)
    gradients.norms(x, y)
    x[2, 1, 0] = float("nan")
    found, others = gradients.clipped_sum(x, y, clip_norm=1.0), [row for row in range(RECORDS) if row != 2]
    rest = gradients.clipped_sum(x[others], y[others], clip_norm=1.0)
    assert torch.isinf(found.norms).nonzero().flatten().tolist() == [2]
    torch.testing.assert_close(found.gradients, rest.gradients)
    with torch.no_grad():
        model.rnn.weight_hh_l0[0, 0] = float("inf")
    none = gradients.clipped_sum(records(torch.float32)[0], y, clip_norm=1.0)
    assert none.failed == RECORDS
    assert not any(bool(value.any()) for value in none.gradients.values())


def test_a_change_in_place_does_not_reach_the_gradients() -> None:
    class Changed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.LSTM(WIDTH, 4, batch_first=True), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.rnn(x)[0].mul(1.0).mul_(0.5)[:, -1])

    torch.manual_seed(11)
    assert agrees(Changed().double(), *records(), relative=1e-9).method == "layerwise"


@pytest.mark.parametrize("change", ["subclass", "weight normed", "patched"])
def test_another_module_than_torch_s_is_left_to_the_fallback(change: str) -> None:
    torch.manual_seed(12)

    class Scaled(nn.GRU):
        def forward(self, input: Any, hx: Any = None) -> Any:
            y, last = super().forward(input, hx)
            return 2 * y, last

    model = Whole("GRU", packed=False, used="outputs", given=False, batch_first=True, num_layers=1)
    if change == "subclass":
        model.rnn = Scaled(WIDTH, 4, batch_first=True)
    elif change == "weight normed":
        nn.utils.parametrizations.weight_norm(model.rnn, "weight_hh_l0")
    else:
        plain = model.rnn.forward
        model.rnn.forward = lambda *given: plain(*given)
    gradients = agrees(model.double(), *records(), relative=1e-9)
    assert gradients.method != "layerwise"
    assert "GRU" in gradients.reason or "Scaled" in gradients.reason or "Parametrized" in gradients.reason


def test_slots_change_nothing_but_rounding() -> None:
    torch.manual_seed(13)
    model = Whole("LSTM", packed=True, used="both", given=True, batch_first=False, num_layers=2).double()
    gradients, (x, y) = PerRecordGradients(model, loss, method="layerwise"), records()
    plain = gradients.clipped_sum(x, y, clip_norm=0.5)
    placed = gradients.clipped_sum(x, y, clip_norm=0.5, slots=Slots(8))
    torch.testing.assert_close(placed.norms, plain.norms, rtol=1e-12, atol=0.0)
    for name, value in plain.gradients.items():
        torch.testing.assert_close(placed.gradients[name], value, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_the_maps_hold_every_parameter_and_no_other(kind: str, bidirectional: bool) -> None:
    more: dict[str, Any] = {"proj_size": 2} if kind == "LSTM" else {}
    module = KINDS[kind](WIDTH, 4, num_layers=2, bidirectional=bidirectional, **more)
    names = {name: f"model.{name}" for name, _ in module.named_parameters()}
    rule = RecurrentRule("rnn", module, names)
    assert RecurrentRule.expected(module) == set(names)
    assert sorted(name for part in rule.parts for name in part.names.values()) == sorted(names.values())


def test_one_sequence_without_a_batch_is_not_taken() -> None:
    with Capture([], torch.device("cpu")) as capture:
        with pytest.raises(NotLayerwise, match="one sequence and no batch"):
            RecurrentRule("rnn", nn.GRU(3, 4), {}).forward(capture, torch.zeros(5, 3))
        with pytest.raises(NotLayerwise, match="one record and no batch"):
            RecurrentCell("cell", nn.GRUCell(3, 4), {}).forward(capture, torch.zeros(3))
