"""Columns out of what programs hold: lists, NumPy arrays, series of pandas."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from study_protocol.cells.column import Column
from study_protocol.cells.errors import DataError
from study_protocol.cells.spelling import AS_WRITTEN, Spelling, number_text
from study_protocol.cells.stored import Array, day_text

# Stored types whose cells need no words.
_TYPED = "fiubM"
# A list of one of these types is an array of numbers. With any other type, or several, each cell is written by itself.
_PLAIN = (bool, int, float)
_NUMBERS = (float, int, np.floating, np.integer, np.bool_, decimal.Decimal)


def column_of(values: Any, *, spelling: Spelling = AS_WRITTEN, name: str = "") -> Column:
    """Return a column from a `Column`, a NumPy array, a list or a pandas series. A `Column` stays as it is.

    Numbers, Booleans and dates of one type keep it. If the cells are objects, every one is written as text by
    itself: numbers in their own digits, bytes as UTF-8, dates as ISO 8601.

    Raises:
        DataError: more than one axis, or cells that are neither text, number, Boolean, date nor empty. It counts them.
    """
    if isinstance(values, Column):
        return values
    if isinstance(values, list) and set(map(type, cast("list[Any]", values))) <= {str, type(None)}:
        return Column.of_texts(cast("list[str | None]", values), spelling, name)
    array, absent = _array_of(values)
    if array.ndim != 1:
        raise DataError(f"{_label(name)}a column is one-dimensional")
    if array.dtype.kind in _TYPED and array.dtype.itemsize <= 8:
        return _of_array(array, absent, spelling, name)
    return _of_objects(array.astype(object).tolist(), absent, spelling, name)


def _label(name: str) -> str:
    return f"column {name}: " if name else ""


def _of_array(array: Array, absent: NDArray[np.bool_] | None, spelling: Spelling, name: str) -> Column:
    if array.dtype.kind == "M":
        array = array.astype("datetime64[us]")
        nulls = np.isnat(array)
        absent = nulls if absent is None else absent | nulls
    # A copy in the order of this machine: what programs hold may change.
    array = array.astype(array.dtype.newbyteorder("="))
    return Column(array, None, absent if absent is not None and absent.any() else None, spelling, name)


def _of_objects(cells: list[Any], absent: NDArray[np.bool_] | None, spelling: Spelling, name: str) -> Column:
    if absent is not None:
        cells = [None if is_null else cell for cell, is_null in zip(cells, absent.tolist(), strict=True)]
    texts, strange = list[str | None](), 0
    for cell in cells:
        if cell is None or type(cell) is str:
            texts.append(cell)
            continue
        try:
            texts.append(text_of(cell, spelling))
        except (TypeError, ValueError):
            texts.append(None)
            strange += 1
    if strange:
        raise DataError(f"{_label(name)}{strange} of {len(cells)} cells are neither text, number, Boolean nor date")
    return Column.of_texts(texts, spelling, name)


def _array_of(values: Any) -> tuple[Array, NDArray[np.bool_] | None]:
    """Return the cells, and which are empty where their type has no NaN."""
    # Series of pandas with a type of its own: nullable numbers, categories, texts of Arrow. By shape, as pandas need
    # not be installed.
    extension_array = getattr(values, "array", None)
    if extension_array is not None and hasattr(values, "isna") and hasattr(values, "to_numpy"):
        return _of_series(values)
    if isinstance(values, list | tuple):
        return _of_list(cast("Sequence[Any]", values)), None
    if hasattr(values, "detach"):
        values = _of_tensor(values)
    if isinstance(values, np.ma.MaskedArray):
        masked = cast("Any", values)
        # A value under a mask is no cell.
        return np.asarray(masked.data), np.ma.getmaskarray(masked)
    array = np.asarray(values)
    return (_durations(array), np.isnat(array)) if array.dtype.kind == "m" else (array, None)


def _of_tensor(values: Any) -> Array:
    """Raises DataError: of a type that no table stores."""
    try:
        return np.asarray(values.detach().cpu())
    except TypeError as error:
        raise DataError(f"a column is of type {values.dtype}: make it one of float32 or of whole numbers") from error


def _durations(array: Array) -> Array:
    # As texts: counted in nanoseconds they would pass for numbers.
    return np.array([str(each) for each in array], dtype=object)


def _of_series(values: Any) -> tuple[Array, NDArray[np.bool_] | None]:
    nulls = np.asarray(values.isna(), bool)
    present: Array = np.asarray(values[~nulls].to_numpy())
    stored: Any = values.dtype
    if isinstance(stored, np.dtype) and present.dtype.kind in "fiub":
        return np.asarray(values.to_numpy()), None
    if present.dtype.kind == "m":
        present = _durations(present)
    # The type says what its cells are: Int64 whole numbers, boolean Booleans.
    dtype: Any = getattr(cast(Any, stored), "numpy_dtype", None)
    if present.dtype.kind == "O" and isinstance(dtype, np.dtype) and dtype.kind in "fiub":
        present = present.astype(cast("np.dtype[Any]", dtype))
    whole = np.full(
        len(nulls), None if present.dtype.kind not in _TYPED else np.zeros(1, present.dtype)[0], present.dtype
    )
    if present.dtype.kind == "f":
        whole = np.full(len(nulls), math.nan, present.dtype)
    whole[~nulls] = present
    return whole, nulls


def _of_list(cells: Sequence[Any]) -> Array:
    kinds = set(map(type, cells))
    if len(kinds) == 1 and (kind := next(iter(kinds))) in _PLAIN:
        try:
            return np.array(cells, np.int64 if kind is int else kind)
        # Whole numbers that fit nowhere stay texts.
        except OverflowError:
            pass
    if any(isinstance(cell, list | tuple | np.ndarray) for cell in cells):
        return np.zeros((1, 1))
    objects = np.empty(len(cells), object)
    objects[:] = cells
    return objects


def text_of(cell: object, spelling: Spelling) -> str | None:
    """Return one cell as a file would write it, or None for an empty cell. Raises TypeError."""
    if isinstance(cell, str | None):
        return cell
    if isinstance(cell, bytes):
        # Bytes that are no UTF-8 stay a cell, which no declaration knows: it is counted, and it alone.
        return cell.decode("utf-8", "backslashreplace")
    if isinstance(cell, np.datetime64):
        moment = cast("np.datetime64[Any]", cell)
        return None if np.isnat(moment) else day_text(str(cast(object, moment.astype("datetime64[us]"))))
    if isinstance(cell, _NUMBERS):
        return None if _is_nan(cast("float | decimal.Decimal", cell)) else number_text(cast(object, cell), spelling)
    # pandas' NaT is a date to Python.
    if type(cell).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(cell, datetime.date):
        return day_text(cell.isoformat())
    if isinstance(cell, datetime.time | datetime.timedelta):
        return str(cell)
    raise TypeError(type(cell).__name__)


def _is_nan(number: float | decimal.Decimal) -> bool:
    # A signalling NaN of `decimal` cannot be compared.
    return number.is_nan() if isinstance(number, decimal.Decimal) else bool(number != number)
