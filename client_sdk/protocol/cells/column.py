"""One column of a table: cells as they are stored, with their type."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast, overload

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from client_sdk.protocol.cells.spelling import AS_WRITTEN, Spelling, cleaned

Array = np.ndarray[Any, np.dtype[Any]]
Rows = NDArray[np.int64]

# Stored types whose cells need no words.
_TYPED = "fiubM"


@dataclass(frozen=True, eq=False)
class Column(NDArrayOperatorsMixin):
    """(n,) cells. Made by `column_of`; `reading` says what they mean under a declaration.

    values: numbers, Booleans or dates of their stored type (float16 to float64, integers, bool, datetime64), or places
        among the words. words: (k,) cleaned texts, and None for an empty cell; None: the column stores no texts.
    absent: (n,) booleans, empty cells of a type that has no NaN; None: there are none.
    spelling: how texts of the data set are written, a public setting.

    In arithmetic and comparisons, for NumPy and for torch, a column is its numbers, NaN where a cell is empty. Beside a
    text it is compared as a category. Cells that are no number raise ValueError there, which counts them.
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

    def take(self, rows: Sequence[int] | Array) -> Column:
        """The given rows, in the given order."""
        index = np.asarray(rows)
        absent = None if self.absent is None else self.absent[index]
        return Column(self.values[index], self.words, absent, self.spelling, self.name)

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice | Sequence[int] | Array) -> Column: ...
    def __getitem__(self, place: int | slice | Sequence[int] | Array) -> Any:
        if isinstance(place, int | np.integer):
            return self.take([int(place)]).tolist()[0]
        return self.take(np.arange(len(self))[place] if isinstance(place, slice) else place)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def tolist(self) -> list[Any]:
        """Cells as Python's own values: text, number, Boolean, date; None where a cell is empty."""
        if self.words is not None:
            return self.words[self.values].tolist()
        cells = cast("list[Any]", self.values.tolist())
        if self.values.dtype.kind == "f":
            return [None if cell != cell else cell for cell in cells]
        if self.absent is None:
            return cells
        return [None if gone else cell for cell, gone in zip(cells, self.absent.tolist(), strict=True)]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if dtype is not None and np.dtype(dtype).kind == "O":
            return np.array(self.tolist(), dtype=object)
        return self._numbers() if dtype is None else self._numbers().astype(dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        texts = [one for one in inputs if isinstance(one, str)]
        if method == "__call__" and texts and ufunc in (np.equal, np.not_equal):
            from client_sdk.protocol.cells.reading import read_categories

            equal = read_categories(self, (texts[0],)).places == 0
            return equal if ufunc is np.equal else ~equal
        plain = [np.asarray(one) if isinstance(one, Column) else one for one in inputs]
        return getattr(ufunc, method)(*plain, **options)

    def __dlpack__(self, **options: Any) -> Any:
        return self._numbers().__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._numbers().__dlpack_device__()

    def _numbers(self) -> Array:
        from client_sdk.protocol.cells.reading import read_numbers

        found = read_numbers(self)
        if found.wrong.any():
            where = f"column {self.name}" if self.name else "a column"
            raise ValueError(f"{where}: {int(found.wrong.sum())} of {len(self)} cells are no numbers")
        return found.values

    @property
    def bytes(self) -> int:
        """Held in memory, about."""
        words = 0 if self.words is None else sum(64 + len(word or "") for word in self.words.tolist())
        return self.values.nbytes + words + (0 if self.absent is None else self.absent.nbytes)

    @classmethod
    def of_texts(cls, cells: Sequence[str | None], spelling: Spelling = AS_WRITTEN, name: str = "") -> Column:
        """Of texts as they stand in a file; None: there is no cell."""
        known: dict[str | None, int] = {}
        codes = np.fromiter((known.setdefault(cell, len(known)) for cell in cells), np.int32, len(cells))
        return cls.of_words(codes, list(known), spelling, name)

    @classmethod
    def of_words(
        cls, codes: Array, words: Sequence[str | None], spelling: Spelling = AS_WRITTEN, name: str = ""
    ) -> Column:
        """Of places among words that are texts as they stand in a file."""
        tidy = [None if word is None else cleaned(word) or None for word in words]
        return cls(np.asarray(codes, np.int32), np.array(tidy, dtype=object), None, spelling, name)

    @classmethod
    def joined(cls, columns: Sequence[Column]) -> Column:
        """All cells of one after those of another.

        Raises:
            ValueError: they store different types.
        """
        first = columns[0]
        if any(one.is_text != first.is_text for one in columns):
            raise ValueError(f"column {first.name}: some tables store texts there and others numbers")
        if first.is_text:
            starts = np.cumsum([0, *(len(cast(Array, one.words)) for one in columns)])
            codes = [one.values + start for one, start in zip(columns, starts, strict=False)]
            words = np.concatenate([cast(Array, one.words) for one in columns])
            return cls(np.concatenate(codes).astype(np.int32), words, None, first.spelling, first.name)
        absent = None
        if any(one.absent is not None for one in columns):
            absent = np.concatenate([np.zeros(len(one), bool) if one.absent is None else one.absent for one in columns])
        return cls(np.concatenate([one.values for one in columns]), None, absent, first.spelling, first.name)


def column_of(values: Any, *, spelling: Spelling = AS_WRITTEN, name: str = "") -> Column:
    """A column out of what programs hold: a `Column` as it is, NumPy arrays, lists, series of pandas.

    Numbers, Booleans and dates of one type keep it. Where the cells are objects, every one is written as text by
    itself: numbers as Python writes them, bytes as UTF-8, dates as ISO 8601.

    Raises:
        ValueError: more than one axis, or cells that are neither text, number, Boolean, date nor empty; it counts them.
    """
    if isinstance(values, Column):
        return values
    array, absent = _array_of(values)
    if array.ndim != 1:
        raise ValueError("a column is one-dimensional")
    if array.dtype.kind in _TYPED:
        if array.dtype.kind == "M":
            array = array.astype("datetime64[us]")
            gone = np.isnat(array)
            absent = gone if absent is None else absent | gone
        return Column(array, None, absent if absent is not None and absent.any() else None, spelling, name)
    cells = array.tolist()
    if absent is not None:
        cells = [None if gone else cell for cell, gone in zip(cells, absent.tolist(), strict=True)]
    mark = "," if spelling.decimal == "comma" else "."
    texts, strange = list[str | None](), 0
    for cell in cells:
        try:
            texts.append(_text(cell, mark))
        except (TypeError, ValueError):
            texts.append(None)
            strange += 1
    if strange:
        where = f"column {name}: " if name else ""
        raise ValueError(f"{where}{strange} of {len(cells)} cells are neither text, number, Boolean nor date")
    return Column.of_texts(texts, spelling, name)


def _array_of(values: Any) -> tuple[Array, NDArray[np.bool_] | None]:
    """The cells, and which are empty where their type has no NaN."""
    # Series of pandas with a type of its own: nullable numbers, categories, texts of Arrow. By shape, as pandas need
    # not be installed.
    own = getattr(values, "array", None)
    if own is not None and not isinstance(own, np.ndarray) and hasattr(values, "isna"):
        gone = np.asarray(values.isna(), bool)
        kept = np.asarray(values[~gone].to_numpy())
        if kept.dtype.kind == "O":
            kept = _narrowed(kept)
        nothing = math.nan if kept.dtype.kind == "f" else 0 if kept.dtype.kind in _TYPED else None
        whole = np.full(len(gone), nothing, kept.dtype)
        whole[~gone] = kept
        return whole, gone
    array = np.asarray(values)
    return (array.astype(object), None) if array.dtype.kind in "USmcV" else (array, None)


def _narrowed(cells: Array) -> Array:
    """Objects of one type of Python's own, as of nullable types, as an array of that type."""
    kinds = {type(cell) for cell in cast("list[object]", cells.tolist())}
    for kind in (bool, int, float):
        if kinds == {kind}:
            try:
                return cells.astype(kind)
            # Whole numbers that fit nowhere stay texts.
            except OverflowError:
                return cells
    return cells


def _text(cell: object, mark: str) -> str | None:
    """One cell as a file would write it; None: it is empty. Raises TypeError, UnicodeDecodeError."""
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bytes):
        return cell.decode()
    if isinstance(cell, np.datetime64):
        return None if np.isnat(cast("np.datetime64[Any]", cell)) else str(cast(object, cell))
    if isinstance(cell, float | decimal.Decimal | np.floating):
        number = cast("float | decimal.Decimal", cell)
        # By `math`: a signalling NaN of `decimal` compares with nothing.
        return None if math.isnan(number) else str(number).replace(".", mark)
    if isinstance(cell, int | np.integer | np.bool_):
        return str(cast(object, cell))
    if isinstance(cell, datetime.date) and cell == cell:
        return cell.isoformat().removesuffix("T00:00:00")
    # pandas' NA and NaT compare with nothing, themselves included.
    if type(cell).__name__ in ("NAType", "NaTType"):
        return None
    raise TypeError(type(cell).__name__)
