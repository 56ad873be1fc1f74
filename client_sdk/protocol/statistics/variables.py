"""Columns as a question names them: public bins, categories and ranges, chosen before anybody looks at the records."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from client_sdk.protocol.statistics.cells import Array, as_category, as_number
from client_sdk.protocol.wire.text import Text
from client_sdk.protocol.wire.values import Finite, Message

MISSING = "missing"
OTHER = "other"
ColumnName = Annotated[Text, Field(min_length=1, max_length=128)]
Codes = Annotated[tuple[Annotated[Text, Field(min_length=1, max_length=128)], ...], Field(max_length=64)]
Places = NDArray[np.int64]
Patients = Mapping[str, Array]
"""Column name -> (n,) float64 (NaN: missing) or text (None: missing), one row a patient."""


class UnreadableColumn(ValueError):
    """A hospital's column is not what the question asks for; the text names the column and no value."""


class Variable(Message):
    """One column cut into cells that hold everybody: bins and what lies outside, or categories and the others.

    edges e₁ < … < e_k  cells: below e₁, [e₁, e₂), …, e_k and above, missing
    categories          cells: each of them, other, missing
    """

    column: ColumnName = Field(description="its name in every hospital's table")
    edges: Annotated[tuple[Finite, ...], Field(min_length=1, max_length=4096)] | None = Field(
        default=None, description="of the bins of a number, rising; chosen from public knowledge"
    )
    categories: Annotated[Codes, Field(min_length=1)] | None = Field(default=None, description="its public values")
    missing_values: Codes = Field(default=(), description="what a file writes for missing, beside an empty cell")

    @model_validator(mode="after")
    def _is_cut_in_one_way(self) -> Self:
        if (self.edges is None) == (self.categories is None):
            raise ValueError(f"column {self.column}: has edges (of a number) or categories, one of the two")
        if self.edges is not None and any(low >= high for low, high in pairwise(self.edges)):
            raise ValueError(f"column {self.column}: edges rise from one to the next")
        if self.categories is not None and len({as_category(one) for one in self.categories}) < len(self.categories):
            raise ValueError(f"column {self.column}: a category stands twice")
        return self

    @property
    def labels(self) -> tuple[str, ...]:
        """Of the cells, in order; the last is for missing values."""
        if self.edges is None:
            return (*(self.categories or ()), OTHER, MISSING)
        between = (f"{low:g} to {high:g}" for low, high in pairwise(self.edges))
        return (f"below {self.edges[0]:g}", *between, f"{self.edges[-1]:g} and above", MISSING)

    def places(self, patients: Patients) -> Places:
        """(n,) the cell of every patient.

        Raises:
            UnreadableColumn: the table lacks the column, or a number is none.
        """
        values = column_of(patients, self.column)
        if self.edges is None:
            known = {as_category(one): place for place, one in enumerate(self.categories or ())}
            texts, missing = texts_of(values, self.missing_values)
            found = np.array([known.get(text, len(known)) for text in texts], np.int64)
            return np.where(missing, len(known) + 1, found)
        numbers = numbers_of(values, self.column, self.missing_values)
        return np.where(np.isnan(numbers), len(self.edges) + 1, np.searchsorted(self.edges, numbers, side="right"))


class Range(Message):
    """A number that is clipped to a public range."""

    column: ColumnName = Field(description="its name in every hospital's table")
    low: Finite = Field(description="smaller values count as this one")
    high: Finite = Field(description="larger values count as this one")
    missing_values: Codes = Field(default=(), description="what a file writes for missing, beside an empty cell")

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"column {self.column}: low is below high")
        return self

    def scaled(self, patients: Patients) -> NDArray[np.float64]:
        """(n,) clipped and scaled to [-1, 1]; NaN where it is missing. Raises UnreadableColumn."""
        numbers = numbers_of(column_of(patients, self.column), self.column, self.missing_values)
        middle, half = self.low / 2 + self.high / 2, self.high / 2 - self.low / 2
        return np.clip((np.clip(numbers, self.low, self.high) - middle) / half, -1.0, 1.0)


class Condition(Message):
    """Who is asked about: patients whose column is one of the categories, or lies in [low, high); missing: nobody."""

    column: ColumnName = Field(description="its name in every hospital's table")
    categories: Annotated[Codes, Field(min_length=1)] | None = Field(default=None, description="one of these")
    low: Finite | None = Field(default=None, description="of a number: at least this")
    high: Finite | None = Field(default=None, description="of a number: below this")

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        if (self.categories is None) == (self.low is None and self.high is None):
            raise ValueError(f"column {self.column}: a condition has categories, or low, high or both")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(f"column {self.column}: low is below high")
        return self

    def holds(self, patients: Patients) -> NDArray[np.bool_]:
        """(n,) who meets it. Raises UnreadableColumn."""
        values = column_of(patients, self.column)
        if self.categories is not None:
            texts, missing = texts_of(values, ())
            wanted = {as_category(one) for one in self.categories}
            return np.array([text in wanted for text in texts], bool) & ~missing
        numbers = numbers_of(values, self.column, ())
        low = -np.inf if self.low is None else self.low
        high = np.inf if self.high is None else self.high
        return (numbers >= low) & (numbers < high)


def column_of(patients: Patients, name: str) -> Array:
    """Raises UnreadableColumn: the table lacks it."""
    if name not in patients:
        raise UnreadableColumn(f"the table has no column {name!r}")
    return patients[name]


def numbers_of(values: Array, name: str, missing_values: tuple[str, ...]) -> NDArray[np.float64]:
    """(n,) NaN where missing. Raises UnreadableColumn: a text that is no number, or an infinity."""
    if values.dtype.kind == "f":
        codes = [_number(code) for code in missing_values]
        found = np.where(np.isin(values, codes), np.nan, values)
    else:
        texts, missing = texts_of(values, missing_values)
        found = np.array([np.nan if gone else _number(text) for text, gone in zip(texts, missing, strict=True)])
        if bool((np.isnan(found) & ~missing).any()):
            raise UnreadableColumn(f"column {name!r} holds values that are no numbers")
    if bool(np.isinf(found).any()):
        raise UnreadableColumn(f"column {name!r} holds infinite values")
    return found


def texts_of(values: Array, missing_values: tuple[str, ...]) -> tuple[list[str | None], NDArray[np.bool_]]:
    """n categories, None where missing; (n,) whether it is missing."""
    codes = {as_category(code) for code in missing_values} | {None}
    texts: list[str | None] = [as_category(value) for value in cast_list(values)]
    missing = np.array([text in codes for text in texts], bool)
    return texts, missing


def cast_list(values: Array) -> list[Any]:
    """As Python's own values."""
    return values.tolist()


def _number(text: str | None) -> float:
    try:
        return as_number(text)
    except (TypeError, ValueError):
        return float("nan")
