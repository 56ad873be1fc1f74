"""The chart of a simulation: how good the model is after each round, above what the rounds have cost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from client_sdk.errors import ConfigurationError
from simulation.results.report import SeedSpread, SimulationReport

_WIDTH, _HEIGHT = 560, 220
_SCALE = 2
Json = dict[str, Any]


def draw(report: SimulationReport, path: Path) -> None:
    """Write the chart as PNG or SVG, by the file's name.

    Raises:
        ConfigurationError: neither of the two, or there are no points to draw.
        ModuleNotFoundError: vl-convert-python is missing, which the extra `simulation` brings.
    """
    if path.suffix not in (".png", ".svg"):
        raise ConfigurationError(f"{path}: a chart is a .png or an .svg")
    # Large, and an extra.
    import vl_convert

    spec = chart_of(report)
    if path.suffix == ".svg":
        path.write_text(vl_convert.vegalite_to_svg(spec), encoding="utf-8")
    else:
        path.write_bytes(vl_convert.vegalite_to_png(spec, scale=_SCALE))


def chart_of(report: SimulationReport) -> Json:
    """Vega-Lite: the metric by round over ε by round.

    Raises:
        ConfigurationError: no model was released.
    """
    points = report.points()
    if not points:
        raise ConfigurationError("no model was released: there is nothing to draw")
    limits = report.settings.privacy.limits
    costs = [
        {"round": point.released, "ε": spent, "limit": f"{limit.level}, {limit.definition}"}
        for point in points
        for limit, spent in zip(limits, point.spent, strict=True)
        if spent is not None
    ]
    ends = [{"ε": limit.epsilon, "limit": f"{limit.level}, {limit.definition}"} for limit in limits]
    layers = [_panel(costs, "ε", "privacy loss ε", "limit"), _rules(ends, "ε", "limit")]
    lower: Json = {"width": _WIDTH, "height": _HEIGHT, "layer": layers}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": "white",
        "vconcat": [*_upper(report), lower],
        "resolve": {"scale": {"color": "independent"}},
    }


def _upper(report: SimulationReport) -> Iterator[Json]:
    """The metric, where one was measured, with what it is compared with."""
    name = report.metric
    if name is None:
        return
    measured = [
        {
            "round": point.released,
            name: point.metric.mean,
            "low": point.metric.mean - (point.metric.deviation or 0.0),
            "high": point.metric.mean + (point.metric.deviation or 0.0),
            "model": "this study",
        }
        for point in report.points()
        if point.metric is not None
    ]
    lines = [{name: value.mean, "model": label} for label, value in compared(report)]
    band: Json = {
        "data": {"values": measured},
        "mark": {"type": "area", "opacity": 0.2},
        "encoding": {
            "x": {"field": "round", "type": "quantitative", "title": "released models"},
            "y": {"field": "low", "type": "quantitative", "title": name, "scale": {"zero": False}},
            "y2": {"field": "high"},
        },
    }
    layers = [band, _panel(measured, name, name, "model"), _rules(lines, name, "model")]
    yield {"width": _WIDTH, "height": _HEIGHT, "layer": layers}


def compared(report: SimulationReport) -> list[tuple[str, SeedSpread]]:
    """Return the values that the study's metric is compared with, each with its label."""
    labelled = [
        ("same rounds, no noise", report.without_noise),
        ("all records pooled", report.pooled),
        ("one client alone", report.single_client),
        ("most frequent class", report.frequent_class),
    ]
    return [(label, value) for label, value in labelled if value is not None]


def _panel(values: list[Json], field: str, title: str, colour: str) -> Json:
    return {
        "data": {"values": values},
        "mark": {"type": "line", "point": len(values) < 40},
        "encoding": {
            "x": {"field": "round", "type": "quantitative", "title": "released models"},
            "y": {"field": field, "type": "quantitative", "title": title, "scale": {"zero": field == "ε"}},
            "color": {"field": colour, "type": "nominal", "title": None},
        },
    }


def _rules(values: list[Json], field: str, colour: str) -> Json:
    return {
        "data": {"values": values},
        "mark": {"type": "rule", "strokeDash": [5, 4]},
        "encoding": {
            "y": {"field": field, "type": "quantitative"},
            "color": {"field": colour, "type": "nominal", "title": None},
        },
    }
