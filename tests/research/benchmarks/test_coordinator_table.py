"""The table takes each figure from the job that was asked so, and says what was reached."""

from __future__ import annotations

from typing import Any

from research.benchmarks.coordinator_table import BEGIN, END, page_with, rows_of, text_of

SIDES = (("before", 4.0), ("after", -0.004))


def _figures(version: str, job: str, chosen: dict[str, Any], database: str = "sqlite", **found: Any) -> dict[str, Any]:
    return {"version": version, "job": job, "chosen": chosen, "database": database, "processes": 1, **found}


def _row(rows: list[dict[str, Any]], what: str) -> dict[str, Any]:
    (found,) = (row for row in rows if row["what"].startswith(what))
    return found


def test_a_ratio_is_after_by_before_and_a_goal_is_reached_or_missed() -> None:
    rows = rows_of(
        [
            _figures("before", "requests", {}, assignment_cpu_ms=10.0, livez_cpu_ms=0.3),
            _figures("after", "requests", {}, assignment_cpu_ms=1.5, livez_cpu_ms=0.3),
            _figures("before", "counts", {}, round_syncs=66.0),
            _figures("after", "counts", {}, round_syncs=41.0),
        ]
    )
    assignment, syncs = _row(rows, "one signed assignment"), _row(rows, "syncs per masked round")
    assert (assignment["ratio"], assignment["reached"]) == (0.15, True)
    assert syncs["reached"] is False
    assert "reached" not in _row(rows, "`/livez`")
    assert "| 10 ms | 1.50 ms | 0.15 | ≤ .2 of before: reached |" in text_of(rows)
    assert "| 66 | 41 | 0.62 | ≤ 40: **missed** |" in text_of(rows)


def test_what_is_less_than_nothing_by_its_noise_is_nothing() -> None:
    figures = (_figures(version, "counts", {}, assignment_transactions=found) for version, found in SIDES)
    assert "| 4 | 0 | 0.00 |  |" in text_of(rows_of(list(figures)))


def test_figures_of_other_sizes_rounds_and_databases_are_not_mixed_up() -> None:
    rows = rows_of(
        [
            _figures("after", "masked", {"clients": 300, "lost": 15}, cpu_ms_each=25.0, seconds=1.0),
            _figures("after", "masked", {"clients": 1000}, cpu_ms_each=20.0, seconds=1.0),
            _figures("after", "masked", {"clients": 30}, "postgres", cpu_ms_each=31.0, seconds=1.0),
            _figures("after", "masked", {"clients": 30}, cpu_ms_each=29.0, seconds=1.0),
        ]
    )
    found = {(row["what"].rsplit("session", 1)[1], row["database"]): row["after"] for row in rows if row["goal"]}
    assert found == {
        (", ring, 1000 hospitals", "sqlite"): 20.0,
        (", ring, 15 lost, 300 hospitals", "sqlite"): 25.0,
        (", 30 hospitals", "sqlite"): 29.0,
        (", 30 hospitals", "postgres"): 31.0,
    }


def test_a_job_that_failed_is_shown_as_failed_and_never_as_a_figure() -> None:
    rows = rows_of(
        [
            _figures("before", "plain", {"clients": 1000}, error="ReadError"),
            _figures("after", "plain", {"clients": 1000}, cpu_ms_each=3.0, all_p99=0.5, troubles={"408": 2}),
        ]
    )
    assert _row(rows, "coordinator's processor per client and plain")["before"] == "failed"
    assert _row(rows, "1,000 hospitals at once: repeated")["after"] == 2.0
    assert "| failed | 0.50 s | – | ≤ 1: reached |" in text_of(rows)


def test_two_processes_are_compared_with_one() -> None:
    asked = {"clients": 200, "rounds": 3}
    one = _figures("after", "plain", asked, cycle_seconds=2.0, requests_each=4.0, cpu_ms_each=1.0)
    rows = rows_of([one, {**one, "processes": 2, "cycle_seconds": 1.0}])
    assert [row["after"] for row in rows if row["unit"] == "requests/s"] == [400.0, 800.0]
    compared = _row(rows, "two API processes against one")
    assert (compared["after"], compared["reached"]) == (2.0, True)


def test_the_page_keeps_its_words_around_the_table() -> None:
    machine = {"at": "now", "cores": 2, "python": "3.11", "commits": {"after": "abc"}}
    page = f"# Title\n\n{BEGIN}old\n{END}\nMore.\n"
    once = page_with(page, [], machine)
    assert once.startswith("# Title\n\n")
    assert once.endswith("\nMore.\n")
    assert "old" not in once
    assert page_with(once, [], machine) == once
