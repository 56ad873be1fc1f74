"""Print a query and its answer at a terminal, and write its tables as CSV."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from study_protocol.study.limit_words import SHARE, squares_in_words
from study_protocol.study.query_words import refusals_of, state_in_words, title_of
from study_protocol.wire.rounded import at_least
from wardround.cli.hospital.spreadsheet import csv_text
from wardround.cli.lead.regression_shown import is_result, show_regression
from wardround.cli.shared.output import require_writable
from wardround.cli.shared.shared import number, say, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from study_protocol.queries.answer import Answer, AnswerTable
    from study_protocol.queries.expected import ExpectedError
    from study_protocol.queries.kinds import Question
    from study_protocol.study.limit_statement import LimitStatement
    from study_protocol.study.queries import PublishedAnswer, Query, QueryForecast

# Rows of a curve that are printed. `--csv` and `--json` have every row.
_MAX_ROWS = 24


def show_query(query: Query, *, only: str | None = None, words: bool = True) -> None:
    """Print a query, its state and its answer. only: name of the one table to show. words: print the question, too."""
    say(f"query {query.number} of {query.study}: {title_of(query)}")
    if words and query.document.question.title:
        say(query.document.question.in_words())
    for place in (query.synthesis, query.place):
        if place is not None:
            say(place.words)
    if query.answered is None:
        say(state_in_words(query))
        for line in refusals_of(query):
            say(f"  {line}")
        return
    _show_answer(query.answered.published, only, query.document.question)


def _show_answer(stated: PublishedAnswer, only: str | None, question: Question) -> None:
    if only is None and question.kind == "glm" and is_result(stated.answer):
        show_regression(stated.answer)
    else:
        for answer_table in tables_of(stated.answer, only):
            show_table(answer_table, question.edges[0] if question.kind == "survival" else 0.0)
    for note in stated.answer.notes:
        say(note)
    say(
        f"{stated.hospitals} hospitals in the sum. Every number has noise of standard deviation "
        f"{number(stated.noise.present)}, of which {at_least(stated.noise.guaranteed)} is sure to protect"
    )
    say(f"charged in round {stated.round}, ledger entry {stated.ledger_entries}")
    say(stated.warning)


def show_table(answer_table: AnswerTable, start: float = 0.0) -> None:
    """Print a table, of long curves only the first rows. start: when follow-up begins, where a median is a time."""
    is_curve = answer_table.plot is not None and answer_table.plot.kind in ("steps", "line")
    rows = answer_table.rows[:_MAX_ROWS] if is_curve else answer_table.rows
    is_median = answer_table.name == "median"
    lines = [_median_cells(answer_table.columns, row, start) if is_median else [*map(_cell, row)] for row in rows]
    table(answer_table.title, list(answer_table.columns), lines)
    if len(rows) < len(answer_table.rows):
        say(f"{len(answer_table.rows) - len(rows)} more rows: --csv and --json have all of them")


def tables_of(answer: Answer, only: str | None) -> list[AnswerTable]:
    """Return all tables of the answer, or the one with this name.

    Raises:
        ConfigurationError: no table has this name. The message lists the names.
    """
    from client_sdk.errors import ConfigurationError

    tables = [answer_table for answer_table in answer.tables if only in (None, answer_table.name)]
    if not tables:
        names = ", ".join(answer_table.name for answer_table in answer.tables)
        raise ConfigurationError(f"the answer has no table {only!r}, but {names}")
    return tables


def csv_files(path: Path, answer: Answer, only: str | None) -> list[tuple[Path, AnswerTable]]:
    """Return the file of each table: the first goes to `path`, the others beside it under their names.

    Raises:
        ConfigurationError: as `tables_of`.
    """
    first, *further_tables = tables_of(answer, only)
    return [
        (path, first),
        *(
            (path.with_name(f"{path.stem}-{answer_table.name}{path.suffix}"), answer_table)
            for answer_table in further_tables
        ),
    ]


def write_csv(path: Path, answer: Answer, only: str | None) -> list[Path]:
    """Write the tables and return the paths. Raises OSError: as `require_writable`, before a file is written."""
    files = csv_files(path, answer, only)
    for file, _ in files:
        require_writable(file)
    for file, answer_table in files:
        with file.open("x", newline="", encoding="utf-8") as open_file:
            open_file.write(csv_text(answer_table.columns, answer_table.rows, line_end="\r\n"))
    return [file for file, _ in files]


def show_forecast(
    forecast: QueryForecast,
    errors: list[list[str]],
    limits: Sequence[LimitStatement],
    *,
    evaluates: bool = False,
    square: float | None = None,
) -> None:
    """Print what a query would cost and how exact it would be.

    errors  title and errors of each table of counts
    limits  what the study's budget says of them now
    evaluates  the query is charged to patients who are set aside. Their account is not counted in squares
    square  Σ (Δ/s)² of all its sums. None: it has one
    """
    if forecast.known is not None:
        say(f"this very question is query {forecast.known}. Asking it again is free")
    if forecast.sums > 1:
        say(f"{forecast.sums} sums are asked for, one after another. The limits below count all of them. The first:")
    say(
        f"{forecast.cells} numbers. One patient changes them by at most {forecast.sensitivity:.4g}. Noise of standard "
        f"deviation s = {forecast.noise_std:.4g} is sure, {forecast.noise_expected:.4g} if every hospital answers"
    )
    if errors:
        table("How exact it would be, from the noise alone", ["counts of", "standard error", "95 %"], errors)
    rows = [
        [
            limit.level,
            limit.definition,
            number(limit.before),
            "above the limit" if limit.after is None else number(limit.after),
            f"{limit.epsilon:g}",
        ]
        for limit in forecast.limits
    ]
    table("What it would cost", ["level", "definition", "ε now", "ε afterwards", "limit"], rows)
    _show_condition(limits)
    if not evaluates:
        _show_squares((forecast.sensitivity / forecast.noise_std) ** 2 if square is None else square, limits)
    if forecast.allowed:
        return
    min_noise_multiplier = forecast.least_noise_multiplier
    helps = "" if min_noise_multiplier is None else f". A noise_multiplier of {min_noise_multiplier:g} would fit"
    say(f"it would be refused: {forecast.reason}{helps}")


def _show_condition(limits: Sequence[LimitStatement]) -> None:
    rules = {limit.progress.enforcement for limit in limits if limit.progress is not None}
    if "gaussian-filter" in rules:
        say(
            "These ε hold if the study ends there for reasons that do not depend on its results. The limit holds for "
            "every stop."
        )
    elif "fixed-plan" in rules:
        say(
            "These ε hold for every stop. From the first charge on they count the whole plan: all its steps, and its "
            "share for questions, asked or not."
        )
    else:
        say("These ε hold for every stop.")


def _show_squares(square: float, limits: Sequence[LimitStatement]) -> None:
    for limit in limits:
        if limit.progress is None or (squares := limit.progress.squares) is None:
            continue
        single = squares.model_copy(update={"used": square, "reserved": 0.0})
        name = f"{limit.level} {limit.definition}{'' if limit.progress.steps is None else f', {SHARE}'}"
        say(f"{name}, this question alone: {squares_in_words(single)}")
        say(f"{name}, so far: {squares_in_words(squares)}")


def show_expected(errors: Sequence[ExpectedError], patients: int) -> None:
    """Print how exact the figures would be with this many patients: the noise beside the sampling error."""
    if not errors:
        say("for this kind of question, the number of patients does not predict the errors")
        return
    names = ["figure", "if it were", "error from noise", "error from sampling", ""]
    rows = [
        [
            figure_error.figure,
            *(_figure(part) for part in (figure_error.estimate, figure_error.dp_error, figure_error.sampling_error)),
            _verdict_on(figure_error),
        ]
        for figure_error in errors
    ]
    table(f"With {patients} patients", names, rows)
    if any(figure_error.noise_decides for figure_error in errors):
        say(
            "warning: where the noise decides, the noise hides what the patients could show. Ask for fewer cells, bins "
            "or groups, with less noise, or when there are more patients"
        )


def _verdict_on(figure_error: ExpectedError) -> str:
    return "the noise decides" if figure_error.noise_decides else ""


def _figure(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"


def _median_cells(columns: Sequence[str], row: Sequence[float | str | None], start: float) -> list[str]:
    """Return cells that say which time is not reached. An interval from `start` on means an unknown value."""
    low = row[columns.index("low")]
    unknown = "not reached" if isinstance(low, float) and low > start else "not known"
    return [
        unknown if value is None and column in ("estimate", "high") else _cell(value)
        for column, value in zip(columns, row, strict=True)
    ]


def _cell(value: float | str | None) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:.5g}"
