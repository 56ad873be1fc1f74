"""Clip factors, the clipped sum with its sensitivity, and the precision of the products behind it.

The neighbouring relation is add/remove of one record. The sum then changes by one clipped contribution, so its L2
sensitivity is the clip norm (Abadi et al. 2016, "Deep Learning with Differential Privacy", Algorithm 1).

Products are computed in the parameters' own precision, and by the faster of the two CPU back ends. PyTorch sends
float32 products to MKL, which runs at half speed on processors of other makers. oneDNN, already used for convolutions,
does not. Both have the same precision, with another order of summation.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from private_learning.gradients.errors import NonFiniteError
from study_protocol.study.clip_norm import MIN_CLIP_NORM

# Norms are sums of squares in the parameters' own precision. The factor leaves room for their rounding, so that
# the clipped contribution stays within the clip norm as computed, not only in exact arithmetic.
SAFETY = {torch.float32: 1 - 2.0**-14, torch.float64: 1 - 2.0**-40}
# Below this many multiplications the call itself costs more than is won.
_WORTHWHILE = 1 << 21


@dataclass(frozen=True, repr=False)
class ClippedSum:
    """Sum over the batch of each record's clipped gradient.

    gradients: parameter name -> tensor shaped like the parameter, never divided by the batch size. Its type is that of
        the
        parameter, or float64 where the passes of a sum over slots were added.
    norms: (batch,) float64, L2 norm of each record's gradient *before* clipping (distance to the centre if one was
        given). `min(norms, clip_norm)` bounds the record's contribution, also under group clipping. It is ∞ for a
        record
        whose gradient could not be computed or is not finite. Such a record adds zero.
    clip_norm: L2 sensitivity of the sum under add/remove of one record, in exact arithmetic.
    rounding: how much farther two neighbouring sums may lie apart as they are computed, an L2 norm. It is 0 where there
        is
        no such bound (a sum without slots).
    """

    gradients: dict[str, Tensor]
    norms: Tensor
    clip_norm: float
    rounding: float = 0.0

    @property
    def failed(self) -> int:
        """How many records added zero because their gradient is none. For the holder of the records alone."""
        return int(torch.isinf(self.norms).sum())


def add_all(total: dict[str, Tensor], part: Mapping[str, Tensor]) -> None:
    """Add the sum of one pass.

    From the second pass on the total is float64, so that the sum of one pass is not rounded again.
    """
    for name, value in part.items():
        if name in total:
            before = total[name]
            total[name] = before.add_(value) if before.dtype == torch.float64 else before.double().add_(value)
        else:
            total[name] = value


def checked_clip_norm(clip_norm: float) -> float:
    """The clip norm, finite and at least LEAST_CLIP_NORM. Raises ValueError otherwise."""
    number = isinstance(clip_norm, (int, float))  # pyright: ignore[reportUnnecessaryIsInstance]
    if not (number and math.isfinite(clip_norm) and clip_norm >= MIN_CLIP_NORM):
        raise ValueError(f"clip_norm must be a finite number, at least {MIN_CLIP_NORM:g}, got {clip_norm!r}")
    return float(clip_norm)


def checked_groups(groups: Sequence[Sequence[str]], names: Sequence[str]) -> list[list[str]]:
    """Disjoint groups that cover every trainable parameter. Raises ValueError for others."""
    name_groups = [list(group) for group in groups]
    flat = [name for group in name_groups for name in group]
    if sorted(flat) != sorted(names) or not all(name_groups):
        raise ValueError(f"groups must name every trainable parameter exactly once: {sorted(names)}, got {name_groups}")
    return name_groups


def total_norms(squares: Mapping[str, Tensor]) -> Tensor:
    """Return (batch,) float64 L2 norms from the squares per parameter, NaN or ∞ where a gradient is not finite."""
    values = list(squares.values())
    total = values[0].double() if len(values) == 1 else torch.stack(values).sum(0, dtype=torch.float64)
    return total.sqrt()


def clip_factors(
    squares: Mapping[str, Tensor],
    norms: Tensor,
    groups: Sequence[Sequence[str]] | None,
    clip_norm: float,
    dtype: torch.dtype,
) -> dict[str, Tensor]:
    """Return parameter name -> (batch,) factor ≤ 1. Each group is clipped to clip_norm / √(number of groups).

    The groups' bounds add up to clip_norm in squares (McMahan et al. 2018, "Learning Differentially Private Recurrent
    Language Models", per-layer clipping).

    squares: parameter name -> (batch,) squared norms.
    norms: the total norms, by which everything is clipped together when groups is None.
    """
    safety = SAFETY.get(dtype, 1 - 2.0**-14)
    if groups is None:
        # A norm of 0 gives ∞, which becomes 1.
        return dict.fromkeys(squares, (clip_norm * safety / norms).clamp_(max=1.0).to(dtype))
    bound = clip_norm / math.sqrt(len(groups)) * safety
    factors: dict[str, Tensor] = {}
    for group in groups:
        group_norms = total_norms({name: squares[name] for name in group})
        factors |= dict.fromkeys(group, (bound / group_norms).clamp_(max=1.0).to(dtype))
    return factors


def stop_if_not_finite(values: Mapping[str, Tensor], *, look_at: Sequence[Tensor] | None = None) -> None:
    """Raise NonFiniteError naming the first tensor that holds NaN or infinity. Integers pass.

    look_at: tensors that cannot all be finite when one of `values` is not. By default the values themselves.
    """
    looked = list(values.values()) if look_at is None else look_at
    # A finite sum has finite terms: one number to look at. A sum may overflow though, so the exact test has the word.
    if math.isfinite(sum(float(value.detach().sum()) for value in looked if value.is_floating_point())):
        return
    for name, value in values.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise NonFiniteError(name)


def full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Switch autocast off: norms and sums stay in the parameters' type, also after a forward pass in another one."""
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


