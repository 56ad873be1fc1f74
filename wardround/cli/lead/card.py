"""The command `wardround card`: write the card of a released model as Markdown or PDF."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from study_protocol.files.durable import write_durably
from wardround.cli.officer.certificate import Round, checked
from wardround.cli.shared.certificate_file import Fonts
from wardround.cli.shared.output import require_writable
from wardround.cli.shared.shared import Home, KeyFile, Server, StudyName, plain_errors, reader, say

if TYPE_CHECKING:
    from client_sdk.api.client import Client
    from study_protocol.documents.card import Notes
    from study_protocol.study.messages import Metrics

Output = Annotated[Path, typer.Option("--output", "-o", help="file to write, .md or .pdf")]
NotesFile = Annotated[
    Path | None,
    typer.Option(
        help="TOML file with your notes: intended_use, out_of_scope_use, contacts, factors, limitations, "
        "ethical_considerations, …"
    ),
]


def card(
    study: StudyName,
    output: Output,
    round_number: Round = None,
    notes: NotesFile = None,
    fonts: Fonts = None,
    server: Server = None,
    key_file: KeyFile = None,
    home: Home = None,
) -> None:
    """Write the card of a released model: its purpose, training, measurements and privacy, as Markdown or PDF."""
    from client_sdk.errors import ConfigurationError, LedgerNotExtended
    from study_protocol.documents.card import Card, Notes
    from study_protocol.documents.markdown import as_markdown
    from study_protocol.documents.pdf_content import card_pdf

    with plain_errors():
        if output.suffix not in (".md", ".pdf"):
            raise ConfigurationError(f"{output.suffix!r} is neither .md nor .pdf: end the file's name so")
        require_writable(output, replaces=True)
        written = Notes() if notes is None else read_notes(notes)
        with reader(study, server, key_file, home) as client:
            stated = checked(client, study, round_number, key_file, home)[0].certificate
            received_study = client.study(study)
            # The certificate is signed. Other answers of the coordinator are not.
            if received_study.settings.digest() != stated.settings_sha256:
                raise LedgerNotExtended("the settings that the coordinator shows are not those of its certificate")
            model_card = Card(received_study, stated, _measured(client, study, stated.round), written)
        body = as_markdown(model_card).encode() if output.suffix == ".md" else card_pdf(model_card, fonts)
        write_durably(output, body)
        say(f"{output}: {len(body)} bytes")


def read_notes(path: Path) -> Notes:
    """Return the notes in a TOML file.

    Raises:
        ConfigurationError: the file is not TOML, or has an entry that no card has.
        OSError: no such file.
    """
    from pydantic import ValidationError

    from client_sdk.errors import ConfigurationError
    from study_protocol.documents.card import Notes
    from study_protocol.wire.written import Unreadable, read_toml
    from study_protocol.wire.wrong_entries import wrong_entries

    try:
        return Notes.model_validate(read_toml(path.read_bytes()))
    except ValidationError as error:
        wrong = "\n".join(f"  {line}" for line in wrong_entries(error, Notes))
        raise ConfigurationError(f"{path} is no file of notes:\n{wrong}") from error
    except Unreadable as error:
        raise ConfigurationError(f"{path} is no TOML: {error}") from error


def _measured(client: Client, study: str, last: int) -> tuple[tuple[int, Metrics], ...]:
    """Return the measurements of this model and of those before it, as (round, metrics)."""
    from client_sdk.api.pages import all_rounds

    return tuple(
        (view.round, view.metrics)
        for view in all_rounds(client, study)
        if view.metrics is not None and view.round <= last
    )
