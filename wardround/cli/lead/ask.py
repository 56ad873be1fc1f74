"""`wardround ask`: a question from a file, or a ready one; what it would cost, or its answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wardround.cli.lead.answers_shown import (
    show_expected,
    show_forecast,
    show_query,
    tables_of,
    write_csv,
)
from wardround.cli.shared.output import require_writable
from wardround.cli.shared.shared import AsJson, KeyFile, Server, StudyName, operator, plain_errors, print_json, say

if TYPE_CHECKING:
    from client_sdk.api.client import Client
    from study_protocol.study.queries import Query, QueryDocument, QueryForecast

QuestionFile = Annotated[Path | None, typer.Argument(help="the question, TOML or JSON: wardround query template KIND")]
Plan = Annotated[bool, typer.Option("--plan", help="say what it would cost and how exact it would be; ask nobody")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="do not wait for the answer; `wardround query show` has it")]
Csv = Annotated[
    Path | None,
    typer.Option("--csv", help="write the tables: the first there, others beside it as FILE-NAME.csv; not overwritten"),
]
TableName = Annotated[str | None, typer.Option("--table", help="of the answer only this table")]
Ready = Annotated[
    str | None, typer.Option("--ready", help="instead of a file: table-one, missingness, survival, evaluation")
]
Columns = Annotated[
    Path | None,
    typer.Option("--columns", help="with --ready: which columns; left out: those that the study trains on"),
]
Noise = Annotated[float | None, typer.Option("--noise", help="with --ready: its noise multiplier")]
Model = Annotated[int | None, typer.Option("--model", help="with --ready evaluation: number of the model", min=0)]
Patients = Annotated[
    int | None,
    typer.Option("--patients", help="with --plan: how many patients you expect, to compare errors", min=1, max=10**9),
]
CoordinatorKey = Annotated[
    str | None,
    typer.Option("--coordinator-key", help="verify the answer with this key or fingerprint, not with the one shown"),
]


def ask(
    study: StudyName,
    question: QuestionFile = None,
    ready: Ready = None,
    columns: Columns = None,
    noise: Noise = None,
    model: Model = None,
    plan: Plan = False,
    patients: Patients = None,
    no_wait: NoWait = False,
    csv_file: Csv = None,
    only: TableName = None,
    coordinator_key: CoordinatorKey = None,
    server: Server = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Ask all hospitals a question about their patients. The answer has noise, and its cost is in the budget."""
    from client_sdk.errors import ConfigurationError

    with plain_errors():
        require_writable(csv_file)
        if patients is not None and not plan:
            raise ConfigurationError("--patients goes with --plan; a question that is asked needs no such number")
        with operator(server, key_file) as client:
            client.coordinator_key = coordinator_key
            document = _document(client, study, question, ready, columns, noise, model)
            if plan:
                _plan(client.forecast_query(study, document), document, patients, as_json)
                return
            found, said = _asked(client, study, document, wait=not no_wait)
        hand_out(found, as_json, csv_file, only)
        if said and not as_json:
            say(said)


def hand_out(query: Query, as_json: bool, csv_file: Path | None, only: str | None, *, words: bool = True) -> None:
    """A query on standard output, its tables in files if somebody wants that. words: as of `show_query`."""
    if query.answered is not None:
        tables_of(query.answered.published.answer, only)
        if csv_file is not None:
            for path in write_csv(csv_file, query.answered.published.answer, only):
                say(f"{path} is written", err=True)
    if as_json:
        print_json(query)
    else:
        show_query(query, only=only, words=words)


def errors_of_counts(document: QueryDocument, noise_std: float) -> list[list[str]]:
    """Of every table that counts patients its title, its standard errors from the noise alone, and 1.96 times those.

    They do not depend on the records: read off an answer to a sum of nothing.
    """
    import numpy as np

    from study_protocol.queries.answer import DP_ERROR, ESTIMATE, NoisedSum

    nothing = NoisedSum(np.zeros(document.question.cells), noise_std, 1)
    found: list[list[str]] = []
    for table in document.question.answer(nothing).tables:
        if table.counts != ESTIMATE or DP_ERROR not in table.columns:
            continue
        place = table.columns.index(DP_ERROR)
        errors = [row[place] for row in table.rows]
        known = [one for one in errors if isinstance(one, int | float)]
        if known:
            found.append([table.title, _ends(known, 1.0), f"± {_ends(known, 1.96)}"])
    return found


def _ends(values: Sequence[float], times: float) -> str:
    least, most = (f"{times * one:.3g}" for one in (min(values), max(values)))
    return least if least == most else f"{least} to {most}"


def _document(
    client: Client,
    study: str,
    question: Path | None,
    ready: str | None,
    columns: Path | None,
    noise: float | None,
    model: int | None,
) -> QueryDocument:
    from client_sdk.api.questions import read_question
    from client_sdk.errors import ConfigurationError

    if (question is None) == (ready is None):
        raise ConfigurationError("pass a question file, or --ready with the name of a ready question")
    if question is not None:
        if columns is not None or noise is not None or model is not None:
            raise ConfigurationError("--columns, --noise and --model go with --ready; a file says them itself")
        return read_question(question)
    if noise is None:
        raise ConfigurationError("--ready needs --noise, the noise multiplier: more costs less; --plan says how much")
    from wardround.cli.lead.ready_questions import declared, ready_question

    if model is not None and columns is None:
        # Groups are wanted by name: those of every column that a study trains on would cost too much.
        return ready_question(ready or "", (), noise, model)
    settings = None if columns is not None else client.study(study).settings
    return ready_question(ready or "", declared(columns, settings), noise, model)


def _asked(client: Client, study: str, document: QueryDocument, *, wait: bool) -> tuple[Query, str]:
    """The query, and who its answer was verified with."""
    from client_sdk.api.answered import Answered

    shown = _Shown()
    found = client.ask(study, document, wait=wait, on_state=shown)
    if not isinstance(found, Answered):
        return found, ""
    whose = (
        "that you named" if found.pinned else "that the coordinator shows, which nobody compared (--coordinator-key)"
    )
    return found.query, f"the answer's signature holds, by the key {whose}"


class _Shown:
    """Says how far a query is, whenever that changes."""

    def __init__(self) -> None:
        self._said = ""

    def __call__(self, query: Query) -> None:
        from study_protocol.study.query_words import state_in_words

        state = state_in_words(query)
        if state != self._said:
            self._said = state
            say(f"query {query.number}: {state}", err=True)


def _plan(found: QueryForecast, document: QueryDocument, patients: int | None, as_json: bool) -> None:
    from study_protocol.queries.expected import expected_errors

    expected = () if patients is None else expected_errors(document.question, patients, found.noise_expected)
    if as_json:
        print_json(found.model_dump(mode="json") | {"expected": [one.model_dump(mode="json") for one in expected]})
        return
    say(document.question.in_words())
    show_forecast(found, errors_of_counts(document, found.noise_expected))
    if patients is not None:
        show_expected(expected, patients)
