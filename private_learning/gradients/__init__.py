"""Per-record gradient norms and clipped sums of any PyTorch model.

`PerRecordGradients` picks layer-wise book-keeping where it is exact and per-record gradients elsewhere, and says
which and why. BatchNorm and other layers that mix records are refused.
"""

from __future__ import annotations

from private_learning.gradients.clipping import ClippedSum
from private_learning.gradients.errors import DeviceLost, NonFiniteError, UnsupportedLayer
from private_learning.gradients.model import PerRecordGradients
from private_learning.gradients.slots import Slots

__all__ = ["ClippedSum", "DeviceLost", "NonFiniteError", "PerRecordGradients", "Slots", "UnsupportedLayer"]
