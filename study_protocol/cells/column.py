"""One column of a table, as programs use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from study_protocol.cells.errors import DataError
from study_protocol.cells.reading import read_categories, read_numbers
from study_protocol.cells.stored import Array, StoredCells


@dataclass(frozen=True, eq=False, repr=False)
class Column(StoredCells, NDArrayOperatorsMixin):
    """(n,) cells, made by `column_of`. `reading` gives their values under a declaration.

    In arithmetic and comparisons, for NumPy and for torch, a column is its numbers, NaN where a cell is empty. Beside a
    text it is compared as a category. Cells that are no number raise DataError there, which counts them.
    """

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if dtype is not None and np.dtype(dtype).kind == "O":
            return np.array(self.tolist(), dtype=object)
        return self._numbers() if dtype is None else self._numbers().astype(dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        texts = [operand for operand in inputs if isinstance(operand, str)]
        if method == "__call__" and texts and ufunc in (np.equal, np.not_equal):
            equal = read_categories(self, (texts[0],)).places == 0
            return equal if ufunc is np.equal else ~equal
        plain = [np.asarray(operand) if isinstance(operand, Column) else operand for operand in inputs]
        return getattr(ufunc, method)(*plain, **options)

    def __dlpack__(self, **options: Any) -> Any:
        return self._numbers().__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._numbers().__dlpack_device__()

    def _numbers(self) -> Array:
        numbers = read_numbers(self)
        if numbers.wrong.any():
            label = f"column {self.name}" if self.name else "a column"
            raise DataError(
                f"{label}: {int(numbers.wrong.sum())} of {len(self)} cells are no numbers. The first is {numbers.kind}"
            )
        return numbers.values
