"""Matrix products by the faster of the two CPU back ends.

PyTorch sends float32 products to MKL, which runs at half speed on processors of other makers; oneDNN, already used
for convolutions, does not. Same precision, other order of summation.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

# Below this many multiplications the call itself costs more than is won.
_WORTHWHILE = 1 << 21


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
