"""The chart of a simulation: the points of the report, what they are compared with, and files of two kinds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from client_sdk.errors import ConfigurationError
from simulation.results.chart import chart_of, compared, draw
from tests.simulation.reports import report, run


def values(layer: dict[str, Any]) -> list[dict[str, Any]]:
    return layer["data"]["values"]


def test_the_panels_hold_the_metric_with_its_deviation_and_epsilon_with_its_limits() -> None:
    upper, lower = chart_of(report(run(0, 0.5, 0.7), run(1, 0.7, 0.9)))["vconcat"]
    band, line, rules = upper["layer"]
    assert [point["round"] for point in values(line)] == [1, 2]
    assert [point["accuracy"] for point in values(line)] == pytest.approx([0.6, 0.8])
    # Two seeds 0.2 apart: a deviation of 0.2/√2 on both sides.
    first = values(band)[0]
    assert (first["low"], first["high"]) == (pytest.approx(0.6 - 0.1414, abs=1e-4), pytest.approx(0.7414, abs=1e-4))
    assert [line["model"] for line in values(rules)] == [
        "same rounds, no noise",
        "all records pooled",
        "one client alone",
        "most frequent class",
    ]
    costs, ends = lower["layer"]
    assert [(point["round"], point["limit"], point["ε"]) for point in values(costs)] == [
        (1, "instance, classical", 1.0),
        (1, "instance, bayesian", 0.5),
        (2, "instance, classical", 2.0),
        (2, "instance, bayesian", 1.0),
    ]
    assert [line["ε"] for line in values(ends)] == [9.0, 4.0]


def test_of_one_seed_without_comparisons_the_band_is_the_line() -> None:
    shown = report(run(0, 0.5, compared=False))
    upper, _ = chart_of(shown)["vconcat"]
    (point,) = values(upper["layer"][0])
    assert point["low"] == point["high"] == point["accuracy"] == 0.5
    assert compared(shown) == []


def test_without_a_released_model_there_is_nothing_to_draw() -> None:
    with pytest.raises(ConfigurationError, match="no model was released"):
        chart_of(report(run(0, None)))


def test_a_chart_is_a_png_or_an_svg(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"a chart is a \.png or an \.svg"):
        draw(report(run(0, 0.5)), tmp_path / "chart.pdf")


def test_an_svg_names_its_axes(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    draw(report(run(0, 0.5, 0.7)), tmp_path / "chart.svg")
    text = (tmp_path / "chart.svg").read_text(encoding="utf-8")
    assert text.startswith("<svg")
    assert "privacy loss ε" in text
    assert "released models" in text
