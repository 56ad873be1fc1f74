"""The command `wardround ask`: ask a question from a file or a ready one, or show its cost first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wardround.cli.lead.answers_shown import show_expected, show_forecast, show_query, tables_of, write_csv
from wardround.cli.lead.regression_shown import cost_lines, is_result
from wardround.cli.shared.output import require_writable
from wardround.cli.shared.shared import AsJson, KeyFile, Server, StudyName, operator, plain_errors, print_json, say

if TYPE_CHECKING:
    from client_sdk.api.client import Client
    from study_protocol.study.limit_statement import LimitStatement
    from study_protocol.study.queries import Query, QueryDocument, QueryForecast

QuestionFile = Annotated[
    Path | None, typer.Argument(help="question file, TOML or JSON. `wardround query template KIND` writes one")
]
Plan = Annotated[
    bool, typer.Option("--plan", help="only show what the question would cost and how exact its answer would be")
]
NoWait = Annotated[
    bool, typer.Option("--no-wait", help="do not wait for the answer. `wardround query show` shows it later")
]
Csv = Annotated[
    Path | None,
    typer.Option(
        "--csv",
        help="write the first table to this file, and others beside it as FILE-NAME.csv. Existing files are kept",
    ),
]
TableName = Annotated[str | None, typer.Option("--table", help="show only this table of the answer")]
Ready = Annotated[
    str | None,
    typer.Option(
        "--ready",
        help="question instead of a file: table-one, missingness, sites, typical, survival, regression, evaluation",
    ),
]
Columns = Annotated[
    Path | None,
    typer.Option(
        "--columns", help="with --ready: file with the columns. Default: the columns that the study trains on"
    ),
]
Noise = Annotated[float | None, typer.Option("--noise", help="with --ready: noise multiplier of the question")]
Model = Annotated[int | None, typer.Option("--model", help="with --ready evaluation: number of the model", min=0)]
By = Annotated[
    str | None, typer.Option("--by", help="hospital: every hospital has numbers of its own, beside those of all")
]
Patients = Annotated[
    int | None,
    typer.Option(
        "--patients", help="with --plan: number of patients that you expect, to compare the errors", min=1, max=10**9
    ),
]
CoordinatorKey = Annotated[
    str | None,
    typer.Option(
        "--coordinator-key",
        help="verify the answer with this key or fingerprint, not with the key that the coordinator shows",
    ),
]

# Between two looks while the coordinator is away. People take hours to decide, and a coordinator is upgraded meanwhile.
_OUTAGE_SECONDS = 15.0


def ask(
    study: StudyName,
    question: QuestionFile = None,
    ready: Ready = None,
    columns: Columns = None,
    noise: Noise = None,
    model: Model = None,
    by: By = None,
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
    """Ask all hospitals a question about their patients. The answer has noise, and the budget is charged for it."""
    from client_sdk.errors import ConfigurationError

    with plain_errors():
        require_writable(csv_file)
        if patients is not None and not plan:
            raise ConfigurationError("--patients goes with --plan. A question that is asked needs no such number")
        with operator(server, key_file) as client:
            client.coordinator_key = coordinator_key
            document = _by(_document(client, study, question, ready, columns, noise, model), by)
            document = _in_form_of(client, study, document)
            if plan:
                limits = () if as_json else client.budget(study).limits
                _plan(client.forecast_query(study, document), document, patients, as_json, limits)
                return
            query, trust_note = _ask_and_verify(client, study, document, wait=not no_wait)
            costs = _costs_of(client, query, as_json)
        hand_out(query, as_json, csv_file, only)
        for line in costs:
            say(line)
        if trust_note and not as_json:
            say(trust_note)


def hand_out(query: Query, as_json: bool, csv_file: Path | None, only: str | None, *, words: bool = True) -> None:
    """Print a query on standard output, and write its tables if a CSV file is named. words: as in `show_query`."""
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
    """Return, for every table of counts, its title, its standard errors from the noise alone, and 1.96 times those.

    They do not depend on the records: they are read off the answer to a sum of zeros.
    """
    import numpy as np

    from study_protocol.queries.answer import DP_ERROR, ESTIMATE, NoisedSum

    nothing = NoisedSum(np.zeros(document.question.cells), noise_std, 1)
    rows: list[list[str]] = []
    for table in document.question.answer(nothing).tables:
        if table.counts != ESTIMATE or DP_ERROR not in table.columns:
            continue
        place = table.columns.index(DP_ERROR)
        errors = [row[place] for row in table.rows]
        known_errors = [error for error in errors if isinstance(error, int | float)]
        if known_errors:
            # Two tables of one answer may have one title, as bins and their total.
            title = table.title if table.title not in [row[0] for row in rows] else f"{table.title} in all"
            rows.append([title, _ends(known_errors, 1.0), f"± {_ends(known_errors, 1.96)}"])
    return rows


def _ends(values: Sequence[float], times: float) -> str:
    smallest, largest = (f"{times * value:.3g}" for value in (min(values), max(values)))
    return smallest if smallest == largest else f"{smallest} to {largest}"


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
        if (columns, noise, model) != (None, None, None):
            raise ConfigurationError(
                "--columns, --noise and --model go with --ready. A question file states them itself"
            )
        return read_question(question)
    if noise is None:
        raise ConfigurationError(
            "--ready needs --noise, the noise multiplier. More noise costs less. Begin with --noise 16 --plan, which "
            "asks no hospital and shows the cost and how exact it would be"
        )
    from wardround.cli.lead.ready_questions import declared, ready_question

    if model is not None and columns is None:
        # Groups are named explicitly: groups of every column that a study trains on would cost too much.
        return ready_question(ready or "", (), noise, model)
    settings = None if columns is not None else client.study(study).settings
    return ready_question(ready or "", declared(columns, settings), noise, model)


def _by(document: QueryDocument, by: str | None) -> QueryDocument:
    """Return the question by hospital if `by` says so.

    Raises:
        ConfigurationError: another word, a kind that is never by hospital, or one that is by a column.
    """
    from client_sdk.errors import ConfigurationError
    from study_protocol.queries.by_hospital import HOSPITAL, HospitalQuestion
    from study_protocol.queries.kinds.glm import GeneralisedLinear

    if by is None:
        return document
    question = document.question
    if by != HOSPITAL:
        raise ConfigurationError(f"--by takes {HOSPITAL} alone. Groups by a column stand in the question file")
    if isinstance(question, GeneralisedLinear):
        entries = question.model_dump(mode="json") | {"by_hospital": True}
        return type(document).model_validate(document.model_dump(mode="json") | {"question": entries})
    if not isinstance(question, HospitalQuestion):
        raise ConfigurationError(f"a question of kind {question.kind} is never by hospital. Leave --by out")
    if getattr(question, "by", None) not in (None, HOSPITAL):
        raise ConfigurationError("this question is by a column. Leave that out of it, or leave --by out")
    entries = question.model_dump(mode="json") | {"by": HOSPITAL}
    return type(document).model_validate(document.model_dump(mode="json") | {"question": entries})


def _costs_of(client: Client, query: Query, as_json: bool) -> list[str]:
    """Return what a regression costs in all, once its last answer is there."""
    if as_json or query.answered is None or query.document.question.kind != "glm":
        return []
    return cost_lines(client, query) if is_result(query.answered.published.answer) else []


def _in_form_of(client: Client, study: str, document: QueryDocument) -> QueryDocument:
    """Return the question in the form that needs the least noise in this study, where its file leaves the form open."""
    from study_protocol.versions import PROTOCOL

    if document.in_form_for(PROTOCOL) is document:
        return document
    client.study(study)
    return document.in_form_for(client.spoken.study)


def _ask_and_verify(client: Client, study: str, document: QueryDocument, *, wait: bool) -> tuple[Query, str]:
    """Return the query, and a sentence about the key that verified its answer. An outage while it waits is waited out.

    Raises:
        ConnectionFailed: the coordinator cannot be reached, and has not said that it knows the question.
    """
    from client_sdk.api.answered import Answered
    from client_sdk.errors import ConnectionFailed

    reporter = _StateReporter(client)
    while True:
        try:
            # The same question again is the same query.
            result = client.ask(study, document, wait=wait, on_state=reporter)
            break
        except ConnectionFailed as error:
            if not reporter.last_state:
                raise
            say(f"{error}. The question stays asked, and costs nothing twice: waiting. Ctrl-C ends the wait", err=True)
            client.sleep(_OUTAGE_SECONDS)
    if not isinstance(result, Answered):
        return result, ""
    key_words = (
        "that you named" if result.pinned else "that the coordinator shows, which was not compared (--coordinator-key)"
    )
    return result.query, f"the answer's signature holds, by the key {key_words}"


class _StateReporter:
    """A callback that prints the state of a query whenever it changes, and once what a wait depends on."""

    def __init__(self, client: Client) -> None:
        self._client, self._explained, self.last_state = client, False, ""

    def __call__(self, query: Query) -> None:
        from study_protocol.study.query_words import state_in_words

        step = "" if query.place is None else f", step {query.place.step} of {query.place.steps}"
        state = f"query {query.number}{step}: {state_in_words(query)}"
        if state != self.last_state:
            self.last_state = state
            say(state, err=True)
        elif query.state == "waiting" and not self._explained:
            self._explained = True
            say(
                f"enrolled hospitals: {self._client.study(query.study).clients}. Each one answers while its "
                "`wardround join` runs, and where its policy asks a person, after `wardround query approve`",
                err=True,
            )


def _square_of(document: QueryDocument) -> float:
    """Return Σ (Δ/s)² of all steps."""
    return sum((cost.sensitivity / cost.noise_std) ** 2 for cost in document.costs())


def _plan(
    forecast: QueryForecast,
    document: QueryDocument,
    patients: int | None,
    as_json: bool,
    limits: Sequence[LimitStatement],
) -> None:
    from study_protocol.queries.expected import expected_errors

    expected = () if patients is None else expected_errors(document.question, patients, forecast.noise_expected)
    if as_json:
        print_json(
            forecast.model_dump(mode="json")
            | {"expected": [figure_error.model_dump(mode="json") for figure_error in expected]}
        )
        return
    say(document.question.in_words())
    errors = errors_of_counts(document, forecast.noise_expected)
    evaluates = document.question.bears == "evaluated"
    show_forecast(forecast, errors, limits, evaluates=evaluates, square=_square_of(document))
    if patients is not None:
        show_expected(expected, patients)
