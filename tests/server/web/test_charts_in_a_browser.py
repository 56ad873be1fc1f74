"""What charts draw, computed in Chromium by the pages' own modules: forecasts, bars of groups and names of rows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.web.conftest import Tabs

LIMIT = {"level": "instance", "definition": "classical", "epsilon": 8.0, "spent": 1.5, "reserved": 0.0, "reports": []}
FORECAST = """async ([limit, points]) => {
    const { lossRows } = await import('/static/chart_data.js');
    const words = { progress: null, running: null };
    const model = { limits: [limit], goesOn: true, underWay: null, wordsOf: () => words };
    Object.assign(model, { history: () => points, progress: () => null });
    return lossRows(model, { share: false, hidden: new Set(), last: 0 }).forecast.map((row) => [row.round, row.value]);
}"""
BARS = "async (table) => (await import('/static/answer_rows.js')).plotted(table)"
LINES = "async (name) => (await import('/static/question.js')).wrapped(name)"


def evaluated(tabs: Tabs, function: str, argument: Any) -> Any:
    page = tabs.blank()
    page.goto("/dashboard")
    return page.evaluate(function, argument)


@pytest.mark.quick("progress1")
@pytest.mark.parametrize("progress", [None, {"steps": {"used": 1, "reserved": 0, "allowed": 21}, "squares": None}])
def test_one_round_forecasts_nothing(tabs: Tabs, progress: Any) -> None:
    limit = LIMIT | {"rounds_left_estimate": 20, "progress": progress}
    assert evaluated(tabs, FORECAST, [limit, [[1, 1.5]]]) == []


def test_a_forecast_goes_on_as_the_last_round_did_and_never_past_the_limit(tabs: Tabs) -> None:
    limit = LIMIT | {"rounds_left_estimate": 4, "progress": None}
    assert evaluated(tabs, FORECAST, [limit, [[1, 1.0], [3, 1.5]]]) == [[3, 1.5], [7, 2.5]]
    assert evaluated(tabs, FORECAST, [limit, [[1, 1.0], [2, 5.0]]])[-1] == [6, 8.0]


def test_bars_of_a_group_are_drawn_whole_or_not_at_all(tabs: Tabs) -> None:
    rows = [[sex, f"bin {place}", 1.0] for sex in ("f", "m", "other") for place in range(43)]
    plot = {"kind": "bars", "x": "bin", "y": "estimate", "by": "sex", "low": None, "high": None}
    drawn = evaluated(tabs, BARS, {"plot": plot, "columns": ["sex", "bin", "estimate"], "rows": rows})
    assert [row["by"] for row in drawn["rows"]] == ["f"] * 43 + ["m"] * 43
    assert drawn["left"] == 43


@pytest.mark.slow
def test_names_of_rows_have_three_lines_and_keep_their_ends(tabs: Tabs) -> None:
    group = "sex: f, age: 40 to 60"
    names = [f"{group}: {sign} predictive value at 0.5" for sign in ("positive", "negative")]
    lines = [evaluated(tabs, LINES, name) for name in names]
    assert lines[0] != lines[1]
    assert [" ".join(part) for part in lines] == names
    long = evaluated(tabs, LINES, " ".join(["word"] * 40 + ["last"]))
    assert len(long) == 3
    assert long[0].endswith(" …")
    assert long[-1].endswith("last")
    assert evaluated(tabs, LINES, "R²") == ["R²"]
