"""How products are computed: in the parameters' own precision, and by the faster of the two CPU back ends.

PyTorch sends float32 products to MKL, which runs at half speed on processors of other makers; oneDNN, already used
for convolutions, does not. Same precision, other order of summation.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

# Below this many multiplications the call itself costs more than is won.
_WORTHWHILE = 1 << 21


def full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """No autocast: norms and sums stay in the parameters' type whatever the forward pass ran in."""
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


@contextmanager
def exact_products(device: torch.device) -> Generator[None]:
    """Within, products and convolutions of float32 are float32: no TensorFloat-32 and no bfloat16 in their place.

    On CUDA convolutions run in TF32 unless told otherwise. With its three digits a clipped sum would not keep to norms
    that were computed another way. The switches are the process's; they are put back afterwards.
    """
    switches = _switches(device)
    before = [getattr(owner, name) for owner, name, _ in switches]
    try:
        for owner, name, exact in switches:
            setattr(owner, name, exact)
        yield
    finally:
        for (owner, name, _), value in zip(switches, before, strict=True):
            setattr(owner, name, value)


def _switches(device: torch.device) -> list[tuple[Any, str, object]]:
    """(owner, attribute, exact value)."""
    backends: Any = torch.backends
    by_operation = hasattr(backends.cudnn, "conv")
    if device.type == "cuda":
        owners = (backends.cudnn.conv, backends.cuda.matmul) if by_operation else (backends.cudnn, backends.cuda.matmul)
    elif by_operation and torch.get_float32_matmul_precision() != "highest":
        owners = (backends.mkldnn.conv, backends.mkldnn.matmul)
    else:
        return []
    name, exact = ("fp32_precision", "ieee") if by_operation else ("allow_tf32", False)
    return [(owner, name, exact) for owner in owners]


@cache
def _operation() -> Any:
    return getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None


def product(x: Tensor, y: Tensor, bias: Tensor | None = None) -> Tensor:
    """x yᵀ (+ bias), of (rows, width) and (columns, width) matrices."""
    if (
        x.numel() * y.shape[0] >= _WORTHWHILE
        and x.device.type == "cpu"
        and x.dtype == y.dtype == torch.float32
        and _operation() is not None
        and not torch.is_autocast_enabled("cpu")
    ):
        return _operation()(x, y, bias, "none", [], "")
    return functional.linear(x, y, bias)
