"""Terms that the uses in one micro-batch contribute to each parameter's per-record gradients.

Gradients of a parameter that is used at several places add up before the norm is taken. Uses of one affine map are one
use of more positions, and so are lookups in one table. A table that is a linear layer's weight, too, has
‖e + l‖² = ‖e‖² + ‖l‖² + 2⟨e, l⟩ with the inner product in closed form. In all other cases whole per-record gradients
are added up, for a few records at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from private_learning.gradients.composite import Affine
from private_learning.gradients.layers import (
    KEEP,
    EmbeddingLayer,
    Layer,
    LayerCache,
    LinearLayer,
    allowance,
    combined,
    positions,
    squared_norms,
)

# (parameter's name, first row, row after the last). The rows are −1 where it is the whole parameter.
Block = tuple[str, int, int]


@dataclass(frozen=True, repr=False)
class LayerUse:
    """One use of a layer: input and output gradient, both (batch, ...).

    measured: the result of `layer.squares`, if known already.
    """

    layer: Layer
    a: Tensor
    g: Tensor
    measured: tuple[dict[str, Tensor], LayerCache] | None = None

    def only(self, names: dict[str, str]) -> LayerUse:
        """Return the same use for some of the layer's parameters."""
        layer = copy(self.layer)
        layer.names = names
        return LayerUse(layer, self.a, self.g, self.measured)


