"""Two statements of one study: are they the same, but for the last bits that another processor rounds otherwise?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

# Differences of numbers near each other keep fewer digits; a count hangs on the last bits as a whole.
_LEAST = {"reserved": 1e-9, "remaining": 1e-9, "rounds_left_estimate": 1.0}


def difference(shown: Any, recomputed: Any, name: str) -> str | None:
    """The first part of a statement that differs, by name; None where all of it is the same but for last bits."""
    if _alike(shown, recomputed, name):
        return None
    if isinstance(shown, dict) and isinstance(recomputed, dict):
        left, right = cast("dict[str, Any]", shown), cast("dict[str, Any]", recomputed)
        orders = {*(left.get("orders") or ())}
        # Of orders that give the same, last bits choose.
        rough = {"order"} if {left.get("order"), right.get("order")} <= orders else set[str]()
        pairs = [(key, left.get(key), right.get(key)) for key in sorted({*left, *right} - rough)]
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
    least = _LEAST.get(name.rpartition(".")[2], 0.0)
    return math.isclose(shown, recomputed, rel_tol=1e-9, abs_tol=least)