@contextmanager
def exact_products(device: torch.device) -> Generator[None]:
    """Compute products and convolutions of float32 in float32, without TensorFloat-32 and bfloat16.

    On CUDA convolutions run in TF32 by default. With its three digits a clipped sum would not keep to norms that were
    computed another way. On CUDA sums are also added in the same order every time, and no kernel is chosen by its speed
    in a trial. The switches belong to the process and are put back afterwards.

    Attention takes its plain path. The fused one passes by the layers and packs records by their lengths, so that one
    record's numbers would depend on the others'.
    """
    switches = _switches(device)
    # torch.backends.mha is not annotated.
    attention: Any = torch.backends.mha
    fused = attention.get_fastpath_enabled()
    attention.set_fastpath_enabled(False)
    before = [getattr(owner, name) for owner, name, _ in switches]
    try:
        for owner, name, exact in switches:
            setattr(owner, name, exact)
        with _same_order(device):
            yield
    finally:
        attention.set_fastpath_enabled(fused)
        for (owner, name, _), value in zip(switches, before, strict=True):
            setattr(owner, name, value)


@contextmanager
def _same_order(device: torch.device) -> Generator[None]:
    """Make a GPU add in a fixed order. By default it adds in the order in which its threads arrive."""
    if device.type != "cuda":
        yield
        return
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    # What has no such kernel only warns: how far the order can move a sum is in the sensitivity.
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def _switches(device: torch.device) -> list[tuple[Any, str, object]]:
    """Return (owner, attribute, exact value) of each switch."""
    backends: Any = torch.backends
    # Newer PyTorch has a switch per operation (`fp32_precision`), older one per back end (`allow_tf32`).
    by_operation = hasattr(backends.cudnn, "conv")
    name, exact = ("fp32_precision", "ieee") if by_operation else ("allow_tf32", False)
    if device.type == "cuda":
        owners = (backends.cudnn, backends.cuda.matmul)
        if by_operation:
            owners = (backends.cudnn.conv, backends.cudnn.rnn, backends.cuda.matmul)
        return [*((owner, name, exact) for owner in owners), (backends.cudnn, "benchmark", False)]
    # On the CPU lower precisions are used only on request.
    if by_operation and torch.get_float32_matmul_precision() != "highest":
        return [(owner, name, exact) for owner in (backends.mkldnn.conv, backends.mkldnn.matmul)]
    return []


@cache
def _operation() -> Any:
    # It has no public name. Where it is gone, `functional.linear` serves.
    return getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None


def product(x: Tensor, y: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x yᵀ (+ bias), (rows, columns), of (rows, width) and (columns, width) matrices."""
    if (
        x.numel() * y.shape[0] >= _WORTHWHILE
        and x.device.type == "cpu"
        and x.dtype == y.dtype == torch.float32
        and _operation() is not None
        and not torch.is_autocast_enabled("cpu")
    ):
        return _operation()(x, y, bias, "none", [], "")
    return functional.linear(x, y, bias)
