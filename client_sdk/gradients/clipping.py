"""Clip factors and the clipped sum, which carries its own sensitivity.

The neighbouring relation is add/remove of one record: the sum changes by one clipped contribution, so its L2
sensitivity is the clip norm (Abadi et al. 2016, "Deep Learning with Differential Privacy", Algorithm 1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .errors import NonFiniteError

# Norms are sums of squares in the parameters' own precision; the factor leaves room for their rounding, so that
# the clipped contribution stays within the clip norm as computed, not only in exact arithmetic.
SAFETY = {torch.float32: 1 - 2.0**-14, torch.float64: 1 - 2.0**-40}


@dataclass(frozen=True)
class ClippedSum:
    """Sum over the batch of each record's clipped gradient.

    gradients: parameter name -> tensor shaped like the parameter; never divided by the batch size.
    norms: (batch,) float64, L2 norm of each record's gradient *before* clipping (distance to the centre if one was
        given). `min(norms, clip_norm)` bounds the record's contribution, also under group clipping.
    clip_norm: L2 sensitivity of the sum under add/remove of one record.
    """

    gradients: dict[str, Tensor]
    norms: Tensor
    clip_norm: float


def checked_clip_norm(clip_norm: float) -> float:
    if not (isinstance(clip_norm, (int, float)) and math.isfinite(clip_norm) and clip_norm > 0):
        raise ValueError(f"clip_norm must be a finite number > 0, got {clip_norm!r}")
    return float(clip_norm)


def checked_groups(groups: Sequence[Sequence[str]] | None, names: Sequence[str]) -> list[list[str]]:
    """Disjoint groups that cover every trainable parameter; one group of everything when None."""
    if groups is None:
        return [list(names)]
    chosen = [list(group) for group in groups]
    flat = [name for group in chosen for name in group]
    if sorted(flat) != sorted(names) or not all(chosen):
        raise ValueError(f"groups must name every trainable parameter exactly once: {sorted(names)}, got {chosen}")
    return chosen


def total_norms(squares: Mapping[str, Tensor]) -> Tensor:
    """(batch,) float64 L2 norms from the squared norms per parameter.

    Raises NonFiniteError naming the first parameter whose per-record gradient is not finite.
    """
    stacked = torch.stack(list(squares.values())).double()
    total = stacked.sum(0)
    if not bool(torch.isfinite(total).all()):
        for name, values in squares.items():
            if not bool(torch.isfinite(values).all()):
                raise NonFiniteError(f"the per-record gradient of parameter {name!r}")
        raise NonFiniteError("the per-record gradient norm")
    return total.clamp_min_(0).sqrt_()


def clip_factors(
    squares: Mapping[str, Tensor], groups: Sequence[Sequence[str]], clip_norm: float, dtype: torch.dtype
) -> dict[str, Tensor]:
    """Parameter name -> (batch,) factor ≤ 1; each group is clipped to clip_norm / √(number of groups)."""
    bound = clip_norm / math.sqrt(len(groups)) * SAFETY.get(dtype, 1 - 2.0**-14)
    factors: dict[str, Tensor] = {}
    for group in groups:
        norms = total_norms({name: squares[name] for name in group})
        factor = (bound / norms).clamp_max_(1.0).to(dtype)
        factors |= dict.fromkeys(group, factor)
    return factors