class Term(ABC):
    """A part of the gradients of some parameters.

    squares: parameter name -> (batch,) squared norms. Several terms may name one parameter, in disjoint rows.
    """

    squares: dict[str, Tensor]

    @abstractmethod
    def inner(self, centre: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return parameter name -> (batch,) inner products with the centre."""

    @abstractmethod
    def sums(self, factors: Mapping[str, Tensor]) -> Iterator[tuple[str, slice | None, Tensor]]:
        """Yield (parameter name, rows of it or None for all, Σ_i factor_i gradient_i)."""


class OneUse(Term):
    """A layer's own closed forms."""

    def __init__(self, use: LayerUse) -> None:
        self._layer, self._a, self._g = use.layer, use.a, use.g
        squares, self._cache = use.measured or self._layer.squares(self._a, self._g)
        self.squares = {self._layer.names[key]: value for key, value in squares.items()}

    def inner(self, centre: Mapping[str, Tensor]) -> dict[str, Tensor]:
        layer = self._layer
        centre_rows = {key: in_rows(centre[name], layer.rows.get(key)) for key, name in layer.names.items()}
        products = layer.inner(self._a, self._g, centre_rows, self._cache)
        return {layer.names[key]: value for key, value in products.items()}

    def sums(self, factors: Mapping[str, Tensor]) -> Iterator[tuple[str, slice | None, Tensor]]:
        weights = {key: factors[name] for key, name in self._layer.names.items()}
        for key, value in self._layer.weighted_sum(self._a, self._g, weights, self._cache).items():
            yield self._layer.names[key], self._layer.rows.get(key), value


class TiedWeights(Term):
    """One table that lookups and a linear layer share."""

    def __init__(self, name: str, looked_up: LayerUse, linear: LayerUse) -> None:
        self._name, self._parts = name, (OneUse(looked_up), OneUse(linear))
        tokens = looked_up.a.reshape(len(looked_up.a), -1)
        rows = looked_up.g.reshape(*tokens.shape, -1)
        padding = looked_up.layer.module.padding_idx
        if padding is not None:
            rows = rows.masked_fill((tokens == padding).unsqueeze(2), 0.0)
        a, g = positions(linear.a), positions(linear.g)
        # ⟨Σ_t e_t, Σ_s g_s a_sᵀ⟩: row tokens_t of the second is Σ_s g_s[tokens_t] a_s.
        gathered = g.gather(2, tokens.unsqueeze(1).expand(-1, g.shape[1], -1))
        products = gathered * torch.bmm(a, rows.transpose(1, 2))
        separate = sum(part.squares[name] for part in self._parts)
        slack = allowance(products.dtype, a.shape[2]) * (separate + 2 * products.abs().sum((1, 2)))
        # The three may cancel: rounded up, so that no norm comes out too small.
        self.squares = {name: (separate + 2 * products.sum((1, 2)) + slack).clamp_min(0)}

    def inner(self, centre: Mapping[str, Tensor]) -> dict[str, Tensor]:
        first, second = (part.inner(centre)[self._name] for part in self._parts)
        return {self._name: first + second}

    def sums(self, factors: Mapping[str, Tensor]) -> Iterator[tuple[str, slice | None, Tensor]]:
        for part in self._parts:
            yield from part.sums(factors)


class SummedGradients(Term):
    """Whole gradients, added up over the uses. Few numbers are kept, many are computed twice."""

    def __init__(self, name: str, parts: Sequence[LayerUse], like: Tensor) -> None:
        """parts: uses whose only parameter is the one called `name`. like: the parameter."""
        self._name, self._parts, self._like = name, parts, like
        self._step = max(1, KEEP // max(1, like.numel()))
        self._gradients: list[Tensor] = []
        self._gradients = list(self._each()) if len(parts[0].g) <= self._step else []
        self.squares = {name: torch.cat([squared_norms(part) for part in self._each()])}

    def _each(self) -> Iterator[Tensor]:
        """Yield (records, *shape) gradients, a few records at a time."""
        if self._gradients:
            yield from self._gradients
            return
        for start in range(0, len(self._parts[0].g), self._step):
            rows = slice(start, start + self._step)
            yield sum((self._placed(use, rows) for use in self._parts[1:]), self._placed(self._parts[0], rows))

    def _placed(self, use: LayerUse, rows: slice) -> Tensor:
        ((key, gradients),) = use.layer.per_record(use.a[rows], use.g[rows]).items()
        if key not in use.layer.rows:
            return gradients
        whole = gradients.new_zeros(len(gradients), *self._like.shape)
        whole[:, use.layer.rows[key]] = gradients
        return whole

    def inner(self, centre: Mapping[str, Tensor]) -> dict[str, Tensor]:
        middle = centre[self._name].flatten()
        return {self._name: torch.cat([part.flatten(1) @ middle for part in self._each()])}

    def sums(self, factors: Mapping[str, Tensor]) -> Iterator[tuple[str, slice | None, Tensor]]:
        weights = torch.split(factors[self._name], self._step)
        for some, part in zip(weights, self._each(), strict=True):
            yield self._name, None, combined(some, [part])


def terms_of(uses: Sequence[LayerUse], parameters: Mapping[str, Tensor]) -> list[Term]:
    """Return the terms whose sum is every parameter's gradient."""
    blocks = _blocks(uses)
    single: dict[int, dict[str, str]] = {}
    together: dict[tuple[int, ...], dict[str, str]] = {}
    terms: list[Term] = []
    for (name, *_), shares in blocks.items():
        key = shares[0][1]
        if len(shares) == 1:
            single.setdefault(shares[0][0], {})[key] = name
        elif _one_map(uses, shares):
            together.setdefault(tuple(i for i, _ in shares), {})[key] = name
        else:
            parts = [uses[i].only({key: name}) for i, key in shares]
            terms.append(_mixed(name, parts, parameters[name]))
    terms += [OneUse(uses[i].only(names)) for i, names in single.items()]
    return terms + [OneUse(_linear([uses[i] for i in indices], names)) for indices, names in together.items()]


def _one_map(uses: Sequence[LayerUse], shares: Sequence[tuple[int, str]]) -> bool:
    """Return whether affine maps alone act through these rows, and all in the same way."""
    ways = {(key, str(uses[i].layer.rows.get(key))) for i, key in shares}
    return len(ways) == 1 and {type(uses[i].layer) for i, _ in shares} <= {LinearLayer, Affine}


def _blocks(uses: Sequence[LayerUse]) -> dict[Block, list[tuple[int, str]]]:
    """Return disjoint rows of parameters -> (number of the use, own name there) of the layers that act through them."""
    blocks: dict[Block, list[tuple[int, str]]] = {}
    for i, use in enumerate(uses):
        for key, name in use.layer.names.items():
            rows = use.layer.rows.get(key)
            start, stop = (-1, -1) if rows is None else (rows.start, rows.stop)
            blocks.setdefault((name, start, stop), []).append((i, key))
    _join_overlapping(blocks)
    return blocks


def _join_overlapping(blocks: dict[Block, list[tuple[int, str]]]) -> None:
    for name in {block[0] for block in blocks}:
        own_blocks = sorted(block for block in blocks if block[0] == name)
        # Rows that overlap without being the same: the whole parameter is taken together.
        if any(lower[2] > upper[1] or lower[1] < 0 for lower, upper in pairwise(own_blocks)):
            blocks[name, -1, -1] = [share for block in own_blocks for share in blocks.pop(block)]


def _mixed(name: str, parts: Sequence[LayerUse], like: Tensor) -> Term:
    """Return the term of several uses of one parameter.

    parts: uses whose only parameter is `name`, not all of one linear map.
    """
    tables = [use for use in parts if type(use.layer) is EmbeddingLayer]
    maps = [use for use in parts if type(use.layer) is LinearLayer and set(use.layer.names) == {"weight"}]
    same_padding = len({use.layer.module.padding_idx for use in tables}) <= 1
    if len(tables) + len(maps) < len(parts) or not same_padding:
        return SummedGradients(name, parts, like)
    if not maps:
        return OneUse(_lookups(tables))
    return TiedWeights(name, _lookups(tables), _linear(maps, {"weight": name}))


def _linear(uses: Sequence[LayerUse], names: dict[str, str]) -> LayerUse:
    """Return uses of one affine map as one of more positions."""
    if len(uses) == 1:
        return uses[0].only(names)
    a, g = (torch.cat([positions(getattr(use, attribute)) for use in uses], 1) for attribute in ("a", "g"))
    return LayerUse(uses[0].layer, a, g).only(names)


def _lookups(uses: Sequence[LayerUse]) -> LayerUse:
    """Return lookups in one table as one of more tokens."""
    if len(uses) == 1:
        return uses[0]
    a = torch.cat([use.a.reshape(len(use.a), -1) for use in uses], 1)
    return LayerUse(uses[0].layer, a, torch.cat([positions(use.g) for use in uses], 1))


def in_rows(value: Tensor, rows: slice | None) -> Tensor:
    """Return the part of a parameter that a layer acts through."""
    return value if rows is None else value[rows]
