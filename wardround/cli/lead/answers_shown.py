"""A query and its answer at a terminal, and its tables as CSV."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from study_protocol.study.query_words import refusals_of, state_in_words, title_of
from study_protocol.wire.rounded import at_least
from wardround.cli.hospital.spreadsheet import csv_text
from wardround.cli.shared.output import require_writable
from wardround.cli.shared.shared import number, say, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from study_protocol.queries.answer import Answer, AnswerTable
    from study_protocol.queries.expected import ExpectedError
    from study_protocol.study.queries import PublishedAnswer, Query, QueryForecast

# Of a curve, which stands above: `--csv` and `--json` have every row.
_MOST_ROWS = 24


def show_query(query: Query, *, only: str | None = None, words: bool = True) -> None:
    """What is asked, how far it has come, and its answer. only: name of the one table to show. words: what is asked."""
    say(f"query {query.number} of {query.study}: {title_of(query)}")
    if words and query.document.question.title:
        say(query.document.question.in_words())
    if query.answered is None:
        say(state_in_words(query))
        for line in refusals_of(query):
            say(f"  {line}")
        return
    _show_answer(query.answered.published, only)


def _show_answer(stated: PublishedAnswer, only: str | None) -> None:
    for one in tables_of(stated.answer, only):
        show_table(one)
    for note in stated.answer.notes:
        say(note)
    say(
        f"{stated.hospitals} hospitals in the sum; noise of standard deviation {number(stated.noise.present)} on every "
        f"number, of which {at_least(stated.noise.guaranteed)} is sure to protect"
    )
    say(f"charged in round {stated.round}, ledger entry {stated.ledger_entries}")
    say(stated.warning)


def show_table(one: AnswerTable) -> None:
    """Its curves, then its rows, each with a picture of its interval where it has one."""
    from wardround.cli.shared.text_charts import curves, intervals

    drawn, beside = curves(one), intervals(one)
    if drawn is not None:
        say(one.title)
        for line in drawn:
            say(line)
    rows = [[_cell(cell) for cell in row] for row in one.rows]
    columns = list(one.columns)
    if beside is not None:
        columns, rows = [*columns, ""], [[*row, picture] for row, picture in zip(rows, beside, strict=True)]
    shown = rows if drawn is None else rows[:_MOST_ROWS]
    table(one.title, columns, shown)
    if len(shown) < len(rows):
        say(f"{len(rows) - len(shown)} more rows: --csv and --json have all of them")


def tables_of(answer: Answer, only: str | None) -> list[AnswerTable]:
    """All tables, or the one of this name.

    Raises:
        ConfigurationError: there is none of this name; says which there are.
    """
    from client_sdk.errors import ConfigurationError

    found = [one for one in answer.tables if only in (None, one.name)]
    if not found:
        named = ", ".join(one.name for one in answer.tables)
        raise ConfigurationError(f"the answer has no table {only!r}, but {named}")
    return found


def csv_files(path: Path, answer: Answer, only: str | None) -> list[tuple[Path, AnswerTable]]:
    """Which table goes into which file: the first into `path`, others beside it under their names.

    Raises:
        ConfigurationError: as `tables_of`.
    """
    first, *others = tables_of(answer, only)
    return [(path, first), *((path.with_name(f"{path.stem}-{one.name}{path.suffix}"), one) for one in others)]


def write_csv(path: Path, answer: Answer, only: str | None) -> list[Path]:
    """Write the tables; the files' names. Raises OSError: as `require_writable`, and nothing is written."""
    files = csv_files(path, answer, only)
    for file, _ in files:
        require_writable(file)
    for file, one in files:
        with file.open("x", newline="", encoding="utf-8") as open_file:
            open_file.write(csv_text(one.columns, one.rows, line_end="\r\n"))
    return [file for file, _ in files]


def show_forecast(found: QueryForecast, errors: list[list[str]]) -> None:
    """What a query would cost, and how exact it would be. errors: of each table of counts its title and errors."""
    if found.known is not None:
        say(f"this very question is query {found.known}: asking again costs nothing")
    say(
        f"{found.cells} numbers; one patient changes them by at most {found.sensitivity:.4g}; noise of standard "
        f"deviation s = {found.noise_std:.4g} is sure, {found.noise_expected:.4g} if every hospital answers"
    )
    if errors:
        table("How exact it would be, from the noise alone", ["counts of", "standard error", "95 %"], errors)
    rows = [
        [one.level, one.definition, number(one.before), number(one.after), f"{one.epsilon:g}"] for one in found.limits
    ]
    table("What it would cost", ["level", "definition", "ε now", "ε afterwards", "limit"], rows)
    say(
        "With questions alone these ε hold if the study ends there for reasons that do not depend on its answers; what "
        "holds for every stop is the limit. In a study that trains, they hold for every stop."
    )
    if found.allowed:
        return
    least = found.least_noise_multiplier
    helps = "" if least is None else f"; a noise_multiplier of {least:g} would fit"
    say(f"it would be refused: {found.reason}{helps}")


def show_expected(errors: Sequence[ExpectedError], patients: int) -> None:
    """How exact figures would be with so many patients: the noise against having no more of them."""
    if not errors:
        say("for a question of this kind, errors are not foretold by the number of patients")
        return
    names = ["figure", "if it were", "error from noise", "error from sampling", ""]
    rows = [
        [one.figure, *(_figure(part) for part in (one.estimate, one.dp_error, one.sampling_error)), _judged(one)]
        for one in errors
    ]
    table(f"With {patients} patients", names, rows)
    if any(one.noise_decides for one in errors):
        say(
            "warning: where the noise decides, an answer says less than the patients could. Ask for fewer cells, bins "
            "or groups, with less noise, or when there are more patients"
        )


def _judged(one: ExpectedError) -> str:
    return "the noise decides" if one.noise_decides else ""


def _figure(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"


def _cell(value: float | str | None) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:.5g}"
