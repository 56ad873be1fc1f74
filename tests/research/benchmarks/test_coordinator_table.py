"""The table takes each figure from its own job and tells which goals are reached."""

from __future__ import annotations

import json
from typing import Any

from research.benchmarks.coordinator import PAGE, RESULTS
from research.benchmarks.coordinator_table import BEGIN, END, FigureRow, page_with, rows_of, text_of


def _figures(job: str, chosen: dict[str, Any], database: str = "sqlite", **values: Any) -> dict[str, Any]:
    return {"job": job, "chosen": chosen, "database": database, "processes": 1, **values}


def _row(rows: list[FigureRow], label: str) -> FigureRow:
    (row,) = (row for row in rows if row.label.startswith(label))
    return row


def test_the_page_holds_the_recorded_results() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == page_with(page, json.loads(RESULTS.read_text())), "run research.benchmarks.coordinator --page"


def test_a_figure_has_one_row_and_its_worst_database_decides_the_goal() -> None:
    rows = rows_of(
        [
            _figures("counts", {}, round_syncs=39.0),
            _figures("counts", {}, "postgres", round_syncs=41.0, requests_each=6.4),
            _figures("requests", {}, livez_cpu_ms=0.3),
        ]
    )
    assert _row(rows, "syncs of the coordinator").is_reached is False
    assert _row(rows, "requests per hospital").is_reached is True
    assert _row(rows, "processor for `/livez`").is_reached is None
    assert "| 39 | 41 | ≤ 40: **missed** |" in text_of(rows)
    assert "| – | 6.40 | ≤ 11: reached |" in text_of(rows)


def test_what_is_less_than_nothing_by_its_noise_is_nothing() -> None:
    assert "| 0 | – | ≤ 40: reached |" in text_of(rows_of([_figures("counts", {}, round_syncs=-0.004)]))


def test_figures_of_other_sizes_rounds_and_databases_are_not_mixed_up() -> None:
    rows = rows_of(
        [
            _figures("masked", {"clients": 300, "lost": 15}, cpu_ms_each=25.0, seconds=1.0),
            _figures("masked", {"clients": 1000}, cpu_ms_each=20.0, seconds=1.0),
            _figures("masked", {"clients": 30}, "postgres", cpu_ms_each=31.0, seconds=1.0),
            _figures("masked", {"clients": 30}, cpu_ms_each=29.0, seconds=1.0),
        ]
    )
    values = {row.label.removeprefix("processor per hospital, masked round"): row.values for row in rows if row.goal}
    assert values == {
        " on a ring, 1,000 hospitals": {"sqlite": 20.0},
        " on a ring, 15 lost, 300 hospitals": {"sqlite": 25.0},
        ", 30 hospitals": {"sqlite": 29.0, "postgres": 31.0},
    }


def test_a_failed_job_has_no_figure_and_reaches_no_goal() -> None:
    rows = rows_of([_figures("plain", {"clients": 1000}, error="ReadError")])
    assert _row(rows, "99 % of answers").is_reached is None
    assert "| failed | – | ≤ 1 |" in text_of(rows)
    repeated = rows_of([_figures("plain", {"clients": 1000}, cpu_ms_each=3.0, troubles={"408": 2})])
    assert _row(repeated, "repeated requests").values == {"sqlite": 2.0}


def test_two_processes_are_compared_with_one() -> None:
    chosen = {"clients": 200, "rounds": 3}
    single = _figures("plain", chosen, cycle_seconds=2.0, requests_each=4.0, cpu_ms_each=1.0)
    rows = rows_of([single, {**single, "processes": 2, "cycle_seconds": 1.0}])
    assert [row.values["sqlite"] for row in rows if row.unit == "/s"] == [400.0, 800.0]
    speedup = _row(rows, "two API processes against one")
    assert (speedup.values, speedup.is_reached) == ({"sqlite": 2.0}, True)


def test_the_page_keeps_its_words_around_the_table() -> None:
    results = {"machine": {"at": "now", "cores": 2, "python": "3.11", "commit": "abc"}, "figures": []}
    page = f"# Title\n\n{BEGIN}old\n{END}\nMore.\n"
    once = page_with(page, results)
    assert once.startswith("# Title\n\n")
    assert once.endswith("\nMore.\n")
    assert "old" not in once
    assert page_with(once, results) == once
