"""The group `wardround query`: show queries, approve or deny them at a hospital, and write question files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from study_protocol.wire.rounded import at_least
from wardround.cli.hospital.query_cost import cost_in_words
from wardround.cli.lead.ask import Columns, Csv, Noise, TableName, hand_out
from wardround.cli.shared.output import require_writable
from wardround.cli.shared.person_options import PersonOptions, with_person
from wardround.cli.shared.shared import (
    AsJson,
    Home,
    KeyFile,
    Server,
    StudyName,
    asks_with_key,
    hospital,
    plain_errors,
    print_json,
    reader,
    say,
    since,
    table,
)

if TYPE_CHECKING:
    from client_sdk.api.client import Client
    from study_protocol.study.queries import Query

Number = Annotated[int, typer.Argument(help="number of the query", min=1)]
Yes = Annotated[bool, typer.Option("--yes", help="approve without a question, if there is no terminal. Needs --digest")]
Digest = Annotated[
    str | None, typer.Option(help="digest of the question that you read: all 64 digits that `query show` prints")
]
TemplateName = Annotated[str, typer.Argument(help="kind of question, name of a ready question, or `columns`")]


def list_queries(
    study: StudyName, server: Server = None, key_file: KeyFile = None, home: Home = None, as_json: AsJson = False
) -> None:
    """List the queries of a study."""
    from client_sdk.api.pages import all_queries
    from study_protocol.study.query_words import state_in_words, title_of

    with plain_errors(), reader(study, server, key_file, home) as client:
        queries = all_queries(client, study)
    if as_json:
        print_json([listed_query.model_dump(mode="json") for listed_query in queries])
        return
    rows = [
        [
            str(listed_query.number),
            listed_query.document.question.kind,
            title_of(listed_query),
            state_in_words(listed_query),
            since(listed_query.created_at),
        ]
        for listed_query in queries
    ]
    table(f"Queries of {study}", ["number", "kind", "question", "state", "asked"], rows)


def show(
    study: StudyName,
    query: Number,
    csv_file: Csv = None,
    only: TableName = None,
    server: Server = None,
    key_file: KeyFile = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Show a query and its answer. At a hospital, also show the question in plain words and the local decision."""
    with plain_errors():
        require_writable(csv_file)
        with reader(study, server, key_file, home) as client:
            received_query = client.query(study, query)
            _require_believable(client, received_query, key_file, home)
            at_home = not as_json and not asks_with_key(server, key_file, home)
            if at_home:
                _say_words(client, home, received_query)
        hand_out(received_query, as_json, csv_file, only, words=not at_home)


@with_person
def approve(
    study: StudyName,
    query: Number,
    digest: Digest = None,
    home: Home = None,
    yes: Yes = False,
    *,
    person: PersonOptions,
) -> None:
    """Allow this hospital to answer a query. A running `wardround join` tells the coordinator."""
    from wardround.cli.hospital.decisions import require_digest

    with plain_errors():
        require_digest(digest, yes=yes)
    _decide(study, query, home, person, approved=True, yes=yes, read=digest)


@with_person
def deny(study: StudyName, query: Number, home: Home = None, *, person: PersonOptions) -> None:
    """Deny a query for this hospital."""
    _decide(study, query, home, person, approved=False, yes=True)


def _require_believable(client: Client, query: Query, key_file: Path | None, home: Path | None) -> None:
    """Require a valid signature. A hospital checks it with the pinned key.

    Raises:
        NotTrusted: the coordinator did not sign this answer to this question.
    """
    from client_sdk.errors import NotTrusted
    from study_protocol.wire.signing import SigningError, decode_public_key
    from wardround.cli.officer.verify import trust

    if query.answered is None:
        return
    key = trust(client, query.study, None, key_file, home, "records").key
    try:
        query.require_believable(decode_public_key(key))
    except SigningError as error:
        raise NotTrusted(f"query {query.number} of {query.study}: {error}") from error


