"""What the cells of a hospital's table say: numbers, categories, or nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def as_number(value: Any) -> float:
    """Raises TypeError, ValueError: it is none. 12_34 is a code in a table, though Python reads it as 1234."""
    if isinstance(value, str) and "_" in value:
        raise ValueError("underscores are in no number")
    return float(value)


def as_category(value: object) -> str | None:
    """Its text, numbers written in one way; None where the cell is empty."""
    # 3, 3.0 and "3.0" are one category, as are 0.1 and "0.10": files disagree about how to write numbers, and a column
    # is of texts as soon as one patient's cell is, which may change what no other cell says.
    if value is None or value != value or str(value).strip() == "":
        return None
    try:
        number = as_number(str(value))
    except ValueError:
        return str(value).strip()
    if math.isnan(number):
        return None
    return str(int(number)) if math.isfinite(number) and number.is_integer() else repr(number)
