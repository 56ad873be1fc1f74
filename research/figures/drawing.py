"""A figure as SVG: one small line chart for each panel, by Vega-Lite in the wheel `vl-convert-python`."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

from research.figures.figure import Axis, Figure
from research.figures.table import Points, panels

# Okabe and Ito's palette: told apart by colour-blind readers.
_COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
_DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [1, 3], [10, 4]]
_WIDTH, _HEIGHT = 300, 190


def specification(figure: Figure, points: Points) -> dict[str, Any]:
    """The chart in Vega-Lite's words."""
    points_drawn = [point for point in points if point.panel not in figure.aside]
    curves = list(dict.fromkeys(point.curve for point in points_drawn))
    charts = [_panel(figure, name, points_drawn, curves) for name in panels(points_drawn)]
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": "white",
        "columns": figure.columns,
        "concat": charts,
        "config": {
            "font": "sans-serif",
            "legend": {"orient": "bottom", "columns": 2, "labelLimit": 420, "title": None, "symbolStrokeWidth": 2},
            "axis": {"labelFontSize": 10, "titleFontSize": 11, "titleFontWeight": "normal"},
            "title": {"fontSize": 11, "fontWeight": "normal", "anchor": "start"},
        },
    }


def svg(figure: Figure, points: Points, digest: str) -> str:
    """The drawing, with the digest of the numbers that it shows.

    Raises:
        ImportError: `vl-convert-python` is not installed.
    """
    import vl_convert

    svg = cast(str, vl_convert.vegalite_to_svg(specification(figure, points)))
    return f"{svg.rstrip()}\n<!-- table {digest} -->\n"


def _panel(figure: Figure, name: str, points: Points, curves: list[str]) -> dict[str, Any]:
    x, y = figure.axes_of(name)
    scale, counts = {"domain": curves}, Counter(p.curve for p in points if p.panel == name)
    values = [{"curve": p.curve, "x": p.x, "y": p.y} for p in points if p.panel == name]
    return {
        "title": name,
        "width": _WIDTH,
        "height": _HEIGHT,
        "data": {"values": values},
        "encoding": {
            "x": {"field": "x", "type": "quantitative", **_axis(x)},
            "y": {"field": "y", "type": "quantitative", **_axis(y)},
            "color": {"field": "curve", "type": "nominal", "scale": scale | {"range": _COLOURS[: len(curves)]}},
        },
        "layer": [
            {
                "mark": {"type": "line", "strokeWidth": 1.8, "clip": True},
                "encoding": {
                    "strokeDash": {
                        "field": "curve",
                        "type": "nominal",
                        "scale": scale | {"range": _DASHES[: len(curves)]},
                    }
                },
            },
            {
                # A line needs two points.
                "transform": [
                    {"filter": {"field": "curve", "oneOf": [curve for curve in curves if counts[curve] == 1]}}
                ],
                "mark": {"type": "point", "filled": True, "size": 60, "clip": True},
            },
        ],
    }


def _axis(axis: Axis) -> dict[str, Any]:
    scale: dict[str, Any] = {"type": axis.scale, "zero": False, "nice": axis.low is None and axis.high is None}
    if axis.low is not None:
        scale["domainMin"] = axis.low
    if axis.high is not None:
        scale["domainMax"] = axis.high
    ticks = {"tickCount": 5} | ({"format": "~g"} if axis.scale == "log" else {})
    return {"title": axis.title, "scale": scale, "axis": ticks}
