"""What keeps norms and sums in the parameters' own precision."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch


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
