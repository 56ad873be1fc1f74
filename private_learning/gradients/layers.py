"""Closed forms for the per-record gradients of the layers whose forward is known, and of three losses.

With input a_i and output gradient g_i of record i, the gradient of a weight is a sum over positions t of products of
a_it and g_it. Squared norms come from the cheaper of two forms: the direct form ‖Σ_t g_it a_itᵀ‖² and the Gram form
Σ_ts ⟨a_it, a_is⟩⟨g_it, g_is⟩.

Sources: Goodfellow 2015. Li et al. 2022, "Large Language Models Can Be Strong DP Learners", section 4. Bu et al. 2023,
"Differentially Private Optimization on Large Model at Small Cost".

Given one of the losses, a model that ends in its only trainable layer, a linear one, needs no autograd at all.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from private_learning.gradients.clipping import product
from private_learning.gradients.errors import NotLayerwise

# Per-record gradients are kept between norms and sum when a micro-batch of them stays below this many numbers.
KEEP = 1 << 22
_BLOCK = 512
# A squared norm beside which squares that are lost to underflow could count: below it 2⁴⁶ of them together are less
# than the factor's room at the least clip norm, also in 1,000 groups.
_IMMENSE = 2.0**40
# Own parameter name -> what is worth keeping from the norms to the sum: per-record gradients, a few records in each
# tensor, or what a layer makes of them.
LayerCache = dict[str, list[Tensor]]


class Layer(ABC):
    """One module whose trainable parameters are known by name. Subclasses give the per-record gradients."""

    # Own parameter name -> its rows that the layer acts through, where these are not all.
    rows: Mapping[str, slice] = MappingProxyType({})

    def __init__(self, name: str, module: nn.Module, names: dict[str, str]) -> None:
        self.name = name
        self.module: Any = module
        self.names = names  # own parameter name -> name in the model, trainable ones only

    def parameter(self, key: str) -> Any:
        """Return the module's parameter, detached, or None where it has none."""
        parameter = self.module._parameters[key]
        return None if parameter is None else parameter.detach()

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Run the module's forward with detached parameters."""

    def signal(self, x: Tensor, g: Tensor) -> Tensor:
        """Return the input's gradient from the output's, both in the output's type."""
        with torch.enable_grad():
            x = x.detach().to(self.module.weight.dtype).requires_grad_()
            y = self.forward(x)
            (input_grad,) = torch.autograd.grad(y, x, g.to(y.dtype))
        return input_grad

    @abstractmethod
    def per_record(self, a: Tensor, g: Tensor) -> dict[str, Tensor]:
        """Return own parameter name -> (batch, *shape) gradients."""

    def squares(self, a: Tensor, g: Tensor) -> tuple[dict[str, Tensor], LayerCache]:
        """Return (own name -> (batch,) squared norms, values that the sum needs again)."""
        each = self.per_record(a, g)
        return {key: squared_norms(value) for key, value in each.items()}, {key: [each[key]] for key in each}

    def weighted_sum(self, a: Tensor, g: Tensor, weights: dict[str, Tensor], cache: LayerCache) -> dict[str, Tensor]:
        """Return own name -> Σ_i weight_i gradient_i, shaped like the parameter."""
        cache = cache or {key: [value] for key, value in self.per_record(a, g).items()}
        return {key: combined(weights[key], parts) for key, parts in cache.items()}

    def inner(self, a: Tensor, g: Tensor, centre: dict[str, Tensor], cache: LayerCache) -> dict[str, Tensor]:
        """Return own name -> (batch,) inner products ⟨gradient_i, centre⟩, rounded down where positions may cancel."""
        cache = cache or {key: [value] for key, value in self.per_record(a, g).items()}
        return {
            key: torch.cat([in_rows_of_numbers(part) @ centre[key].flatten() for part in parts])
            for key, parts in cache.items()
        }


