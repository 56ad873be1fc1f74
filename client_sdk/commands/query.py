"""`wardround ask` and `wardround query …`: questions about the hospitals' patients, and a hospital's word on them."""

from __future__ import annotations

import csv
import json
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from client_sdk.commands.shared import (
    AsJson,
    Home,
    KeyFile,
    Server,
    StudyName,
    hospital,
    number,
    operator,
    plain_errors,
    print_json,
    reader,
    say,
    since,
    table,
)
from client_sdk.protocol.wire.rounded import at_least

if TYPE_CHECKING:
    from client_sdk.api.client import Client
    from client_sdk.protocol.statistics.answer import AnswerTable
    from client_sdk.protocol.study.queries import Query, QueryDocument, QueryForecast

app = typer.Typer(no_args_is_help=True, help="See what is asked about patients; at a hospital, allow it or not.")
QuestionFile = Annotated[Path, typer.Argument(help="the question, TOML or JSON")]
Number = Annotated[int, typer.Argument(help="number of the query", min=1)]
Plan = Annotated[bool, typer.Option("--plan", help="say what it would cost and how exact it would be; ask nobody")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="do not wait for the answer; `wardround query show` has it")]
Csv = Annotated[Path | None, typer.Option("--csv", help="write the answer's first table there; not overwritten")]
_LOOK_SECONDS = 2.0


