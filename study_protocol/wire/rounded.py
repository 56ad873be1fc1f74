"""Numbers that promise something, as people read them: always rounded to the side where they promise less."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

# Digits of the largest number of double precision, and all places that are shown.
_ANY = Context(prec=400)


def number(value: float | None, places: int = 3, *, round_down: bool = False) -> str:
    """Return a privacy loss for display, rounded up, or the rest of a limit, rounded down.

    The exact value is in the JSON.
    """
    if value is None:
        return "unbounded"
    if not math.isfinite(value):
        return "unbounded" if value > 0 else "unknown"
    rounding = ROUND_FLOOR if round_down else ROUND_CEILING
    # By its repr: 0.1 in binary lies above 0.1, and would be shown as 0.101.
    return str(Decimal(repr(value)).quantize(Decimal(1).scaleb(-places), rounding, _ANY))


def percent(share: float) -> str:
    """Return a share of 1 as a percentage, rounded up to a tenth."""
    return f"{Decimal(repr(share)).scaleb(2, _ANY).quantize(Decimal('0.1'), ROUND_CEILING, _ANY)} %"


def at_least(noise: float) -> str:
    """Return a noise multiplier that is sure to be there, rounded down to three places."""
    # The error of the division itself would be shown as 2.999 for 3.
    text = number(noise * (1 + 1e-12), round_down=True)
    return text.rstrip("0").rstrip(".") if float(text) > 0 else repr(noise)


def exact(value: float) -> str:
    """Return a number of the settings, with all its digits and no more."""
    return repr(value).removesuffix(".0").replace("e-0", "e-")


def significant(value: float, digits: int = 4, *, round_down: bool = False) -> str:
    """Return a number ≥ 0 with so many digits, rounded up, or down."""
    rounding = ROUND_FLOOR if round_down else ROUND_CEILING
    return f"{float(Context(prec=digits, rounding=rounding).create_decimal(repr(value))):.{digits}g}"
