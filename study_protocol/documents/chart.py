"""The curve of ε by round, as shares of a drawing's width and height. The layout only draws it."""

from __future__ import annotations

import math
from typing import Any

from study_protocol.documents.phrases import UNIT_NOUNS
from study_protocol.study.certificate import Certificate

_TICKS = 5


def chart_of(stated: Certificate) -> dict[str, Any] | None:
    """Return the axes and one line for every limit, or None before the first round."""
    if not stated.spent_after:
        return None
    bounded = [(limit, limit.epsilon) for limit in stated.limits if limit.epsilon is not None]
    spent = [value for point in stated.spent_after for value in point.spent if value is not None]
    top = max([*(epsilon for _, epsilon in bounded), *spent]) * 1.06
    # Room to the right for the rounds that are left.
    last = max(stated.spent_after[-1].round, stated.rounds.most, 1)
    series = [
        {
            "label": f"{UNIT_NOUNS[limit.level]}, {limit.definition}",
            "limit": epsilon / top,
            "points": [[round_number / last, value / top] for round_number, value in _spent(stated, at)],
        }
        for at, (limit, epsilon) in enumerate(bounded)
    ]
    return {"series": series, "x": _ticks(last, whole=True), "y": _ticks(top, whole=False)}


def _spent(stated: Certificate, at: int) -> list[tuple[int, float]]:
    return [(point.round, value) for point in stated.spent_after if (value := point.spent[at]) is not None]


def _ticks(top: float, *, whole: bool) -> list[dict[str, Any]]:
    """Round numbers from 0 to at most `top`."""
    rough = top / _TICKS
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    step = max(1.0, step) if whole else step
    return [{"at": i * step / top, "label": f"{i * step:g}"} for i in range(math.floor(top / step + 1e-9) + 1)]
