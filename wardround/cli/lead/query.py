"""`wardround query …`: see what is asked about patients; at a hospital, allow it or not; write a question's file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wardround.cli.lead.ask import Columns, Csv, Noise, TableName, hand_out
from wardround.cli.shared.output import require_writable
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
Yes = Annotated[bool, typer.Option("--yes", help="without asking, where there is no terminal; needs --digest")]
Digest = Annotated[
    str | None,
    typer.Option(help="of the question that you read, all 64 digits as `query show` prints them"),
]
What = Annotated[str, typer.Argument(help="a kind of question, a ready one, or `columns`")]


def list_queries(
    study: StudyName, server: Server = None, key_file: KeyFile = None, home: Home = None, as_json: AsJson = False
) -> None:
    """List the queries of a study."""
    from client_sdk.api.pages import all_queries
    from study_protocol.study.query_words import state_in_words, title_of

    with plain_errors(), reader(study, server, key_file, home) as client:
        found = all_queries(client, study)
    if as_json:
        print_json([one.model_dump(mode="json") for one in found])
        return
    rows = [
        [str(one.number), one.document.question.kind, title_of(one), state_in_words(one), since(one.created_at)]
        for one in found
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
    """Show a query and its answer. At a hospital: what is asked in plain words, and what was decided here."""
    with plain_errors():
        require_writable(csv_file)
        with reader(study, server, key_file, home) as client:
            found = client.query(study, query)
            _require_believable(client, found, key_file, home)
        at_home = not as_json and not asks_with_key(key_file, home)
        if at_home:
            _say_words(found, decided_here(home, study, found))
        hand_out(found, as_json, csv_file, only, words=not at_home)


def approve(study: StudyName, query: Number, digest: Digest = None, home: Home = None, yes: Yes = False) -> None:
    """Allow this hospital to answer a query. `wardround join`, where it runs, tells the coordinator."""
    with plain_errors():
        _require_digest(digest, yes)
    _decide(study, query, home, approved=True, yes=yes, read=digest)


def deny(study: StudyName, query: Number, home: Home = None) -> None:
    """Say no to a query for this hospital."""
    _decide(study, query, home, approved=False, yes=True)


def _require_believable(client: Client, found: Query, key_file: Path | None, home: Path | None) -> None:
    """Raises NotTrusted: the answer is not the coordinator's to this question. At a hospital its key is pinned."""
    from client_sdk.errors import NotTrusted
    from study_protocol.wire.signing import SigningError, decode_public_key
    from wardround.cli.officer.verify import trust

    if found.answered is None:
        return
    key = trust(client, found.study, None, key_file, home, "records").key
    try:
        found.require_believable(decode_public_key(key))
    except SigningError as error:
        raise NotTrusted(f"query {found.number} of {found.study}: {error}") from error


def template(
    what: What,
    columns: Columns = None,
    noise: Noise = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="file to write, not overwritten; left out: standard output")
    ] = None,
) -> None:
    """Print a question file of a kind, every entry described; a ready question, to change it; or a columns file."""
    from wardround.cli.lead.templates import hand_out as hand_out_text

    with plain_errors():
        require_writable(output)
        hand_out_text(_template(what, columns, noise), output)


def decided_here(home: Path | None, study: str, query: Query) -> str:
    """What is decided at this hospital, in words: a rule's no stands above a person's yes."""
    from client_sdk.errors import PolicyRefused
    from client_sdk.guard.approvals import Approvals
    from client_sdk.guard.policy import SitePolicy
    from client_sdk.guard.query_rules import require_answerable

    directory = hospital(home).directory
    try:
        # Which version the records are is said to join alone.
        require_answerable(SitePolicy.in_force(directory), query.document, query.document.data_version)
    except PolicyRefused as refused:
        return f"{refused}. No approval changes that"
    approvals = Approvals(directory / "outbox" / study)
    if approvals.has(query.approved_digest):
        return "approved here"
    return "denied here" if approvals.denied(query.approved_digest) else "nobody here has decided"


def _template(what: str, columns: Path | None, noise: float | None) -> str:
    from client_sdk.errors import ConfigurationError
    from study_protocol.queries.ready import READY
    from wardround.cli.lead.query_template import COLUMNS, kinds
    from wardround.cli.lead.query_template import template as template_of
    from wardround.cli.lead.ready_questions import declared, ready_question

    if what == "columns":
        return COLUMNS
    if what in kinds() and columns is None:
        return template_of(kinds()[what])
    if what not in READY:
        raise ConfigurationError(
            f"no template {what!r}: kinds are {', '.join(sorted(kinds()))}; ready questions, with --columns, are "
            f"{', '.join(READY)}; and columns"
        )
    asked = ready_question(what, declared(columns, None), 6.0 if noise is None else noise).question
    return template_of(kinds()[asked.kind], asked.model_dump(mode="json", exclude_defaults=True) | {"kind": asked.kind})


def _say_words(query: Query, decided: str) -> None:
    """What a person has to know before deciding: the words first, then the numbers."""
    question = query.document.question
    say(question.in_words())
    say(f"about records of version {query.document.data_version}; columns: {', '.join(question.columns) or 'none'}")
    noise = f"noise of {question.noise_multiplier:g} times what one patient can change"
    say(f"{question.cells} numbers leave this hospital, with {noise}")
    if query.model is not None:
        say(f"about model {query.model.version}, SHA-256 {query.model.sha256}: about no other is it answered")
    say(f"digest of this question: {query.approved_digest}")
    say(f"at this hospital: {decided}")


def _require_digest(digest: str | None, yes: bool) -> None:
    """Raises ConfigurationError: it is none, or it lacks where no person sees which question is approved."""
    from client_sdk.errors import ConfigurationError

    if digest is None and yes:
        raise ConfigurationError(
            "--yes approves without showing anything first: say which question you read with --digest, as `wardround "
            "query show` prints it"
        )
    # Of two questions that somebody made for it, the digests can begin alike.
    if digest is not None and re.fullmatch("[0-9a-f]{64}", digest) is None:
        raise ConfigurationError("--digest takes all 64 digits 0 to 9 and a to f, as `wardround query show` prints")


def _decide(study: str, query: int, home: Path | None, *, approved: bool, yes: bool, read: str | None = None) -> None:
    """read: digest of the question that a person has read; None: whichever is shown now."""
    from client_sdk.errors import ConfigurationError, NotAgreed
    from client_sdk.guard.approvals import Approvals
    from wardround.cli.hospital.agreement import at_a_terminal

    with plain_errors():
        here = hospital(home)
        with here.client(study) as client:
            found = client.query(study, query)
        digest = found.approved_digest
        _say_words(found, decided_here(home, study, found))
        if read is not None and digest != read:
            raise NotAgreed(
                f"query {query} of {study} is another question than the one that you read: its digest is {digest}. "
                "Nothing was written or sent"
            )
        if not yes and not at_a_terminal():
            raise ConfigurationError(
                "nobody can be asked here, because there is no terminal: read the question (wardround query show), "
                "then add --yes and --digest with what it prints"
            )
        if not yes and not typer.confirm("Answer it?", default=False, err=True):
            raise NotAgreed("not approved: nothing was written or sent")
        words = found.document.question.in_words()
        Approvals(here.directory / "outbox" / study).decide(digest, approved=approved, words=words)
        say(f"query {query} of {study}: {'approved' if approved else 'denied'} for this hospital")
