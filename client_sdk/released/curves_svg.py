"""The curves of an additive model as one SVG picture: a panel for each column."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from client_sdk.released.curves import LEVEL, Curve, Curves

_WIDTH, _HEIGHT, _ACROSS = 320, 220, 3
_LEFT, _TOP, _RIGHT, _BOTTOM = 44, 34, 12, 34
# Names of categories under a panel, at most, and the width of a letter.
_MAX_NAMES, _LETTER_WIDTH = 8, 6.5


def to_svg(curves: Curves) -> str:
    """Return the picture. All panels have one scale, in log-odds."""
    lows, highs = zip(*(_ends(curve) for curve in curves.curves), strict=True)
    span = (min(0.0, *lows), max(0.0, *highs))
    scale = span if span[1] > span[0] else (-1.0, 1.0)
    rows = -(-len(curves.curves) // _ACROSS)
    width, height = _WIDTH * min(_ACROSS, len(curves.curves)), _HEIGHT * rows + 24
    note = f"Log-odds of {curves.label} that each value adds. Intercept {curves.intercept:.3g}."
    if curves.curves[0].half is not None:
        note += f" Bands: {LEVEL:.0%}, noise alone."
    if curves.adapted is not None:
        note += " Adapted to one hospital's patients without noise: it stays there."
    panels = [
        f'<g transform="translate({_WIDTH * (at % _ACROSS)},{_HEIGHT * (at // _ACROSS)})">{_panel(curve, scale)}</g>'
        for at, curve in enumerate(curves.curves)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11" role="img">'
        f'<title>{escape(note)}</title><rect width="100%" height="100%" fill="white"/>{"".join(panels)}'
        f'<text x="{_LEFT}" y="{height - 8}">{escape(note)}</text></svg>\n'
    )


def _ends(curve: Curve) -> tuple[float, float]:
    half = np.zeros(len(curve.values)) if curve.half is None else curve.half
    missing = [] if curve.missing is None else [curve.missing]
    return min(*(curve.values - half), *missing), max(*(curve.values + half), *missing)


def _panel(curve: Curve, scale: tuple[float, float]) -> str:
    across, up = _places(curve), _upward(scale)
    title = curve.name + ("" if curve.trend is None else f" ({curve.trend})")
    parts = [f'<text x="{_LEFT}" y="20" font-weight="bold">{escape(title)}</text>']
    for value in (scale[0], 0.0, scale[1]):
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{up(value):.1f}" y2="{up(value):.1f}" stroke="#ccc"/>'
            f'<text x="{_LEFT - 4}" y="{up(value) + 4:.1f}" text-anchor="end">{value:.2g}</text>'
        )
    for at, (first, last) in enumerate(pairwise(across)):
        value = float(curve.values[at])
        if curve.half is not None:
            half = float(curve.half[at])
            parts.append(
                f'<rect x="{first:.1f}" y="{up(value + half):.1f}" width="{last - first:.1f}" '
                f'height="{up(value - half) - up(value + half):.1f}" fill="#9ecae1"/>'
            )
        parts.append(
            f'<line x1="{first:.1f}" x2="{last:.1f}" y1="{up(value):.1f}" y2="{up(value):.1f}" stroke="#08519c" '
            f'stroke-width="2">{_tip(curve, at, value)}</line>'
        )
    return "".join([*parts, *_labels(curve, across)])


def _tip(curve: Curve, at: int, value: float) -> str:
    """Return what a pointer on this step shows. It names a category whole, also where its label is cut or left out."""
    ends = (
        curve.categories[at] if curve.categories else " to ".join(_number(curve, end) for end in curve.edges[at:][:2])
    )
    return f"<title>{escape(ends)}: {value:+.2f}</title>"


def _upward(scale: tuple[float, float]) -> Callable[[float], float]:
    low, high = scale
    return lambda value: _HEIGHT - _BOTTOM - (value - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)


def _places(curve: Curve) -> NDArray[np.float64]:
    """Return (bins + 1,) places of the edges. Bins have equal widths: a typical range has most of the picture."""
    return np.linspace(_LEFT, _WIDTH - _RIGHT, len(curve.values) + 1)


def _labels(curve: Curve, across: NDArray[np.float64]) -> list[str]:
    base = _HEIGHT - _BOTTOM + 14
    missing = [] if curve.missing is None else [f"missing: {curve.missing:+.2f}"]
    if curve.categories:
        # Every second name stands lower, so that a name has the room of two.
        room = int(2 * (across[1] - across[0]) / _LETTER_WIDTH)
        names = [_cut(name, room) for name in curve.categories] if len(curve.categories) <= _MAX_NAMES else []
        middles = (across[1:] + across[:-1]) / 2
        texts = [
            (float(at), base + 10 * (place % 2), name)
            for place, (at, name) in enumerate(zip(middles, names, strict=False))
        ]
    else:
        bins = len(curve.values)
        texts = [(float(across[at]), float(base), _number(curve, curve.edges[at])) for at in (0, bins // 2, bins)]
    texts += [(_WIDTH - _RIGHT - 40.0, 20.0, text) for text in missing]
    return [f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{escape(text)}</text>' for x, y, text in texts]


def _cut(name: str, letters: int) -> str:
    return name if len(name) <= letters else name[: letters - 1] + "…"


def _number(curve: Curve, value: float) -> str:
    return str(np.datetime64(int(value), "D")) if curve.dates else f"{value:.4g}"