class LinearLayer(Layer):
    """nn.Linear: one outer product a row, or the sum of them over the rows of a record."""

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.parameter("weight"), self.parameter("bias")
        if x.dim() == 2:
            return product(x, weight, bias)
        flat = product(x.reshape(-1, x.shape[-1]), weight, bias)
        # A plain view could not be changed in place by the next layer.
        return torch.ops.aten._unsafe_view(flat, [*x.shape[:-1], flat.shape[-1]])

    def signal(self, x: Tensor, g: Tensor) -> Tensor:
        return product(g.reshape(-1, g.shape[-1]), self.parameter("weight").T.to(g.dtype)).view(x.shape)

    def per_record(self, a: Tensor, g: Tensor) -> dict[str, Tensor]:
        a, g = positions(a), positions(g)
        out: dict[str, Tensor] = {}
        if "weight" in self.names:
            out["weight"] = torch.bmm(g.transpose(1, 2), a)
        if "bias" in self.names:
            out["bias"] = g.sum(1)
        return out

    def squares(self, a: Tensor, g: Tensor) -> tuple[dict[str, Tensor], LayerCache]:
        values: dict[str, Tensor] = {}
        if a.dim() == 2:
            # One position: the gradient is an outer product, its norm the product of two norms.
            values["bias"] = squared_norms(g)
            if "weight" in self.names:
                inputs = squared_norms(a)
                lost = vanished(g, inputs) + vanished(a, values["bias"])
                values["weight"] = values["bias"] * inputs + lost
            return {key: values[key] for key in self.names}, {}
        a, g = positions(a), positions(g)
        batch, places, width = a.shape
        size = width * g.shape[-1]
        # The direct form where it costs less than the Gram form and its gradients may be kept for the sum.
        if places * (width + g.shape[-1]) > size and batch * size <= KEEP:
            return super().squares(a, g)
        if "bias" in self.names:
            values["bias"] = squared_norms(g.sum(1))
        if "weight" in self.names:
            values["weight"] = gram(a, g)
        return values, {}

    def weighted_sum(self, a: Tensor, g: Tensor, weights: dict[str, Tensor], cache: LayerCache) -> dict[str, Tensor]:
        if cache:
            return super().weighted_sum(a, g, weights, cache)
        out: dict[str, Tensor] = {}
        width, signals = a.shape[-1], g.shape[-1]
        if "weight" in self.names:
            # Record by record, also where time comes first in memory: of records whose positions cancel, what has not
            # cancelled yet would otherwise add up over all of them, and be rounded at that size.
            scaled = g * weights["weight"].view(-1, *(1,) * (g.dim() - 1))
            out["weight"] = product(scaled.reshape(-1, signals).T, a.reshape(-1, width).T)
        if "bias" in self.names:
            out["bias"] = weights["bias"] @ (g if g.dim() == 2 else g.reshape(g.shape[0], -1, signals).sum(1))
        return out

    def inner(self, a: Tensor, g: Tensor, centre: dict[str, Tensor], cache: LayerCache) -> dict[str, Tensor]:
        if cache:
            return super().inner(a, g, centre, cache)
        a, g = positions(a), positions(g)
        out: dict[str, Tensor] = {}
        if "weight" in self.names:
            out["weight"] = (functional.linear(a, centre["weight"]) * g).sum((1, 2))
            # Positions may cancel: rounded down, so that no distance comes out too small.
            if a.shape[1] > 1:
                lost = rounding(size_of(a, g), g.dtype, a.shape[1])
                out["weight"] -= lost * squared_norms(centre["weight"].unsqueeze(0)).sqrt()
        if "bias" in self.names:
            out["bias"] = g.sum(1) @ centre["bias"]
        return out


