"""Two statements of one study: are they the same, but for the last bits that another processor rounds otherwise?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from accounting.budget.statements import chance_by_epsilon

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


def in_form_of(shown: Mapping[str, Any], limit: dict[str, Any]) -> dict[str, Any]:
    """A limit as computed now, in the form of an earlier version where `shown` has that form.

    Before `guess_from` was stated, the chance of a right guess was what the spent ε and δ allow.
    """
    written, certificate = shown.get("certificate"), limit["certificate"]
    if certificate is None or written is None or "guess_from" in written:
        return limit
    spent, delta = limit["spent"], limit["delta"]
    chance = chance_by_epsilon(math.inf if spent is None else spent, delta)
    kept = {name: value for name, value in certificate.items() if name in written}
    reports = [
        {**one, "certificate": {name: value for name, value in one["certificate"].items() if name in written}}
        for one in limit["reports"]
    ]
    return {**limit, "attack_success": chance, "certificate": kept, "reports": reports}


def _alike(shown: object, recomputed: object, name: str) -> bool:
    if not isinstance(shown, int | float) or not isinstance(recomputed, int | float):
        return shown == recomputed
    least = _LEAST.get(name.rpartition(".")[2], 0.0)
    return math.isclose(shown, recomputed, rel_tol=1e-9, abs_tol=least)
