"""Cells of one column as they are stored, with their type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, cast, overload

import numpy as np
from numpy.typing import NDArray

from study_protocol.cells.spelling import AS_WRITTEN, UNMAPPED, Spelling, cleaned, number_text

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False, repr=False)
class StoredCells:
    """(n,) cells. `reading` gives their values under a declaration.

    Attributes:
        values: numbers, Booleans or dates of their stored type (float16 to float64, integers, bool, datetime64), or
            places among the words.
        words: (k,) cleaned texts, and None for an empty cell. None if the column stores no texts.
        absent: (n,) booleans, empty cells of a type that has no NaN. None without such cells.
        spelling: how texts of the data set are written, a public setting.
    """

    values: Array
    words: Array | None = None
    absent: NDArray[np.bool_] | None = None
    spelling: Spelling = AS_WRITTEN
    name: str = field(default="", compare=False)

    @property
    def is_text(self) -> bool:
        """Does it store texts?"""
        return self.words is not None

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Sequence[int] | Array) -> Self:
        """Return the given rows, in the given order."""
        index = np.asarray(rows)
        # An empty list is an array of floats, which are no places.
        index = index if index.dtype.kind == "b" else index.astype(np.int64)
        values, words = self.values[index], self.words
        # Words are read one by one: few rows need few of them.
        if words is not None and len(words) > 2 * len(values):
            places, values = np.unique(values, return_inverse=True)
            values, words = values.astype(np.int32), words[places]
        return replace(self, values=values, words=words, absent=None if self.absent is None else self.absent[index])

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice | Sequence[int] | Array) -> Self: ...
    def __getitem__(self, place: int | slice | Sequence[int] | Array) -> Any:
        if isinstance(place, int | np.integer):
            return self.take(np.arange(len(self))[int(place)][None]).tolist()[0]
        return self.take(np.arange(len(self))[place] if isinstance(place, slice) else place)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    @property
    def empty(self) -> NDArray[np.bool_]:
        """(n,) whether the cell is empty, which for a text is None."""
        if self.words is not None:
            none = np.array([word is None for word in self.words.tolist()], bool)
            return none[self.values] if len(self) else np.zeros(0, bool)
        nulls = np.zeros(len(self), bool) if self.absent is None else self.absent
        return nulls | np.isnan(self.values) if self.values.dtype.kind == "f" else nulls

    @property
    def unmapped(self) -> NDArray[np.bool_]:
        """(n,) whether the cell has a code that the hospital's mapping does not know."""
        if self.words is None:
            return np.zeros(len(self), bool)
        unknown = np.array([word == UNMAPPED for word in self.words.tolist()], bool)
        return unknown[self.values] if len(self) else np.zeros(0, bool)

    def with_unmapped_missing(self) -> Self:
        """Return the same cells, empty where they are `unmapped`."""
        words = [] if self.words is None else cast("list[str | None]", self.words.tolist())
        if UNMAPPED not in words:
            return self
        return replace(self, words=np.array([None if word == UNMAPPED else word for word in words], dtype=object))

    def emptied(self, rows: NDArray[np.bool_]) -> Self:
        """Return the same cells, empty in the marked rows, (n,)."""
        if not rows.any():
            return self
        if self.words is None:
            return replace(self, absent=self.empty | rows)
        words = np.array([*self.words.tolist(), None], dtype=object)
        return replace(self, values=np.where(rows, np.int32(len(self.words)), self.values), words=words)

    def tolist(self) -> list[Any]:
        """Return the cells as Python's own values: text, number, Boolean, date, or None for an empty cell."""
        if self.words is not None:
            return self.words[self.values].tolist()
        cells = cast("list[Any]", self.values.tolist())
        empty = self.empty
        if not empty.any():
            return cells
        return [None if is_empty else cell for cell, is_empty in zip(cells, empty.tolist(), strict=True)]

    @property
    def bytes(self) -> int:
        """Held in memory, about."""
        words = 0 if self.words is None else sum(64 + len(word or "") for word in self.words.tolist())
        return self.values.nbytes + words + (0 if self.absent is None else self.absent.nbytes)

    @property
    def as_texts(self) -> Self:
        """The same cells as a file would write them, with the data set's decimal mark."""
        if self.words is not None:
            return self
        empty = self.empty
        if self.values.dtype.kind == "M":
            cells = [day_text(cell) for cell in np.datetime_as_string(self.values).tolist()]
        else:
            # One by one from the array: float32 writes itself in its own digits.
            cells = [number_text(cell, self.spelling) for cell in self.values]
        return self.of_texts(
            [None if is_empty else cell for cell, is_empty in zip(cells, empty.tolist(), strict=True)],
            self.spelling,
            self.name,
        )

    @classmethod
    def of_texts(cls, cells: Sequence[str | None], spelling: Spelling = AS_WRITTEN, name: str = "") -> Self:
        """Return a column of texts as they stand in a file. A text is None where there is no cell."""
        words = list(dict.fromkeys(cells))
        places = dict(zip(words, range(len(words)), strict=True))
        return cls.of_words(np.fromiter(map(places.__getitem__, cells), np.int32, len(cells)), words, spelling, name)

    @classmethod
    def of_words(
        cls, codes: Array, words: Sequence[str | None], spelling: Spelling = AS_WRITTEN, name: str = ""
    ) -> Self:
        """Return a column of places among words that are texts as they stand in a file."""
        tidy = [None if word is None else cleaned(word) or None for word in words]
        return cls(np.asarray(codes, np.int32), np.array(tidy, dtype=object), None, spelling, name)

    @classmethod
    def joined(cls, columns: Sequence[Self]) -> Self:
        """Return the cells of all columns one after another.

        If the stored types differ, each cell is kept as its text.
        """
        first = columns[0]
        if len(columns) == 1:
            return first
        if len({(column.is_text, column.values.dtype) for column in columns}) > 1:
            columns = [column.as_texts for column in columns]
        if columns[0].is_text:
            return cls._joined_texts(columns)
        absent = None
        if any(column.absent is not None for column in columns):
            absent = np.concatenate([column.empty for column in columns])
        return replace(first, values=np.concatenate([column.values for column in columns]), absent=absent)

    @classmethod
    def _joined_texts(cls, columns: Sequence[Self]) -> Self:
        first = columns[0]
        positions: dict[str | None, int] = {}
        codes: list[Array] = []
        for column in columns:
            local_words = cast(Array, column.words).tolist()
            places = np.fromiter(
                (positions.setdefault(word, len(positions)) for word in local_words), np.int32, len(local_words)
            )
            codes.append(places[column.values] if len(column) else column.values)
        words = np.array(list(positions), dtype=object)
        return cls(np.concatenate(codes), words, None, first.spelling, first.name)


def day_text(written: str) -> str:
    """Return a date as ISO 8601 writes it, without a time of day at midnight and without zeros behind its seconds."""
    time = written.partition(".")
    short = time[0] + (f".{time[2]}".rstrip("0").rstrip("."))
    return short.removesuffix("T00:00:00")
