"""One byte string for one JSON value: sorted keys, no spaces, no NaN; what gets hashed and signed."""

from __future__ import annotations

import json
from typing import Any


def canonical_json(value: Any) -> bytes:
    """Canonical UTF-8 JSON of `value`.

    Floats are written by their shortest round-trip form, so equal values give equal bytes.

    Raises:
        ValueError: NaN or an infinity anywhere in the value.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