def template(
    what: TemplateName,
    columns: Columns = None,
    noise: Noise = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="new file to write. Default: standard output")
    ] = None,
) -> None:
    """Write a question file in which every entry is described, from a kind or a ready question. Or a columns file."""
    from wardround.cli.lead.templates import hand_out as hand_out_text

    with plain_errors():
        require_writable(output)
        hand_out_text(_template(what, columns, noise), output)


def decided_here(home: Path | None, study: str, query: Query) -> str:
    """Return the decision at this hospital in words. A refusal by a rule overrides a person's approval."""
    from client_sdk.errors import PolicyRefused
    from client_sdk.guard.approvals import Approvals
    from client_sdk.guard.policy import SitePolicy
    from client_sdk.guard.query_rules import require_answerable

    directory = hospital(home).directory
    policy = SitePolicy.in_force(directory)
    try:
        # Only `join` knows the version of the records.
        require_answerable(policy, query.document, query.document.data_version)
    except PolicyRefused as refused:
        return f"{refused}. No approval changes that"
    return Approvals(directory, study, policy.approval).standing(query.approved_digest).in_words


def _template(name: str, columns: Path | None, noise: float | None) -> str:
    from client_sdk.errors import ConfigurationError
    from study_protocol.queries.ready import READY
    from wardround.cli.lead.query_template import COLUMNS, kinds
    from wardround.cli.lead.query_template import template as template_of
    from wardround.cli.lead.ready_questions import declared, ready_question

    if name == "columns":
        return COLUMNS
    if name in kinds() and columns is None:
        return template_of(kinds()[name])
    if name not in READY:
        raise ConfigurationError(
            f"no template {name!r}: kinds are {', '.join(sorted(kinds()))}. Ready questions, with --columns, are "
            f"{', '.join(READY)}. `columns` writes a columns file"
        )
    question = ready_question(name, declared(columns, None), 6.0 if noise is None else noise).question
    return template_of(
        kinds()[question.kind], question.model_dump(mode="json", exclude_defaults=True) | {"kind": question.kind}
    )


def _say_words(client: Client, home: Path | None, query: Query) -> None:
    """Print what a person has to know before deciding: first the words, then the numbers."""
    question = query.document.question
    say(question.in_words())
    say(f"about records of version {query.document.data_version}, columns: {', '.join(question.columns) or 'none'}")
    noise = f"noise of {question.noise_multiplier:.4g} times what one patient can change"
    say(f"{question.cells} numbers leave this hospital, with {noise}")
    for line in _steps_in_words(query):
        say(line)
    if query.model is not None:
        say(f"about model {query.model.version}, SHA-256 {query.model.sha256}. It is answered about no other model")
    for line in cost_in_words(client, hospital(home).directory, query):
        say(line)
    say(f"digest of this question: {query.approved_digest}")
    say(f"at this hospital: {decided_here(home, query.study, query)}")


def _steps_in_words(query: Query) -> list[str]:
    """Return what the approval of a question in steps allows, for people at a hospital. Empty for one of one step."""
    question = query.document.question
    if question.sums == 1:
        return []
    return [
        f"this is step {query.document.step} of {query.document.steps}. Each next step is asked by itself, and begins "
        "where the answers before it lead",
        f"one approval is for all steps. No step has less noise than {at_least(question.least_noise)} times what one "
        "patient can change, for any answers. The cost below is that of all steps still to come",
    ]


def _decide(
    study: str,
    query: int,
    home: Path | None,
    options: PersonOptions,
    *,
    approved: bool,
    yes: bool,
    read: str | None = None,
) -> None:
    """Store the decision of a person.

    read: digest of the question that the person has read. None: the question that is shown now.
    """
    from client_sdk.guard.decision import Subject
    from wardround.cli.hospital.decisions import require_read, show_standing

    with plain_errors():
        deciding_hospital = hospital(home)
        with deciding_hospital.client(study) as client:
            received_query = client.query(study, query)
            _say_words(client, home, received_query)
        subject = Subject.of_question(received_query)
        if approved:
            require_read(f"query {query} of {study}", subject.sha256, read, yes=yes, question="Answer it?")
        standing = deciding_hospital.decide(subject, "agree" if approved else "decline", options.acting())
        show_standing(standing, f"query {query} of {study}")
