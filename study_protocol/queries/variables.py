"""Columns as a question names them: public bins, categories and ranges, chosen before anybody looks at the records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Discriminator, Field, Tag, model_validator

from study_protocol.cells import (
    Column,
    are_several,
    column_name,
    is_miswritten,
    read_categories,
    read_numbers,
    read_presence,
    same_category,
)
from study_protocol.cells import column_of as column_from
from study_protocol.wire.text import Text
from study_protocol.wire.values import Finite, Message

MISSING = "missing"
OTHER_LABEL = "other"
PRESENT = "present"
# Beyond these bounds squares of ranges overflow, and an answer in the column's own unit would not be finite.
LARGEST, NARROWEST = 1e100, 1e-100
ColumnName = Annotated[Text, Field(min_length=1, max_length=128)]
Codes = Annotated[tuple[Annotated[Text, Field(min_length=1, max_length=128)], ...], Field(max_length=64)]
Places = NDArray[np.int64]
Patients = Mapping[str, Any]
"""Column name -> a `Column` of (n,) cells or an array of numbers (NaN: missing), one row a patient."""


class UnreadableColumn(ValueError):
    """A hospital's table lacks a column that the question names."""


class Variable(Message):
    """One column cut into cells that hold all patients.

    edges e₁ < … < e_k  cells: below e₁, [e₁, e₂), …, e_k and above, missing
    categories          cells: each of them, other, missing
    presence            cells: present, missing
    """

    column: ColumnName = Field(description="its name in every hospital's table")
    edges: Annotated[tuple[Finite, ...], Field(min_length=1, max_length=4096)] | None = Field(
        default=None, description="of the bins of a number, rising, from public knowledge"
    )
    categories: Annotated[Codes, Field(min_length=1)] | None = Field(default=None, description="its public values")
    presence: bool = Field(default=False, description="only whether there is a value", strict=True)
    missing_values: Codes = Field(default=(), description="values that mean missing, beside an empty cell")

    @model_validator(mode="after")
    def _is_cut_in_one_way(self) -> Self:
        if (self.edges is not None) + (self.categories is not None) + self.presence != 1:
            raise ValueError(f"column {self.column}: has edges (of a number), categories or presence, one of the three")
        if self.edges is not None and any(low >= high for low, high in pairwise(self.edges)):
            raise ValueError(f"column {self.column}: edges rise from one to the next")
        require_codes(self.column, self.categories or (), self.missing_values)
        if self.categories is not None and {OTHER_LABEL, MISSING} & set(self.categories):
            raise ValueError(
                f"column {self.column}: a category is called {OTHER_LABEL} or {MISSING}, as cells of every variable "
                f"are. Leave {OTHER_LABEL!r} out, as its patients are counted there. Write {MISSING!r} into "
                "missing_values"
            )
        return self

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of the cells, in order. The last is for missing values."""
        if self.edges is not None:
            return bins_of(self.edges)
        return (PRESENT, MISSING) if self.categories is None else (*self.categories, OTHER_LABEL, MISSING)

    @property
    def usual(self) -> tuple[bool, ...]:
        """Of each cell, whether one expects patients in it without having looked: not among others or missing."""
        return tuple(self.presence or label not in (OTHER_LABEL, MISSING) for label in self.labels)

    def places(self, patients: Patients) -> Places:
        """Return the cell of every patient, shape (n,).

        Raises:
            UnreadableColumn: the table lacks the column.
        """
        column = column_of(patients, self.column)
        if self.edges is not None:
            # Not refused: a refusal that depends on a value tells of it.
            numbers = read_numbers(column, self.missing_values).values
            return np.where(np.isnan(numbers), len(self.edges) + 1, np.searchsorted(self.edges, numbers, side="right"))
        if self.categories is None:
            return read_presence(column, self.missing_values).astype(np.int64)
        read = read_categories(column, self.categories, self.missing_values)
        fallback = np.where(read.missing, len(self.categories) + 1, len(self.categories))
        return np.where(read.places < 0, fallback, read.places)


class Range(Message):
    """A number that is clipped to a public range."""

    column: ColumnName = Field(description="its name in every hospital's table")
    low: Finite = Field(description="smaller values count as this one")
    high: Finite = Field(description="larger values count as this one")
    missing_values: Codes = Field(default=(), description="values that mean missing, beside an empty cell")

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"column {self.column}: low is below high")
        if max(abs(self.low), abs(self.high)) > LARGEST or self.high - self.low < NARROWEST:
            raise ValueError(f"column {self.column}: a range lies within ±{LARGEST:g} at least {NARROWEST:g} wide")
        require_codes(self.column, (), self.missing_values)
        return self

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2

    def scaled(self, patients: Patients) -> NDArray[np.float64]:
        """Return the numbers clipped and scaled to [-1, 1], shape (n,), NaN where missing. Raises UnreadableColumn."""
        numbers = read_numbers(column_of(patients, self.column), self.missing_values).values
        return np.clip((np.clip(numbers, self.low, self.high) - self.middle) / self.half, -1.0, 1.0)


class Indicator(Message):
    """A column as a number: 1 where it is one of the categories, 0 where it is anything else."""

    column: ColumnName = Field(description="its name in every hospital's table")
    categories: Annotated[Codes, Field(min_length=1)] = Field(description="its values that count as 1")
    missing_values: Codes = Field(default=(), description="values that mean missing, beside an empty cell")

    @model_validator(mode="after")
    def _has_sound_codes(self) -> Self:
        require_codes(self.column, self.categories, self.missing_values)
        return self

    @property
    def low(self) -> float:
        return 0.0

    @property
    def high(self) -> float:
        return 1.0

    @property
    def middle(self) -> float:
        return 0.5

    @property
    def half(self) -> float:
        return 0.5

    def scaled(self, patients: Patients) -> NDArray[np.float64]:
        """Return 1 for the categories, -1 for other values, NaN where missing, shape (n,). Raises UnreadableColumn."""
        read = read_categories(column_of(patients, self.column), self.categories, self.missing_values)
        return np.where(read.missing, np.nan, np.where(read.places >= 0, 1.0, -1.0))


def _form(value: Any) -> str:
    has = "categories" in value if isinstance(value, dict) else isinstance(value, Indicator)
    return "indicator" if has else "range"


Number = Annotated[Annotated[Range, Tag("range")] | Annotated[Indicator, Tag("indicator")], Discriminator(_form)]
"""A number in a public range, or a category as 0 and 1. Both have column, low, high, middle, half, scaled."""


class Condition(Message):
    """A condition on patients: the column is one of the categories, or lies in [low, high).

    A missing value never meets it.
    """

    column: ColumnName = Field(description="its name in every hospital's table")
    categories: Annotated[Codes, Field(min_length=1)] | None = Field(default=None, description="one of these")
    low: Finite | None = Field(default=None, description="of a number: at least this")
    high: Finite | None = Field(default=None, description="of a number: below this")
    missing_values: Codes = Field(default=(), description="values that mean missing, beside an empty cell")

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        if (self.categories is None) == (self.low is None and self.high is None):
            raise ValueError(f"column {self.column}: a condition has categories, or low, high or both")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(f"column {self.column}: low is below high")
        require_codes(self.column, self.categories or (), self.missing_values)
        return self

    def holds(self, patients: Patients) -> NDArray[np.bool_]:
        """Return the patients that meet it, shape (n,). Raises UnreadableColumn."""
        column = column_of(patients, self.column)
        if self.categories is not None:
            return read_categories(column, self.categories, self.missing_values).places >= 0
        numbers = read_numbers(column, self.missing_values).values
        low = -np.inf if self.low is None else self.low
        high = np.inf if self.high is None else self.high
        return (numbers >= low) & (numbers < high)


def require_columns_once(variables: Sequence[Variable | Range]) -> None:
    """Raises ValueError: two of the variables are of one column."""
    twice = [name for name, times in Counter(variable.column for variable in variables).items() if times > 1]
    if twice:
        raise ValueError(f"column {twice[0]}: stands twice")


def column_of(patients: Patients, name: str) -> Column:
    """Return the column. A code that the hospital's mapping does not know is missing in questions.

    Raises:
        UnreadableColumn: the table lacks it.
    """
    key = name if name in patients else column_name(name)
    if key not in patients:
        raise UnreadableColumn(f"the table has no column {name!r}")
    return column_from(patients[key], name=name).with_unmapped_missing()


def require_codes(column: str, categories: tuple[str, ...], missing_values: tuple[str, ...]) -> None:
    """Raises ValueError: an empty value, one that stands twice, or a category that also means missing."""
    values, absent = list(map(same_category, categories)), list(map(same_category, missing_values))
    if "" in values + absent:
        raise ValueError(f"column {column}: an empty cell is missing anyway. Values have at least one letter or digit")
    if len(set(values)) + len(set(absent)) < len(values + absent):
        raise ValueError(f"column {column}: a value stands twice (3 and 3.0 are one value)")
    if set(values) & set(absent):
        raise ValueError(f"column {column}: a value is both a category and one of missing_values")
    for codes in (categories, missing_values):
        if any(are_several(code, is_only=len(codes) == 1) for code in codes):
            raise ValueError(f"column {column}: 0,-1 is one text with a comma in it. Write each value by itself")
    if "|" in "".join(missing_values) or (not categories and any(map(is_miswritten, missing_values))):
        raise ValueError(
            f"column {column}: missing_values are single numbers or texts. A list, a range or a number in further "
            "quotation marks is none"
        )


def bins_of(edges: Sequence[float]) -> tuple[str, ...]:
    """Return labels: below, between two edges each, above, missing."""
    texts = [plain(edge) for edge in edges]
    between = (f"{low} to {high}" for low, high in pairwise(texts))
    return (f"below {texts[0]}", *between, f"{texts[-1]} and above", MISSING)


def plain(number: float) -> str:
    """Return the number as a person writes it, and different numbers differently."""
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