class EmbeddingLayer(Layer):
    """nn.Embedding: the gradient of each row that a record looks up."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.embedding(x, self.parameter("weight"), self.module.padding_idx)

    def _rows(self, a: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return (record, token, gradient) of every position that has a gradient."""
        record = torch.arange(a.shape[0], device=a.device).repeat_interleave(a[0].numel())
        token, rows = a.flatten(), g.reshape(-1, g.shape[-1])
        # Autograd gives the padding row no gradient.
        if self.module.padding_idx is not None:
            used = token != self.module.padding_idx
            record, token, rows = record[used], token[used], rows[used]
        return record, token, rows

    def per_record(self, a: Tensor, g: Tensor) -> dict[str, Tensor]:
        record, token, rows = self._rows(a, g)
        out = rows.new_zeros(a.shape[0], *self.module.weight.shape)
        return {"weight": out.index_put_((record, token), rows, accumulate=True)}

    def _merged(self, a: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """Return (pairs,) numbers of the pairs of a record and a token, and the (pairs, width) sum of each."""
        record, token, rows = self._rows(a, g)
        pairs, inverse = distinct(record * self.module.num_embeddings + token)
        return pairs, rows.new_zeros(len(pairs), rows.shape[-1]).index_add_(0, inverse, rows)

    def squares(self, a: Tensor, g: Tensor) -> tuple[dict[str, Tensor], LayerCache]:
        # A token that occurs twice in a record has one row, their sum: merged before the norm is taken. The sum over
        # the records takes the same rows: added up once more, in another order, what cancels might not.
        pairs, merged = self._merged(a, g)
        owner = pairs // self.module.num_embeddings
        return {"weight": added_up(merged.square().sum(1), owner, len(a))}, {"weight": [pairs, merged]}

    def weighted_sum(self, a: Tensor, g: Tensor, weights: dict[str, Tensor], cache: LayerCache) -> dict[str, Tensor]:
        pairs, merged = cache["weight"]
        size = self.module.num_embeddings
        out = torch.zeros_like(self.parameter("weight"), dtype=merged.dtype)
        return {"weight": out.index_add_(0, pairs % size, merged * weights["weight"][pairs // size, None])}

    def inner(self, a: Tensor, g: Tensor, centre: dict[str, Tensor], cache: LayerCache) -> dict[str, Tensor]:
        pairs, merged = cache["weight"]
        size = self.module.num_embeddings
        return {"weight": added_up((merged * centre["weight"][pairs % size]).sum(1), pairs // size, len(a))}


class NormalisedLayer(Layer):
    """y = x̂ ⊙ weight + bias with x̂ the normalised input: gradients are sums of g ⊙ x̂ and of g."""

    def normalised(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        module = self.module
        if isinstance(module, nn.LayerNorm):
            return functional.layer_norm(x, module.normalized_shape, weight, bias, module.eps)
        if isinstance(module, nn.GroupNorm):
            return functional.group_norm(x, module.num_groups, weight, bias, module.eps)
        return functional.instance_norm(x, weight=weight, bias=bias, eps=module.eps)

    def forward(self, x: Tensor) -> Tensor:
        return self.normalised(x, self.parameter("weight"), self.parameter("bias"))

    def _summed(self, values: Tensor) -> Tensor:
        """Return the sum over the axes that share a parameter."""
        if isinstance(self.module, nn.LayerNorm):
            axes = len(self.module.normalized_shape)
            return values.reshape(values.shape[0], -1, *values.shape[values.dim() - axes :]).sum(1)
        return values.flatten(2).sum(2)

    def per_record(self, a: Tensor, g: Tensor) -> dict[str, Tensor]:
        out: dict[str, Tensor] = {}
        if "weight" in self.names:
            out["weight"] = self._summed(g * self.normalised(a, None, None))
        if "bias" in self.names:
            out["bias"] = self._summed(g)
        return out


class FixedNorm(NormalisedLayer):
    """Batch normalisation by stored statistics: the same scale and shift for every record."""

    def normalised(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        module = self.module
        if module.training or module.running_mean is None:
            raise NotLayerwise(f"{self.name!r} normalises by the batch")
        return functional.batch_norm(x, module.running_mean, module.running_var, weight, bias, False, 0.0, module.eps)

    def signal(self, x: Tensor, g: Tensor) -> Tensor:
        scale = torch.rsqrt(self.module.running_var + self.module.eps) * self.parameter("weight")
        return g * scale.to(g.dtype).view(-1, *(1,) * (g.dim() - 2))

    def _summed(self, values: Tensor) -> Tensor:
        return values if values.dim() == 2 else values.flatten(2).sum(2)


def distinct(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Return (distinct numbers, the place of every number among them, shaped like `numbers`)."""
    result = cast(Any, torch.unique(numbers, return_inverse=True))  # pyright: ignore[reportUnknownMemberType]
    return cast("tuple[Tensor, Tensor]", result)


def added_up(values: Tensor, owner: Tensor, count: int) -> Tensor:
    """Return (count,) sums of the values of each owner, one by one and so in float64: there may be many."""
    room = values.new_zeros(count, dtype=torch.float64)
    return room.index_add_(0, owner, values.double()).to(values.dtype)


def combined(weights: Tensor, parts: Iterable[Tensor]) -> Tensor:
    """Return Σ_i weight_i value_i of (records, *shape) tensors that hold a few records each, one after another."""
    total, start = weights.new_zeros(()), 0
    for part in parts:
        share = (weights[start : start + len(part)] @ in_rows_of_numbers(part)).view(part.shape[1:])
        total = total.add_(share) if start else share
        start += len(part)
    return total


def squared_norms(values: Tensor) -> Tensor:
    """Return (batch,) squared L2 norms over all but the first axis."""
    flat = in_rows_of_numbers(values)
    whole = flat.shape[1] - flat.shape[1] % _BLOCK
    if not whole:
        return _norms(flat, 1).square_()
    # Short blocks: a float32 norm over a long row is summed naively and loses five digits.
    blocks = flat[:, :whole].view(len(flat), -1, _BLOCK)
    total = _norms(blocks, 2).square_().sum(1)
    return total if whole == flat.shape[1] else total.add_(squared_norms(flat[:, whole:]))


def in_rows_of_numbers(values: Tensor) -> Tensor:
    """Return (batch, numbers) of (batch, ...), with one number a record where the parameter has no axis."""
    if values.dim() == 2:
        return values
    return values.flatten(1) if values.dim() > 2 else values.unsqueeze(1)


def vanished(values: Tensor, factor: Tensor) -> Tensor:
    """Return (batch,) how much squares below the smallest number can lack in ‖values‖² · factor, which is usually 0."""
    smallest = torch.finfo(values.dtype).smallest_normal * torch.finfo(values.dtype).eps
    return (factor - _IMMENSE).clamp_min(0.0) * (values.shape[-1] * smallest)


def _norms(values: Tensor, axis: int) -> Tensor:
    # torch.linalg is not annotated.
    return cast(Tensor, torch.linalg.vector_norm(values, dim=axis))  # pyright: ignore[reportUnknownMemberType]


def positions(values: Tensor) -> Tensor:
    """Return (batch, positions, width) of (batch, ..., width)."""
    return values.reshape(values.shape[0], -1, values.shape[-1])


def allowance(dtype: torch.dtype, width: int) -> float:
    """Relative error of sums of products of so many terms, as blocked kernels add them (Higham 2002, section 3.1)."""
    return torch.finfo(dtype).eps * (16 + width / 16)


def size_of(a: Tensor, g: Tensor) -> Tensor:
    """(batch,) float64 ‖a_i‖ ‖g_i‖ ≥ Σ_t ‖a_it‖ ‖g_it‖: what positions hold before any of it cancels."""
    return (squared_norms(a).double() * squared_norms(g).double()).sqrt()


def rounding(size: Tensor, dtype: torch.dtype, terms: int) -> Tensor:
    """(batch,) how far rounding can move Σ_t g_t a_tᵀ of so many terms, an L2 norm: by a share of its `size_of`.

    Errors of blocked sums grow like the root of how many terms there are (Higham 2002, section 3.1).
    """
    return (torch.finfo(dtype).eps * (16 + math.sqrt(terms)) * size).to(dtype)


def gram(a: Tensor, g: Tensor) -> Tensor:
    """(batch,) Σ_ts ⟨a_it, a_is⟩⟨g_it, g_is⟩ of (batch, positions, width) tensors, rounded up.

    Positions may cancel: what rounding can take off a small sum of large terms is added, so that no norm is too small.
    """
    products = torch.bmm(a, a.transpose(1, 2)).mul_(torch.bmm(g, g.transpose(1, 2)))
    slack = allowance(products.dtype, a.shape[2] + g.shape[2])
    lost = a.shape[1] * (vanished(g, squared_norms(a)) + vanished(a, squared_norms(g)))
    return products.sum((1, 2)) + slack * products.abs_().sum((1, 2)) + lost


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """(batch,) cross-entropies of (batch, classes) scores and integer classes. Raises ValueError: too few scores."""
    try:
        return functional.cross_entropy(outputs, targets, reduction="none")
    except IndexError as error:
        raise ValueError(f"the model gives {outputs.shape[1]} outputs, and it needs one for each class") from error


def logistic(outputs: Tensor, targets: Tensor) -> Tensor:
    """(batch,) logistic losses of (batch, 1) scores and targets in [0, 1], given as (batch,) or (batch, 1).

    Raises:
        ValueError: more scores.
    """
    if outputs.shape[1:] != (1,):
        raise ValueError(f"two classes need one output of the model, not {'×'.join(map(str, outputs.shape[1:]))}")
    return functional.binary_cross_entropy_with_logits(
        outputs.squeeze(1), targets.to(outputs).view(-1), reduction="none"
    )


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """(batch,) squared distances of (batch, k) predictions to (batch, k) targets, or (batch,) ones when k = 1."""
    return (outputs - targets.to(outputs).view_as(outputs)).square().sum(1)


def _of_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """(batch, classes): softmax less the one-hot target."""
    gradients = torch.softmax(outputs, 1)
    return gradients.scatter_add_(1, targets.unsqueeze(1), gradients.new_full((), -1.0).expand(len(gradients), 1))


def _of_logistic(outputs: Tensor, targets: Tensor) -> Tensor:
    return torch.sigmoid(outputs).sub_(targets.to(outputs).view(-1, 1))


def _of_squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets.to(outputs).view_as(outputs)).mul_(2.0)


# By identity: a loss that merely computes the same takes the general way.
SIGNALS: dict[object, Callable[[Tensor, Tensor], Tensor]] = {
    cross_entropy: _of_cross_entropy,
    logistic: _of_logistic,
    squared_error: _of_squared_error,
}
