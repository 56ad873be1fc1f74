"""Arrays and frozen values as JSON and back, bit for bit."""

from __future__ import annotations

import base64
from dataclasses import fields
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FloatArray = npt.NDArray[np.float64]


def array_to_json(array: FloatArray) -> dict[str, Any]:
    """Shape and float64 bytes, little-endian; any shape."""
    data = np.ascontiguousarray(array, dtype="<f8").tobytes()
    return {"shape": list(array.shape), "float64": base64.b64encode(data).decode("ascii")}


def array_from_json(value: dict[str, Any]) -> FloatArray:
    """Inverse of `array_to_json`. KeyError or ValueError: it is none."""
    data = base64.b64decode(value["float64"], validate=True)
    return np.frombuffer(data, dtype="<f8").reshape(value["shape"]).astype(np.float64)


def fields_to_json(value: DataclassInstance) -> dict[str, Any]:
    """A flat dataclass by its fields: tuples become lists, enums their text. Equal values give equal dictionaries."""
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return str(value)
    return list(value) if isinstance(value, tuple) else value  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
