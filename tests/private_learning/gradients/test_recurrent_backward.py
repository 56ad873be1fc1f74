"""Recurrent layers in one direction: signals and gradients of every record against autograd for that record alone."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from private_learning.gradients.capture import Capture
from private_learning.gradients.composite import Affine
from private_learning.gradients.recurrent_backward import CellSweep, GatedSweep, Maps, PlainSweep, Sweep

STEPS, RECORDS, WIDTH, UNITS = 5, 4, 3, 6
MODULES: dict[str, Any] = {
    "tanh": partial(nn.RNN, WIDTH, UNITS),
    "relu": partial(nn.RNN, WIDTH, UNITS, nonlinearity="relu"),
    "gru": partial(nn.GRU, WIDTH, UNITS),
    "lstm": partial(nn.LSTM, WIDTH, UNITS),
    "projected": partial(nn.LSTM, WIDTH, UNITS, proj_size=2),
    "no-bias": partial(nn.LSTM, WIDTH, UNITS, bias=False),
}
LENGTHS = torch.tensor([5, 1, 3, 4])


def module_called(name: str) -> Any:
    torch.manual_seed(2)
    return MODULES[name]().double()


def sweep_of(module: Any, capture: Capture, lengths: Tensor | None) -> Sweep:
    affine = partial(Affine, "rnn", module, {name: f"rnn.{name}" for name, _ in module.named_parameters()})
    biases = ("bias_ih_l0", "bias_hh_l0") if module.bias else (None, None)
    maps = Maps(
        affine("weight_ih_l0", biases[0]),
        affine("weight_hh_l0", biases[1]),
        affine("weight_hr_l0") if module.proj_size else None,
    )
    if isinstance(module, nn.LSTM):
        return CellSweep(capture, maps, lengths)
    if isinstance(module, nn.GRU):
        return GatedSweep(capture, maps, lengths)
    return PlainSweep(capture, maps, lengths, relu=module.nonlinearity == "relu")


def starts(module: Any) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return inputs (T, B, F) and states before the first step, which require grad."""
    draw = torch.Generator().manual_seed(3)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64).requires_grad_()

    x, h = normal(STEPS, RECORDS, WIDTH), normal(RECORDS, module.proj_size or UNITS)
    return x, h, normal(RECORDS, UNITS) if isinstance(module, nn.LSTM) else None


def loss_of(outputs: Tensor, cell: Tensor | None) -> Tensor:
    """Of one record: outputs up to its end and the (H,) last cell state, each number counted differently."""
    total = (torch.arange(1.0, outputs.numel() + 1, dtype=torch.float64) * outputs.flatten().sin()).sum()
    return total if cell is None else total + (torch.arange(1.0, len(cell) + 1) * cell.square()).sum()


def by_autograd(module: Any, record: int, length: int) -> tuple[Tensor, Tensor | None, list[Tensor]]:
    """Run torch's own module on one record, cut off at its end: outputs, last cell state, all gradients."""
    x, h, c = starts(module)
    state: Any = h[record : record + 1].unsqueeze(0)
    if c is not None:
        state = (state, c[record : record + 1].unsqueeze(0))
    y, last = module(x[:length, record : record + 1], state)
    outputs = torch.cat([y[:, 0], y.new_zeros(STEPS - length, y.shape[2])])
    cell = last[1][0, 0] if c is not None else None
    leaves = [x, h, *([] if c is None else [c]), *module.parameters()]
    return outputs, cell, list(torch.autograd.grad(loss_of(outputs[:length], cell), leaves))


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "unequal"])
@pytest.mark.parametrize("name", MODULES)
def test_every_record_has_the_gradients_of_one_backward(name: str, lengths: Tensor | None) -> None:
    module = module_called(name)
    x, h, c = starts(module)
    with Capture([], torch.device("cpu")) as capture:
        outputs, cell = sweep_of(module, capture, lengths)(x, h, c)
        ends = [STEPS] * RECORDS if lengths is None else lengths.tolist()
        losses = [loss_of(outputs[: ends[i], i], None if cell is None else cell[i]) for i in range(RECORDS)]
        leaves = [x, h, *([] if c is None else [c])]
        signals = torch.autograd.grad(sum(losses, torch.zeros(())), leaves)
    gradients: dict[str, Tensor] = {}
    for use in capture.uses:
        recorded = use.checked(RECORDS)
        assert recorded is not None
        for key, value in use.layer.per_record(*recorded).items():
            gradients[use.layer.names[key]] = value
    assert gradients.keys() == {f"rnn.{key}" for key, _ in module.named_parameters()}
    for i in range(RECORDS):
        true_outputs, true_cell, true = by_autograd(module, i, ends[i])
        torch.testing.assert_close(outputs[:, i], true_outputs, rtol=1e-12, atol=1e-12)
        if cell is not None:
            torch.testing.assert_close(cell[i], true_cell, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(signals[0][:, i], true[0][:, i], rtol=1e-9, atol=1e-12)
        for signal, expected in zip(signals[1:], true[1:], strict=False):
            torch.testing.assert_close(signal[i], expected[i], rtol=1e-9, atol=1e-12)
        of_parameters = true[len(leaves) :]
        for (key, _), expected in zip(module.named_parameters(), of_parameters, strict=True):
            torch.testing.assert_close(gradients[f"rnn.{key}"][i], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", MODULES)
def test_a_loss_behind_a_sequence_s_end_has_no_gradient(name: str) -> None:
    module = module_called(name)
    x, h, c = starts(module)
    signals: list[tuple[Tensor, ...]] = []
    for ends in (LENGTHS.tolist(), [STEPS] * RECORDS):
        with Capture([], torch.device("cpu")) as capture:
            outputs, _ = sweep_of(module, capture, LENGTHS)(x, h, c)
            total = torch.stack([loss_of(outputs[:end, i], None) for i, end in enumerate(ends)]).sum()
            signals.append(torch.autograd.grad(total, [x, h, *([] if c is None else [c])]))
        signals[-1] += tuple(use.checked(RECORDS)[1] for use in capture.uses)  # type: ignore[index]
    for within, behind in zip(*signals, strict=True):
        torch.testing.assert_close(within, behind, rtol=0, atol=0)


def test_outputs_that_the_loss_does_not_use_leave_the_cell_s_gradient_alone() -> None:
    module = module_called("lstm")
    x, h, c = starts(module)
    with Capture([], torch.device("cpu")) as capture:
        _, cell = sweep_of(module, capture, None)(x, h, c)
        assert cell is not None
        (signal,) = torch.autograd.grad(cell.square().sum(), [x])
    _, (_, last) = module(x, (h.unsqueeze(0), c.unsqueeze(0)))  # type: ignore[union-attr]
    (expected,) = torch.autograd.grad(last.square().sum(), [x])
    torch.testing.assert_close(signal, expected, rtol=1e-9, atol=1e-12)


def test_a_model_that_changes_the_outputs_does_not_change_the_gradients() -> None:
    module = module_called("tanh")
    x, h, c = starts(module)
    with Capture([], torch.device("cpu")) as capture:
        outputs, _ = sweep_of(module, capture, None)(x, h, c)
        doubled = outputs.mul_(2.0)
        (signal,) = torch.autograd.grad(doubled.sum(), [x])
    (expected,) = torch.autograd.grad(2 * module(x, h.unsqueeze(0))[0].sum(), [x])
    torch.testing.assert_close(signal, expected, rtol=1e-9, atol=1e-12)
