"""Columns of a smooth additive model: bins of public edges, and what stands for each bin.

A number's curve is f(b) = Σ_k w_k m_k(b) over B bins. The columns of M = (m_k(b)) are one line and B − 1 cosines whose
k-th is divided by k, as in the Karhunen–Loève expansion of a Brownian path (Loève 1978, section 37.5). Training w by
gradients and noise on w moves f by M Mᵀ times both. So the noise on a curve is as smooth as the curve, without another
step. All rows of the cosines have the same length. So a record's gradient has a length that public numbers bound.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from private_learning.tasks.declared_columns import CategoryColumn, Declared, Floats, NumberColumn
from private_learning.tasks.task import TaskError
from study_protocol.cells import Numbers

# Length of the row of cosines of every bin. The line runs from −1.25 to 1.25, and from −1 to 1 over a typical range.
WIGGLE = 0.6
_LINE = 1.25
# Share of the bins on each side of a typical range: it holds about nine in ten values.
_BEYOND = 0.1


@dataclass(frozen=True)
class CurveColumn(NumberColumn):
    """A number whose curve is one value for each bin.

    bins: how many. They have equal widths on the scaled range. A typical range has four in five of them.
    """

    bins: int = 32

    @classmethod
    def of(cls, column: NumberColumn, bins: int) -> CurveColumn:
        """Return the column with bins. Raises TaskError: its range is too narrow for so many."""
        binned = cls(**{field.name: getattr(column, field.name) for field in fields(column)}, bins=bins)
        ends = np.concatenate([[binned.low], binned.edges, [binned.high]])
        if not (np.diff(ends) > 0).all():
            raise TaskError(f"column.{binned.name}: the range is too narrow for {bins} bins. Write fewer bins")
        return binned

    @property
    def width(self) -> int:
        return self.bins + (self.missing is not None)

    @cached_property
    def edges(self) -> Floats:
        """Return (bins − 1,) numbers between the bins, rising. A number on an edge is in the bin above it."""
        low, high = self.scaled(np.array([self.low, self.high]))
        scaled, places = [low, high], [0.0, 1.0]
        if self.typical is not None:
            # Compared as declared: scaled, an end of the range may lie a last bit beyond 1.
            first, last = self.typical
            places = [0.0, _BEYOND if first > self.low else 0.0, 1 - _BEYOND if last < self.high else 1.0, 1.0]
            scaled = [low, -1.0, 1.0, high]
        at = np.interp(np.arange(1, self.bins) / self.bins, *_rising(places, scaled))
        middle, half = self.middle_and_half
        numbers = middle + half * at
        return np.exp(numbers) - self.offset if self.log else numbers

    @cached_property
    def basis(self) -> Floats:
        """Return (bins, bins) M: the inputs that stand for each bin."""
        return basis(self.bins)

    def encoded(self, read: Numbers) -> Floats:
        """Return the row of the number's bin. A missing one has zeros, and a further 1 where it may be missing."""
        absent = np.isnan(read.values)
        rows = self.basis[self.bin_of(np.where(absent, self.low, read.values))]
        rows[absent] = 0.0
        return rows if self.missing is None else np.column_stack([rows, absent.astype(np.float64)])

    def bin_of(self, values: Floats) -> NDArray[np.int64]:
        """Return (n,) places of the bins of (n,) numbers. One beyond the range is in the nearest bin."""
        return np.searchsorted(self.edges, np.clip(values, self.low, self.high), side="right").astype(np.int64)


def basis(bins: int) -> Floats:
    """Return (bins, bins): a line, and cosines of falling size whose rows all have the length WIGGLE.

    >>> [round(float(length), 6) for length in np.linalg.norm(basis(4)[:, 1:], axis=1)]
    [0.6, 0.6, 0.6, 0.6]
    """
    middles = (np.arange(bins) + 0.5) / bins
    orders = np.arange(1, bins)
    cosines = np.cos(np.pi * np.outer(middles, orders)) / orders
    cosines *= WIGGLE / np.linalg.norm(cosines, axis=1, keepdims=True)
    return np.column_stack([_LINE * (2 * middles - 1), cosines])


def curve_column(column: Declared, bins: int) -> Declared:
    """Return the column as an additive model reads it: categories stay. Raises TaskError."""
    return column if isinstance(column, CategoryColumn) else CurveColumn.of(column, bins)


def longest_row(column: Declared) -> float:
    """Return the largest L2 norm of what stands for a cell of the column, from public numbers alone."""
    if isinstance(column, CurveColumn):
        # A missing number is a single 1.
        return max(float(np.linalg.norm(column.basis, axis=1).max()), 0.0 if column.missing is None else 1.0)
    if isinstance(column, NumberColumn):
        raise TypeError(f"column {column.name} has no curve")
    rows = np.eye(len(column.categories)) - np.array(column.shares or 0.0)
    return max(float(np.linalg.norm(rows, axis=1).max()), 1.0 if column.missing else 0.0)


def scores(column: Declared, weights: Floats) -> tuple[Floats, float]:
    """Return (bins or categories,) values of the column's curve, and that of a missing cell: 0 where none may be.

    weights: (width,) of the column.
    """
    if isinstance(column, CurveColumn):
        values = column.basis @ weights[: column.bins]
        return values, float(weights[-1]) if column.missing is not None else 0.0
    if isinstance(column, NumberColumn):
        raise TypeError(f"column {column.name} has no curve")
    by_category = weights[: len(column.categories)]
    mean = float(by_category @ np.array(column.shares)) if column.shares else 0.0
    return by_category - mean, float(weights[-1]) if column.missing else 0.0


def monotone(column: CurveColumn, weights: Floats) -> tuple[Floats, float]:
    """Return the (bins,) weights and a constant that make the nearest curve that runs as the column's trend says.

    Nearest in squares over the bins (Barlow et al. 1972, isotonic regression). The constant belongs to the intercept.
    """
    from importlib import import_module

    optimize: Any = import_module("scipy.optimize")
    curve = column.basis @ weights
    nearest: Floats = optimize.isotonic_regression(curve, increasing=column.trend != "decreasing").x
    with_constant = np.column_stack([column.basis, np.ones(column.bins)])
    change: Floats = np.linalg.pinv(with_constant) @ (nearest - curve)
    return weights + change[:-1], float(change[-1])


def _rising(places: list[float], scaled: list[float]) -> tuple[list[float], list[float]]:
    """Leave out places that stand twice."""
    distinct = [at for at in range(len(places)) if at == 0 or places[at] > places[at - 1]]
    return [places[at] for at in distinct], [scaled[at] for at in distinct]
