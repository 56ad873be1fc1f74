"""Two statements of one study: are they the same, but for the last bits that another processor rounds otherwise?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from accounting.budget.statements import chance_by_epsilon

# Differences of numbers near each other keep fewer digits. A count hangs on the last bits as a whole.
_DIFFERENCES = frozenset({"reserved", "remaining"})
_COUNT_TOLERANCES = {"rounds_left_estimate": 1.0}
_ABSENT = object()
# What processors differ by: in the last bits of a float, and by a unit where these choose the last of seven digits of
# μ², on which ε of a whole plan depends.
_LAST_BITS, _LAST_DIGIT = 1e-9, 2e-6


def tolerance_of(recomputed_limits: Iterable[Mapping[str, Any]]) -> float:
    """Return the relative difference of the numbers of these limits that another processor may cause."""
    is_counted = any(limit.get("progress") is not None for limit in recomputed_limits)
    return _LAST_DIGIT if is_counted else _LAST_BITS


def difference(
    stated: Any, recomputed: Any, name: str, *, strict: bool = False, tolerance: float = _LAST_BITS
) -> str | None:
    """Return the name of the first part of a statement that differs, or None if all parts agree but for last bits.

    Args:
        strict: also report parts where last bits can choose another count, or another of several orders.
        tolerance: relative, of numbers that are no whole ones.
    """
    rule = _Rule(strict, tolerance)
    return _difference(stated, recomputed, name, rule)


@dataclass(frozen=True)
class _Rule:
    strict: bool
    tolerance: float


def _difference(stated: Any, recomputed: Any, name: str, rule: _Rule) -> str | None:
    if isinstance(stated, dict) and isinstance(recomputed, dict):
        return _different_field(cast("dict[str, Any]", stated), cast("dict[str, Any]", recomputed), name, rule)
    if isinstance(stated, list | tuple) and isinstance(recomputed, list | tuple):
        ones, recomputed_items = cast("Sequence[Any]", stated), cast("Sequence[Any]", recomputed)
        if len(ones) != len(recomputed_items):
            return f"{name} has {len(ones)} parts, not {len(recomputed_items)}"
        pairs = zip(ones, recomputed_items, strict=True)
        return _first(((*pair, f"{name}[{at}]") for at, pair in enumerate(pairs)), rule)
    return None if _is_close(cast("object", stated), cast("object", recomputed), name, rule) else name


def in_form_of(stated: Mapping[str, Any], limit: dict[str, Any]) -> dict[str, Any]:
    """Return a limit as computed now, in the form of an earlier version if `stated` has that form.

    Before `guess_from` was stated, the chance of a right guess was what the spent ε and δ allow.
    """
    written, certificate = stated.get("certificate"), limit["certificate"]
    if certificate is None or written is None or "guess_from" in written:
        return limit
    spent, delta = limit["spent"], limit["delta"]
    chance = chance_by_epsilon(math.inf if spent is None else spent, delta)
    stated_certificate = {name: value for name, value in certificate.items() if name in written}
    reports = [
        {**report, "certificate": {name: value for name, value in report["certificate"].items() if name in written}}
        for report in limit["reports"]
    ]
    return {**limit, "attack_success": chance, "certificate": stated_certificate, "reports": reports}


def _first(pairs: Iterable[tuple[Any, Any, str]], rule: _Rule) -> str | None:
    return next(
        (different for stated, recomputed, name in pairs if (different := _difference(stated, recomputed, name, rule))),
        None,
    )


def _different_field(stated: dict[str, Any], recomputed: dict[str, Any], name: str, rule: _Rule) -> str | None:
    names = {*stated, *recomputed}
    # Of orders that give the same, last bits choose.
    if not rule.strict and _is_known(stated, recomputed):
        names -= {"order"}
    pairs = ((stated.get(key, _ABSENT), recomputed.get(key, _ABSENT), f"{name}.{key}") for key in sorted(names))
    return _first(pairs, rule)


def _is_known(stated: dict[str, Any], right: dict[str, Any]) -> bool:
    orders: object = right.get("orders")
    return isinstance(orders, list | tuple) and all(statement.get("order") in orders for statement in (stated, right))


def _is_close(stated: object, recomputed: object, name: str, rule: _Rule) -> bool:
    if isinstance(stated, bool) or isinstance(recomputed, bool):
        return stated is recomputed
    if not isinstance(stated, int | float) or not isinstance(recomputed, int | float):
        return stated == recomputed
    field, are_counts = name.rpartition(".")[2], isinstance(stated, int) and isinstance(recomputed, int)
    relative = _LAST_BITS if are_counts else rule.tolerance
    absolute = 0.0 if rule.strict else _COUNT_TOLERANCES.get(field, 0.0)
    try:
        return math.isclose(
            stated, recomputed, rel_tol=relative, abs_tol=rule.tolerance if field in _DIFFERENCES else absolute
        )
    except OverflowError:
        # An integer beyond all floating-point numbers is near none that is computed.
        return False
