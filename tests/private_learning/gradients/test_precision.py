"""Norms and sums keep their precision whatever the process allows its products elsewhere; bfloat16; constant memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from private_learning.gradients import PerRecordGradients
from private_learning.gradients.clipping import exact_products
from private_learning.training.noise import SecureSource, add_noise

BACKENDS: Any = torch.backends  # its modules of switches are made at run time
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.flatten(1) - targets[:, None]).square().sum(1)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.GroupNorm(4, 16), nn.Tanh(),
        nn.Flatten(), nn.Linear(16, 4),
    )  # fmt: skip


@pytest.fixture
def coarse() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.usefixtures("coarse")
def test_coarse_products_are_suspended_for_the_step() -> None:
    seen: list[str] = []

    allowed, model = BACKENDS.mkldnn.matmul.fp32_precision, network()
    # Not in the loss, which may remember nothing.
    model.register_forward_hook(lambda *_: seen.append(BACKENDS.mkldnn.matmul.fp32_precision))
    PerRecordGradients(model, squared_error).clipped_sum(torch.randn(4, 1, 8, 8), torch.randn(4), clip_norm=1.0)
    assert set(seen) == {"ieee"} != {allowed}
    assert BACKENDS.mkldnn.matmul.fp32_precision == allowed


def test_tf32_on_cuda_is_suspended_and_comes_back_after_a_failure() -> None:
    switches = (BACKENDS.cudnn.conv, BACKENDS.cudnn.rnn, BACKENDS.cuda.matmul)
    before = [switch.fp32_precision for switch in switches]
    with pytest.raises(RuntimeError), exact_products(torch.device("cuda")):
        raise RuntimeError([switch.fp32_precision for switch in switches] == 3 * ["ieee"])
    assert [switch.fp32_precision for switch in switches] == before


def test_on_cuda_sums_are_added_in_one_order_and_no_kernel_is_chosen_by_its_time() -> None:
    """The switches alone, which can be set without a device."""
    state = torch.are_deterministic_algorithms_enabled, lambda: BACKENDS.cudnn.benchmark
    BACKENDS.cudnn.benchmark = True
    try:
        with exact_products(torch.device("cuda")):
            assert [of() for of in state] == [True, False]
            assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert [of() for of in state] == [False, True]
    finally:
        BACKENDS.cudnn.benchmark = False


@pytest.mark.gpu
@CUDA
@pytest.mark.parametrize("method", ["layerwise", "vmap"])
def test_a_cuda_device_gives_the_sums_of_the_host(method: str) -> None:
    inputs, targets = torch.randn(70, 1, 8, 8), torch.randn(70)
    here = PerRecordGradients(network(), squared_error, method=method)  # type: ignore[arg-type]
    there = PerRecordGradients(network().cuda(), squared_error, method=method)  # type: ignore[arg-type]
    expected = here.clipped_sum(inputs, targets, clip_norm=1.0)
    found = there.clipped_sum(inputs.cuda(), targets.cuda(), clip_norm=1.0)
    assert found.norms.is_cuda
    torch.testing.assert_close(found.norms.cpu(), expected.norms, rtol=1e-4, atol=0)
    for name, value in expected.gradients.items():
        torch.testing.assert_close(found.gradients[name].cpu(), value, rtol=1e-4, atol=1e-5)
    noised = add_noise(found, noise_multiplier=1.0, source=SecureSource())
    assert all(value.is_cuda for value in noised.gradients.values())


@pytest.mark.gpu
@CUDA
def test_bfloat16_on_cuda_keeps_contributions_within_the_clip_norm() -> None:
    gradients = PerRecordGradients(network().cuda(), squared_error)
    inputs, targets = torch.randn(1, 1, 8, 8).cuda() * 9, torch.randn(1).cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        found = gradients.clipped_sum(inputs, targets, clip_norm=1e-3)
    assert sum(float(value.double().square().sum()) for value in found.gradients.values()) <= 1e-6


def test_bfloat16_keeps_contributions_within_the_clip_norm() -> None:
    gradients = PerRecordGradients(network(), squared_error)
    torch.manual_seed(1)
    for scale in (1e-2, 1.0, 100.0):
        inputs, targets = torch.randn(1, 1, 8, 8) * scale, torch.randn(1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = gradients.clipped_sum(inputs, targets, clip_norm=1e-3)
        assert gradients.method == "layerwise"
        assert float(found.norms) > 1e-3
        assert sum(float(value.double().square().sum()) for value in found.gradients.values()) <= 1e-6


def test_a_pass_never_holds_more_records_than_the_micro_batch() -> None:
    """Whatever the batch: that is what makes memory constant."""
    sizes: list[int] = []
    model = network()
    model.register_forward_hook(lambda _module, _inputs, outputs: sizes.append(len(outputs)))
    gradients = PerRecordGradients(model, squared_error, micro_batch=7)
    gradients.norms(torch.randn(5, 1, 8, 8), torch.randn(5))
    sizes.clear()
    for batch in (5, 50, 500):
        gradients.clipped_sum(torch.randn(batch, 1, 8, 8), torch.randn(batch), clip_norm=1.0)
        assert max(sizes) <= 7
    own = PerRecordGradients(model, squared_error)
    # Generated records, which are as many whatever the batch, come before the first pass.
    own.norms(torch.randn(5, 1, 8, 8), torch.randn(5))
    sizes.clear()
    own.norms(torch.randn(2000, 1, 8, 8), torch.randn(2000))
    assert max(sizes) == own.micro_batch <= 512
