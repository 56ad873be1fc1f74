"""Two statements of one study: are they the same, but for the last bits that another processor rounds otherwise?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

# What hangs on the last bits of a float as a whole number or a choice of two equals.
_ROUGH = frozenset({"rounds_left_estimate", "order"})


def difference(shown: Any, recomputed: Any, name: str) -> str | None:
    """The first part of a statement that differs, by name; None where all of it is the same but for last bits."""
    if _alike(shown, recomputed, name):
        return None
    if isinstance(shown, dict) and isinstance(recomputed, dict):
        left, right = cast("dict[str, Any]", shown), cast("dict[str, Any]", recomputed)
        pairs = [(key, left.get(key), right.get(key)) for key in sorted({*left, *right} - _ROUGH)]
        return next((found for key, one, other in pairs if (found := difference(one, other, f"{name}.{key}"))), None)
    if isinstance(shown, list | tuple) and isinstance(recomputed, list | tuple):
        ones, others = cast("Sequence[Any]", shown), cast("Sequence[Any]", recomputed)
        if len(ones) != len(others):
            return f"{name} has {len(ones)} parts, not {len(others)}"
        pairs = enumerate(zip(ones, others, strict=True))
        return next((found for at, pair in pairs if (found := difference(*pair, f"{name}[{at}]"))), None)
    return name


def _alike(shown: object, recomputed: object, name: str) -> bool:
    if not isinstance(shown, int | float) or not isinstance(recomputed, int | float):
        return shown == recomputed
    # Differences of numbers near each other keep fewer digits.
    least = 1e-9 if name.endswith((".reserved", ".remaining")) else 0.0
    return math.isclose(shown, recomputed, rel_tol=1e-9, abs_tol=least)
