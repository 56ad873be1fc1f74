"""Matrix products by the faster of the two CPU back ends.

PyTorch sends float32 products to MKL, which runs at half speed on processors of other makers; oneDNN, already used
for convolutions, does not. Same precision, other order of summation.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

# Below this many multiplications the call itself costs more than is won.
_WORTHWHILE = 1 << 20


def _find() -> object | None:
    operations = torch.ops.mkldnn
    return getattr(operations, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None


def product(x: Tensor, y: Tensor, bias: Tensor | None = None) -> Tensor:
    """x yᵀ (+ bias), of (rows, width) and (columns, width) matrices."""
    if (
        x.device.type == "cpu"
        and x.dtype == y.dtype == torch.float32
        and x.numel() * y.shape[0] >= _WORTHWHILE
        and (operation := _find()) is not None
        and not torch.is_autocast_enabled("cpu")
    ):
        return operation(x, y, bias, "none", [], "")  # type: ignore[operator,no-any-return]
    return functional.linear(x, y, bias)
