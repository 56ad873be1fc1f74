"""Write the table of the coordinator's figures: one row a figure, one column a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Figures = Mapping[str, Any]
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"
DATABASES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


@dataclass(frozen=True)
class FigureLine:
    """One figure of the table.

    Attributes:
        job, chosen: take the figure from this job, with these parameters.
        figure: the name of the figure.
        limit: the goal is at most this.
    """

    label: str
    job: str
    chosen: Mapping[str, Any]
    figure: str
    unit: str = ""
    limit: float | None = None
    processes: int = 1


@dataclass(frozen=True)
class FigureRow:
    """A line with its values by database. A failed job has the value `failed`."""

    label: str
    unit: str
    goal: str = ""
    values: Mapping[str, float | str] = field(default_factory=dict[str, float | str])
    is_reached: bool | None = None


def _masked(
    clients: int, label: str, figure: str, unit: str, limit: float | None = None, **parameters: Any
) -> FigureLine:
    options = {"clients": clients, **parameters}
    return FigureLine(f"{label}, {clients:,} hospitals", "masked", options, figure, unit, limit)


MASKED, RING = "processor per hospital, masked round", "processor per hospital, masked round on a ring"
PLAIN = "processor per hospital, plain round"
SINGLE, TWO = "requests of 200 hospitals, one API process", "requests of 200 hospitals, two API processes"
MIN_SPEEDUP = 1.7
LINES = (
    _masked(5, "masked round of 256 numbers", "seconds", "s"),
    _masked(5, "masked round with opening, settlement and release", "cycle_seconds", "s"),
    *(_masked(n, MASKED, "cpu_ms_each", "ms", 30.0) for n in (5, 30, 100)),
    _masked(300, MASKED, "cpu_ms_each", "ms", 30.0, lost=0),
    _masked(300, f"{RING}, 15 lost", "cpu_ms_each", "ms", 30.0, lost=15),
    _masked(1000, RING, "cpu_ms_each", "ms", 30.0, lost=0),
    _masked(1000, "masked round on a ring", "seconds", "s", lost=0),
    *(FigureLine(f"{PLAIN}, {n:,} hospitals", "plain", {"clients": n}, "cpu_ms_each", "ms") for n in (200, 1000)),
    FigureLine("processor for a signed assignment", "requests", {}, "assignment_cpu_ms", "ms"),
    FigureLine("processor for `/livez`", "requests", {}, "livez_cpu_ms", "ms"),
    FigureLine("share of one core at rest", "requests", {}, "idle_cpu_percent", "%"),
    FigureLine("requests per hospital, masked round of five", "counts", {}, "requests_each", "", 11.0),
    FigureLine("syncs of the coordinator, masked round of five", "counts", {}, "round_syncs", "", 40.0),
    FigureLine("99 % of answers within, 1,000 hospitals", "plain", {"clients": 1000}, "all_p99", "s", 1.0),
    FigureLine("repeated requests, 1,000 hospitals", "plain", {"clients": 1000}, "repeated", "", 0.0),
    FigureLine("peak memory, models of 100 MB", "plain", {"values": 12_500_000}, "peak_mib", "MiB", 350.0),
    FigureLine(SINGLE, "plain", {"clients": 200, "rounds": 3}, "rate", "/s"),
    FigureLine(TWO, "plain", {"clients": 200, "rounds": 3}, "rate", "/s", processes=2),
)  # fmt: skip


def rows_of(figures: Sequence[Figures]) -> list[FigureRow]:
    """Return a row for every line that has a figure."""
    rows: list[FigureRow] = []
    for line in LINES:
        values = {name: value for name in DATABASES if (value := _value(line, name, figures)) is not None}
        if values:
            goal = "" if line.limit is None else f"≤ {line.limit:g}"
            numbers = [value for value in values.values() if isinstance(value, float)]
            is_complete = line.limit is not None and len(numbers) == len(values)
            is_reached = max(numbers) <= line.limit if is_complete else None
            rows.append(FigureRow(line.label, line.unit, goal, values, is_reached))
    return rows + _speedups(rows)


def _speedups(rows: Sequence[FigureRow]) -> list[FigureRow]:
    """What the second API process adds."""
    rates = {row.label: row.values for row in rows}
    single, two = (rates.get(label, {}) for label in (SINGLE, TWO))
    speedups: dict[str, float | str] = {name: float(two[name]) / float(single[name]) for name in single.keys() & two}
    if not speedups:
        return []
    is_reached = all(float(speedup) >= MIN_SPEEDUP for speedup in speedups.values())
    return [FigureRow("two API processes against one", "×", f"≥ {MIN_SPEEDUP:g}", speedups, is_reached)]


def _value(line: FigureLine, database: str, figures: Sequence[Figures]) -> float | str | None:
    """Return the figure, `failed` where the job failed, or None where the figure was not measured."""
    for figure in figures:
        if (figure.get("job"), figure["database"], figure["processes"]) != (line.job, database, line.processes):
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
        return figures["chosen"]["clients"] * figures["requests_each"] / figures["cycle_seconds"]
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


def text_of(rows: Sequence[FigureRow]) -> str:
    """Return the rows as a table in Markdown."""
    lines = [f"| figure | {' | '.join(DATABASES.values())} | goal |", "|---" * (len(DATABASES) + 2) + "|"]
    for row in rows:
        goal = row.goal + {True: ": reached", False: ": **missed**", None: ""}[row.is_reached]
        cells = (_cell(row.values.get(name), row.unit) for name in DATABASES)
        lines.append(f"| {row.label} | {' | '.join(cells)} | {goal} |")
    return "\n".join(lines) + "\n"


def page_with(page: str, results: Mapping[str, Any]) -> str:
    """Return the page with the table of these results in the place of the last one."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    machine = results["machine"]
    caption = f"Measured {machine['at']} on {machine['cores']} cores, Python {machine['python']}, {machine['commit']}."
    return f"{head}{BEGIN}{text_of(rows_of(results['figures']))}\n{caption}\n{END}{tail}"
