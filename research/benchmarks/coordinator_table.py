"""The one table of the coordinator's figures: before, after, their ratio, and what was aimed at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Figures = Mapping[str, Any]
Row = dict[str, Any]
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"
DATABASES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


@dataclass(frozen=True)
class Line:
    """One line of the table for every database that has the figure.

    job, chosen   of which figures; chosen: those that must be so
    figure        its name
    goal          in words; `reached` looks at before and after
    """

    what: str
    job: str
    chosen: Mapping[str, Any]
    figure: str
    unit: str
    goal: str = ""
    reached: Callable[[float | None, float], bool] | None = None
    processes: int = 1


def _at_most(limit: float) -> Callable[[float | None, float], bool]:
    return lambda _, after: after <= limit


def _share(limit: float) -> Callable[[float | None, float], bool]:
    return lambda before, after: before is not None and after <= limit * before


def _masked(clients: int, figure: str, label: str, unit: str, *more: Any, **parameters: Any) -> Line:
    return Line(f"{label}, {clients} hospitals", "masked", {"clients": clients, **parameters}, figure, unit, *more)


PER_CLIENT = "coordinator's processor per client and masked session"
ONE, TWO = "plain rounds of 200, one API process", "the same, two API processes"
PLAIN = "coordinator's processor per client and plain round"
LINES = (
    _masked(5, "seconds", "masked round of 256 numbers", "s", "≤ .2 of before", _share(0.2)),
    _masked(5, "cycle_seconds", "the same with opening, settlement and release", "s"),
    *(_masked(n, "cpu_ms_each", PER_CLIENT, "ms", "≤ 30", _at_most(30.0)) for n in (5, 30, 100)),
    _masked(300, "cpu_ms_each", PER_CLIENT, "ms", "≤ 30", _at_most(30.0), lost=0),
    _masked(300, "cpu_ms_each", f"{PER_CLIENT}, ring, 15 lost", "ms", "≤ 30", _at_most(30.0), lost=15),
    _masked(1000, "cpu_ms_each", f"{PER_CLIENT}, ring", "ms", "≤ 30", _at_most(30.0), lost=0),
    _masked(1000, "seconds", "masked round, ring", "s", lost=0),
    Line("one signed assignment, processor", "requests", {}, "assignment_cpu_ms", "ms", "≤ .2 of before", _share(0.2)),
    Line("`/livez`, processor", "requests", {}, "livez_cpu_ms", "ms"),
    Line("coordinator at rest, of one core", "requests", {}, "idle_cpu_percent", "%"),
    Line("statements for a signed assignment", "counts", {}, "assignment_statements", ""),
    Line("transactions for a signed assignment", "counts", {}, "assignment_transactions", ""),
    Line("requests per client and masked round", "counts", {}, "requests_each", "", "≤ 11", _at_most(11.0)),
    Line("syncs per masked round of five: the coordinator", "counts", {}, "round_syncs", "", "≤ 40", _at_most(40.0)),
    Line("the five hospitals' own syncs", "counts", {}, "hospitals_syncs", ""),
    Line("statements per masked round of five", "counts", {}, "round_statements", ""),
    Line("transactions per masked round of five", "counts", {}, "round_transactions", ""),
    *(Line(f"{PLAIN}, {n} hospitals", "plain", {"clients": n}, "cpu_ms_each", "ms") for n in (200, 1000)),
    Line("1,000 hospitals at once: 99 % of answers within", "plain", {"clients": 1000}, "all_p99", "s", "≤ 1",
         _at_most(1.0)),
    Line("1,000 hospitals at once: repeated requests", "plain", {"clients": 1000}, "repeated", "", "0", _at_most(0.0)),
    Line("failed of 600 requests on connections idle for 5 s", "idle", {}, "failed", "", "0", _at_most(0.0)),
    Line("peak memory, models of 100 MB", "plain", {"values": 12_500_000}, "peak_mib", "MiB", "≤ 350", _at_most(350.0)),
    Line(ONE, "plain", {"clients": 200, "rounds": 3}, "rate", "requests/s"),
    Line(TWO, "plain", {"clients": 200, "rounds": 3}, "rate", "requests/s", processes=2),
    Line("the demonstration", "demo", {}, "seconds", "s", "≤ .5 of before", _share(0.5)),
)  # fmt: skip


def rows_of(figures: Sequence[Figures]) -> list[Row]:
    """Every line that has a figure, for each database."""
    rows: list[Row] = []
    for line in LINES:
        for database in DATABASES:
            values = {version: _value(line, database, version, figures) for version in ("before", "after")}
            before, after = values["before"], values["after"]
            if before is None and after is None:
                continue
            row: Row = {"what": line.what, "database": database, "unit": line.unit, "goal": line.goal, **values}
            numbers = isinstance(before, float) and isinstance(after, float)
            row["ratio"] = after / before if numbers and before else None
            if line.reached is not None and isinstance(after, float):
                row["reached"] = line.reached(before if isinstance(before, float) else None, after)
            rows.append(row)
    return rows + _by_processes(rows)


def _by_processes(rows: Sequence[Row]) -> list[Row]:
    """What the second API process adds, by database."""
    rates = {(row["what"], row["database"]): row["after"] for row in rows}
    rate_rows: list[Row] = []
    for database in DATABASES:
        single, two = rates.get((ONE, database)), rates.get((TWO, database))
        if isinstance(single, float) and isinstance(two, float):
            row: Row = {"what": "two API processes against one", "database": database, "unit": "×", "goal": "≥ 1.7"}
            rate_rows.append(
                row | {"before": None, "after": two / single, "ratio": None, "reached": two >= 1.7 * single}
            )
    return rate_rows


def _value(line: Line, database: str, version: str, figures: Sequence[Figures]) -> float | str | None:
    """The figure; the word `failed` where the job did not end well; None where it was not asked."""
    for figure in figures:
        if (figure.get("job"), figure["database"], figure["version"], figure["processes"]) != (
            line.job,
            database,
            version,
            line.processes,
        ):
            continue
        options = {"rounds": 1, "lost": 0, "values": 256, **figure["chosen"]} if "chosen" in figure else {}
        if any(options.get(name) != value for name, value in line.chosen.items()):
            continue
        if "error" in figure:
            return "failed"
        derived = _derived(line.figure, figure)
        return None if derived is None else float(derived)
    return None


def _derived(figure: str, figures: Figures) -> float | None:
    if figure == "repeated":
        return sum(figures["troubles"].values())
    if figure == "rate":
        clients = figures["chosen"]["clients"]
        return clients * figures["requests_each"] / figures["cycle_seconds"]
    return figures.get(figure)


def _cell(value: float | str | None, unit: str) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    # What is less than nothing by its noise is nothing.
    value = round(value, 2) + 0.0
    digits = 0 if value >= 100 or value == int(value) else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}{' ' if unit else ''}{unit}"


def text_of(rows: Sequence[Row]) -> str:
    """As a table in Markdown."""
    lines = ["| what | database | before | after | ratio | goal |", "|---|---|---|---|---|---|"]
    for row in rows:
        ratio = "–" if row["ratio"] is None else f"{round(row['ratio'], 2) + 0.0:.2f}"
        goal = row["goal"] and row["goal"] + {True: ": reached", False: ": **missed**"}.get(row.get("reached"), "")
        cells = (_cell(row[version], row["unit"]) for version in ("before", "after"))
        lines.append(f"| {row['what']} | {DATABASES[row['database']]} | {' | '.join(cells)} | {ratio} | {goal} |")
    return "\n".join(lines) + "\n"


def page_with(page: str, rows: Sequence[Row], machine: Mapping[str, Any]) -> str:
    """The page with this table in the place of the last one."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    commits = ", ".join(f"{name} {commit}" for name, commit in machine["commits"].items())
    caption = f"\nMeasured {machine['at']} on {machine['cores']} cores, Python {machine['python']}; {commits}.\n"
    return head + BEGIN + text_of(rows) + caption + END + tail
