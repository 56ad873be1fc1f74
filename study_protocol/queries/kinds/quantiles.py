"""Quantiles and the whole distribution of a number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from study_protocol.cells import read_numbers
from study_protocol.queries.answer import Answer, NoisedSum
from study_protocol.queries.counting import NORMAL, Estimates, Floats, counts, shares_of
from study_protocol.queries.kinds.groups import by_in_words, curve_table, group_count, group_places
from study_protocol.queries.kinds.numbers import TOO_FEW
from study_protocol.queries.kinds.tables import root_up
from study_protocol.queries.monotone import errors_along, first_reached, isotonic, last_reached
from study_protocol.queries.phrases import listed, number_in_words
from study_protocol.queries.question import BaseQuestion
from study_protocol.queries.tree import MAX_LEAVES, SumErrors, Tree
from study_protocol.queries.variables import Patients, Range, Variable, bins_of, column_of, plain

Share = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
# A quantile needs more patients than this many standard deviations of their number's noise.
_MIN_PATIENTS = 3.0
MAX_GROUPS = 256
# Places inside a leaf at which an interval's end is looked for. Between them it is a straight line.
_PARTS = 8
_BELOW, _ABOVE, _MISSING, _OUTSIDE = 0, 1, 2, 3


class Quantiles(BaseQuestion):
    """Quantiles of a number whose range is cut into leaves of equal width, by groups if there are any.

    One patient's vector has a one among the cells of its group for below the range, above it, or missing. Otherwise
    each level of a tree over the leaves (`Tree`, one level up to 32 leaves) has a one for the node that holds its
    number. At most one 1 for each level and zeros else: Δ = √levels.
    """

    kind: Literal["quantiles"] = Field(description="what is asked")
    number: Range = Field(description="of which number")
    leaves: int = Field(
        default=32, ge=2, le=MAX_LEAVES, strict=True, description="bins of equal width: what a quantile is exact to"
    )
    quantiles: Annotated[tuple[Share, ...], Field(min_length=1, max_length=99)] = Field(
        default=(0.25, 0.5, 0.75), description="shares of the patients, rising. 0.5 is the median"
    )
    by: Variable | None = Field(default=None, description="groups of patients, each with its own quantiles")

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        if list(self.quantiles) != sorted(set(self.quantiles)):
            raise ValueError("quantiles: they rise from one to the next")
        if self.by is not None and self.by.column == self.number.column:
            raise ValueError(f"column {self.by.column}: stands twice")
        if group_count(self.by) > MAX_GROUPS:
            raise ValueError(f"by: at most {MAX_GROUPS} groups, those of other and missing values among them")
        if (np.diff(self.edges) <= 0).any():
            raise ValueError(f"column {self.number.column}: the range is too narrow for {self.leaves} leaves")
        return self

    @property
    def edges(self) -> Floats:
        """(leaves + 1,) rising edges. A leaf holds its lower end."""
        return np.linspace(self.number.low, self.number.high, self.leaves + 1)

    @property
    def tree(self) -> Tree:
        return Tree(self.leaves)

    @property
    def group_cells(self) -> int:
        """Below, above, missing, then the nodes."""
        return _OUTSIDE + sum(self.tree.sizes)

    @property
    def cells(self) -> int:
        return group_count(self.by) * self.group_cells

    @property
    def sensitivity(self) -> float:
        return root_up(self.tree.levels)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.with_conditions(self.number.column, *(() if self.by is None else (self.by.column,)))

    def total(self, patients: Patients, spacing: float) -> NDArray[np.int64]:
        included = self.included(patients)
        column = column_of(patients, self.number.column)
        numbers = read_numbers(column, self.number.missing_values).values[included]
        groups = group_places(self.by, patients, len(included))[included]
        sums = [self._cells_of(numbers[groups == group]) for group in range(group_count(self.by))]
        return np.concatenate(sums) * round(1 / spacing)

    def _cells_of(self, numbers: Floats) -> NDArray[np.int64]:
        low, high = self.number.low, self.number.high
        inside = numbers[(numbers >= low) & (numbers < high)]
        places = np.searchsorted(self.edges, inside, side="right") - 1
        outside = [(numbers < low).sum(), (numbers >= high).sum(), np.isnan(numbers).sum()]
        return np.concatenate([np.array(outside, np.int64), self.tree.count(places)])

    def answer(self, noised: NoisedSum) -> Answer:
        tree, edges = self.tree, self.edges
        errors = tree.errors()
        groups = [
            Distribution(edges, cells[:_OUTSIDE], tree.least_squares(cells[_OUTSIDE:]), errors, noised.std)
            for cells in noised.total.reshape(-1, self.group_cells)
        ]
        sizes = [group.patients for group in groups]
        unsure = any(not group.enough for group in groups)
        name = self.number.column
        return Answer(
            tables=(
                curve_table(
                    "quantiles",
                    f"quantiles of {name}",
                    self.by,
                    ("quantile", self.quantiles),
                    [group.quantiles(self.quantiles) for group in groups],
                    sizes,
                    "points",
                ),
                curve_table(
                    "distribution",
                    f"share of the patients whose {name} is below",
                    self.by,
                    ("below", (edges + 0.0).tolist()),
                    [group.shares_below() for group in groups],
                    sizes,
                    "line",
                ),
                curve_table(
                    "histogram",
                    "patients",
                    self.by,
                    ("bin", _bins(edges)),
                    [group.histogram() for group in groups],
                    None,
                    "bars",
                ),
                curve_table(
                    "patients",
                    "patients",
                    self.by,
                    ("who", ("with a number",)),
                    [distribution.count() for distribution in groups],
                    None,
                ),
            ),
            notes=(_NOTE.format(f"{(self.number.high - self.number.low) / self.leaves:.4g}"), *((TOO_FEW,) * unsure)),
        )

    def in_words(self) -> str:
        shares = listed(f"{plain(100 * share)} %" for share in self.quantiles)
        return (
            f"The quantiles at {shares} and the distribution of {number_in_words(self.number)} in {self.leaves} "
            f"bins{by_in_words(self.by)}, of patients{self.who_in_words()}"
        )


_NOTE = (
    "Numbers are counted in bins of width {}. Inside a bin patients are taken as evenly spread, so that a quantile can "
    "be off by a part of that width whatever the errors say. One that is shown as an end of the range lies there or "
    "beyond. Estimates are made to fit: no bin is below zero, and shares rise. Intervals and the numbers "
    "before adjustment (raw) do not have this."
)


@dataclass(frozen=True)
class Distribution:
    """The distribution of one group.

    Every interval holds the values that the raw counts do not contradict at 5 %, noise and sampling together. That is
    exact where noise and counts are normal, and needs no draws.

    Attributes:
        outside: (3,) raw counts below, above, missing.
        leaves: (leaves,) raw, of least squares.
        errors: of these in units of std².
    """

    edges: Floats
    outside: Floats
    leaves: Floats
    errors: SumErrors
    std: float

    @cached_property
    def starts(self) -> Floats:
        """(leaves + 1,) raw: patients below each edge."""
        return self.outside[_BELOW] + np.append(0.0, np.cumsum(self.leaves))

    @cached_property
    def total(self) -> float:
        """Raw: patients with a number."""
        return float(self.starts[-1] + self.outside[_ABOVE])

    @cached_property
    def fitted(self) -> Floats:
        """(leaves + 2,) patients below each edge and in all, made to fit: rising from zero or more."""
        return np.maximum(isotonic(np.append(self.starts, self.total)), 0.0)

    @property
    def patients(self) -> float:
        return float(self.fitted[-1])

    @property
    def enough(self) -> bool:
        return self.total > _MIN_PATIENTS * self.std * math.sqrt(self._total_noise) and self.patients > 0

    def quantiles(self, shares: Sequence[float]) -> Estimates:
        """Return the quantiles of these shares, shape (shares,)."""
        rows = np.array([self._quantile(share) for share in shares])
        return Estimates(*rows[:, [0, 0, 1, 2, 3, 4]].T)

    def shares_below(self) -> Estimates:
        """Return the shares of patients below the edges, shape (leaves + 1,)."""
        noise = self.std**2 * (1 + self.errors.starts)
        with_total = self.std**2 * (1 + self.errors.with_total)
        fitted = self.fitted[:-1]
        estimates = shares_of(self.starts, fitted, self.total, noise, with_total, self.std**2 * self._total_noise)
        if not self.enough:
            nothing = np.full(len(fitted), np.nan)
            return replace(estimates, raw=nothing, estimate=nothing, dp_error=nothing, sampling_error=nothing)
        return replace(estimates, estimate=fitted / self.patients)

    def histogram(self) -> Estimates:
        """Return the patients below, in every leaf, above and missing, shape (leaves + 3,)."""
        raw = np.concatenate([self.outside[:1], self.leaves, self.outside[1:]])
        noise = self.std**2 * np.concatenate([[1.0], self.errors.leaves, [1.0, 1.0]])
        fitted = np.concatenate([self.fitted[:1], np.diff(self.fitted), np.maximum(self.outside[_MISSING:], 0.0)])
        return counts(raw, noise, fitted)

    def count(self) -> Estimates:
        """Return the number of patients with a number, shape (1,)."""
        noise = np.array([self.std**2 * self._total_noise])
        return counts(np.array([self.total]), noise, np.array([self.patients]))

    @property
    def _total_noise(self) -> float:
        return 2 + self.errors.total

    def _quantile(self, share: float) -> tuple[float, float, float, float, float]:
        """Return the estimate, DP error, sampling error, low and high. Woodruff 1952, with noise."""
        places, deviations, noise, sampling = self._deviations_from(share)
        reach = NORMAL * np.sqrt(noise + sampling)
        low, high = first_reached(places, deviations + reach, 0.0), last_reached(places, deviations - reach, 0.0)
        first, last = float(places[0]), float(places[-1])
        low, high = last if math.isnan(low) else low, first if math.isnan(high) else high
        if not self.enough:
            return math.nan, math.nan, math.nan, low, high
        quantile = self._inverse(share * self.patients)
        dp, sampled = (math.sqrt(np.interp(quantile, places, variances)) for variances in (noise, sampling))
        return quantile, *errors_along(self._inverse, share * self.patients, dp, sampled), low, high

    def _deviations_from(self, share: float) -> tuple[Floats, Floats, Floats, Floats]:
        """Return places in the range, and there the patients below minus this share of all, with two variances.

        The variances are those of noise and of sampling if the deviation is zero. Inside a leaf of n patients, at its
        part t, the variance is t(1 - t)n less than between the ends. No patient is taken to be on one side.
        """
        of_share = 1 + self.errors.starts - 2 * share * (1 + self.errors.with_total) + share**2 * self._total_noise
        part = np.linspace(0.0, 1.0, _PARTS, endpoint=False)

        def between(ends: Floats, inside: Floats) -> Floats:
            rows = np.outer(ends[:-1], 1 - part) + np.outer(ends[1:], part) - np.outer(inside, part * (1 - part))
            return np.append(rows.ravel(), ends[-1])

        nothing, size = np.zeros(len(self.leaves)), max(self.total, 0.0)
        noise = self.std**2 * between(of_share, self.errors.leaves)
        sampling = between(np.full(len(self.edges), share * (1 - share) * size), np.diff(self.fitted)[:-1])
        deviations = between(self.starts - share * self.total, nothing)
        return between(self.edges, nothing), deviations, np.maximum(noise, 0.0), np.maximum(sampling, 0.0)

    def _inverse(self, patients: float) -> float:
        """Return the place within the range at which the fitted curve reaches so many patients."""
        place = first_reached(self.edges, self.fitted[:-1], patients)
        return float(self.edges[-1]) if math.isnan(place) else place


def _bins(edges: Floats) -> tuple[str, ...]:
    """Return labels: below, every leaf, above, missing."""
    # 0.30000000000000004 is written 0.3, if that is none of the other edges.
    short = [float(f"{edge:.12g}") for edge in edges.tolist()]
    return bins_of([edge + 0.0 for edge in (short if len(set(short)) == len(short) else edges.tolist())])
