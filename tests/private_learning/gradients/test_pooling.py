"""Pooling by comparison against PyTorch's own kernel, ties included."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from private_learning.gradients import PerRecordGradients
from private_learning.gradients.pooling import max_pool, max_pools, pooled_by_comparison

sizes = st.tuples(st.integers(1, 3), st.integers(1, 4))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    kernel=sizes,
    stride=sizes,
    padded=st.booleans(),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(4, 9), st.integers(4, 9)),
    values=st.sampled_from([2, 3, 1000]),
    seed=st.integers(0, 2**20),
)
def test_values_and_gradients_are_those_of_the_kernel(
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padded: bool,
    shape: tuple[int, ...],
    values: int,
    seed: int,
) -> None:
    """Few distinct values make ties; every window's gradient must go to the entry that PyTorch chooses."""
    module = nn.MaxPool2d(kernel, stride, (kernel[0] // 2, kernel[1] // 2) if padded else 0)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(values, shape, generator=generator).double().sub(values // 2).requires_grad_()
    theirs, ours = module(x), max_pool(module, x)
    assert torch.equal(ours, theirs)
    signal = torch.randint(1, 1 << 20, theirs.shape, generator=generator).double()
    # Whole numbers add up exactly in any order.
    assert torch.equal(*(torch.autograd.grad(y, x, signal)[0] for y in (ours, theirs)))


def test_nan_comes_out_again() -> None:
    x = torch.zeros(1, 1, 4, 4)
    x[0, 0, 1, 2] = float("nan")
    module = nn.MaxPool2d(2)
    assert torch.equal(max_pool(module, x).isnan(), module(x).isnan())


def test_what_is_left_to_pytorch() -> None:
    class Own(nn.MaxPool2d):
        pass

    patched = nn.MaxPool2d(2)
    patched.forward = lambda input: input
    others = [
        nn.MaxPool2d(2, dilation=2),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.MaxPool2d(2, return_indices=True),
        Own(2),
    ]
    plain = nn.MaxPool2d(2)
    assert max_pools(nn.Sequential(plain, *others, patched)) == [plain]


def test_the_layer_is_put_back_when_the_step_fails() -> None:
    layer = nn.MaxPool2d(2)
    with pytest.raises(RuntimeError), pooled_by_comparison([layer]):
        raise RuntimeError
    assert "forward" not in vars(layer)


def test_norms_through_pooling_layers_equal_one_backward_per_record() -> None:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets[:, None]).square().sum(1)

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Conv2d(3, 2, 3, 2, padding=1), nn.ReLU(),
        nn.MaxPool2d(3, 2, 1), nn.Flatten(), nn.Linear(8, 3),
    ).double()  # fmt: skip
    inputs, targets = torch.randn(5, 1, 10, 10).double(), torch.randn(5).double()
    gradients = PerRecordGradients(model, loss)
    found = gradients.norms(inputs, targets)
    assert gradients.method == "layerwise", gradients.reason
    each = [
        torch.autograd.grad(loss(model(x[None]), y[None]).sum(), list(model.parameters()))
        for x, y in zip(inputs, targets, strict=True)
    ]
    true = torch.stack([torch.cat([g.flatten() for g in row]).norm() for row in each])
    torch.testing.assert_close(found, true, rtol=1e-9, atol=0)
