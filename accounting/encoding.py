"""Arrays as JSON and back, bit for bit."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from accounting.units import FloatArray


def array_to_json(array: FloatArray) -> dict[str, Any]:
    """Shape and float64 bytes, little-endian; any shape."""
    data = np.ascontiguousarray(array, dtype="<f8").tobytes()
    return {"shape": list(array.shape), "float64": base64.b64encode(data).decode("ascii")}


def array_from_json(value: dict[str, Any]) -> FloatArray:
    """Inverse of `array_to_json`. KeyError or ValueError: it is none."""
    data = base64.b64decode(value["float64"], validate=True)
    return np.frombuffer(data, dtype="<f8").reshape(value["shape"]).astype(np.float64)