def ask(
    study: StudyName,
    question: QuestionFile,
    plan: Plan = False,
    no_wait: NoWait = False,
    csv_file: Csv = None,
    server: Server = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Ask all hospitals a question about their patients. The answer has noise, and its cost is in the budget."""
    with plain_errors():
        document = read_question(question)
        if csv_file is not None:
            _require_new(csv_file)
        with operator(server, key_file) as client:
            if plan:
                _show_forecast(client.forecast_query(study, document), as_json)
                return
            found = client.ask_query(study, document)
            if found.state != "answered" and not no_wait:
                found = _awaited(client, found)
            _require_believable(client, found, key_file, None)
        _show(found, as_json, csv_file)


@app.command("list")
def list_queries(
    study: StudyName, server: Server = None, key_file: KeyFile = None, home: Home = None, as_json: AsJson = False
) -> None:
    """List the queries of a study."""
    with plain_errors(), reader(study, server, key_file, home) as client:
        found = list(_all(client, study))
    if as_json:
        print_json([one.model_dump(mode="json") for one in found])
        return
    rows = [[str(q.number), q.document.question.kind, _title(q), _state(q), since(q.created_at)] for q in found]
    table(f"Queries of {study}", ["number", "kind", "question", "state", "asked"], rows)


@app.command()
def show(
    study: StudyName,
    query: Number,
    csv_file: Csv = None,
    server: Server = None,
    key_file: KeyFile = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Show a query and its answer."""
    with plain_errors():
        if csv_file is not None:
            _require_new(csv_file)
        with reader(study, server, key_file, home) as client:
            found = client.query(study, query)
            _require_believable(client, found, key_file, home)
        _show(found, as_json, csv_file)


@app.command()
def approve(study: StudyName, query: Number, home: Home = None) -> None:
    """Allow this hospital to answer a query. `wardround join`, where it runs, tells the coordinator."""
    _decide(study, query, home, approved=True)


@app.command()
def deny(study: StudyName, query: Number, home: Home = None) -> None:
    """Say no to a query for this hospital."""
    _decide(study, query, home, approved=False)


def read_question(path: Path) -> QueryDocument:
    """What a file asks.

    Raises:
        ConfigurationError: no TOML or JSON, or no question; every wrong entry is named.
    """
    from pydantic import ValidationError

    from client_sdk.errors import ConfigurationError
    from client_sdk.protocol.study.queries import QueryDocument
    from client_sdk.protocol.wire.documents import load_json
    from client_sdk.protocol.wire.wrong_entries import wrong_entries

    try:
        text = path.read_bytes().decode("utf-8-sig")
        values: dict[str, Any] = load_json(text) if path.suffix == ".json" else tomllib.loads(text)
        version = {"data_version": values.pop("data_version")} if "data_version" in values else {}
        return QueryDocument.model_validate_json(json.dumps({"question": values, **version}))
    except ValidationError as error:
        wrong = "\n".join(f"  {line}" for line in wrong_entries(error, QueryDocument))
        raise ConfigurationError(f"{path} is not a question:\n{wrong}") from error
    except (UnicodeDecodeError, RecursionError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"{path} is not a question: it is no TOML or JSON of one") from error
    except ValueError as error:
        raise ConfigurationError(f"{path} is neither TOML nor JSON: {error}") from error


def _decide(study: str, query: int, home: Path | None, *, approved: bool) -> None:
    from client_sdk.guard.approvals import Approvals

    with plain_errors():
        here = hospital(home)
        with here.client(study) as client:
            found = client.query(study, query)
        words = found.document.question.in_words()
        Approvals(here.directory / "outbox" / study).decide(found.document.digest(), approved=approved, words=words)
        say(f"query {query} of {study}, {words}: {'approved' if approved else 'denied'} for this hospital")


def _require_believable(client: Client, found: Query, key_file: Path | None, home: Path | None) -> None:
    """Raises NotTrusted: the answer is not the coordinator's to this question. At a hospital its key is pinned."""
    from client_sdk.commands.verify import trust
    from client_sdk.errors import NotTrusted
    from client_sdk.protocol.wire.signing import SigningError, decode_public_key

    if found.answered is None:
        return
    key = trust(client, found.study, None, key_file, home, "records").key
    try:
        found.require_believable(decode_public_key(key))
    except SigningError as error:
        raise NotTrusted(f"query {found.number} of {found.study}: {error}") from error


def _awaited(client: Client, query: Query) -> Query:
    said = ""
    while query.state in ("waiting", "asked"):
        if (state := _state(query)) != said:
            said = state
            say(f"query {query.number}: {state}", err=True)
        time.sleep(_LOOK_SECONDS)
        query = client.query(query.study, query.number)
    return query


def _all(client: Client, study: str) -> list[Query]:
    found: list[Query] = []
    after: int | None = None
    while True:
        page = client.queries(study, after=after)
        found += page.queries
        if page.next is None:
            return found
        after = page.next


def _title(query: Query) -> str:
    return query.document.question.title or query.document.question.in_words()


def _state(query: Query) -> str:
    if query.state == "waiting":
        refused = f", {query.refused} say no" if query.refused else ""
        return f"waiting: {query.allowed} of at least {query.needed} hospitals say yes{refused}"
    if query.state == "failed":
        return f"failed: {query.reason}; ask again to try anew"
    return f"asked in round {query.round}" if query.state == "asked" else "answered"


def _show(query: Query, as_json: bool, csv_file: Path | None) -> None:
    if csv_file is not None and query.answered is not None:
        _write_csv(csv_file, query.answered.published.answer.tables[0])
    if as_json:
        print_json(query)
        return
    say(f"query {query.number} of {query.study}: {_title(query)}")
    if query.answered is None:
        say(_state(query))
        return
    stated = query.answered.published
    for one in stated.answer.tables:
        table(one.title, list(one.columns), [[_cell(cell) for cell in row] for row in one.rows])
    for note in stated.answer.notes:
        say(note)
    say(
        f"{stated.hospitals} hospitals in the sum; noise of standard deviation {number(stated.noise.present)} on every "
        f"number, of which {at_least(stated.noise.guaranteed)} is sure to protect"
    )
    say(stated.warning)


def _show_forecast(found: QueryForecast, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    if found.known is not None:
        say(f"this very question is query {found.known}: asking again costs nothing")
    say(
        f"{found.cells} numbers; one patient changes them by at most {found.sensitivity:.4g}; noise of standard "
        f"deviation {found.noise_std:.4g} is sure, {found.noise_expected:.4g} if every hospital answers"
    )
    rows = [
        [one.level, one.definition, number(one.before), number(one.after), f"{one.epsilon:g}"] for one in found.limits
    ]
    table("What it would cost", ["level", "definition", "ε now", "ε afterwards", "limit"], rows)
    if found.allowed:
        return
    least = found.least_noise_multiplier
    helps = "" if least is None else f"; a noise_multiplier of {least:g} would fit"
    say(f"it would be refused: {found.reason}{helps}")


def _write_csv(path: Path, answer: AnswerTable) -> None:
    with path.open("x", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(answer.columns)
        writer.writerows(answer.rows)


def _require_new(path: Path) -> None:
    if path.exists():
        raise FileExistsError(f"{path} exists already: name another file, or move it away")


def _cell(value: float | str | None) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:.5g}"
