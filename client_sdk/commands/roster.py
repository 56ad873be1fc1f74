"""`wardround roster …`: who takes part, and the pin that keeps strangers out."""

from __future__ import annotations

from typing import Annotated

import typer

from client_sdk.commands.shared import (
    AsJson,
    Home,
    KeyFile,
    Server,
    StudyName,
    hospital,
    plain_errors,
    print_json,
    reader,
    table,
)

app = typer.Typer(no_args_is_help=True, help="Compare and pin the hospitals of a study.")
Fingerprint = Annotated[str, typer.Argument(help="the roster's fingerprint as the other hospitals read it to you")]


@app.command()
def show(
    study: StudyName, server: Server = None, key_file: KeyFile = None, home: Home = None, as_json: AsJson = False
) -> None:
    """Show the hospitals, their keys' fingerprints, and the fingerprint of all of them together."""
    from client_sdk.identity import active_fingerprint
    from client_sdk.protocol.wire.signing import decode_public_key, fingerprint

    with plain_errors():
        with reader(study, server, key_file, home) as client:
            roster = client.roster(study)
        if as_json:
            print_json(roster)
            return
        rows = [[m.client, m.state, fingerprint(decode_public_key(m.public_key))] for m in roster.members]
        table(f"Roster of {study}", ["hospital", "state", "key"], rows)
        typer.echo(f"roster fingerprint, computed here: {active_fingerprint(roster)}")


@app.command()
def pin(study: StudyName, fingerprint: Fingerprint, home: Home = None) -> None:
    """Pin the roster whose fingerprint you compared out of band. Hospitals that leave need no new pin."""
    from client_sdk.errors import RosterNotPinned
    from client_sdk.identity import active_fingerprint

    with plain_errors():
        here = hospital(home)
        with here.client(study) as client:
            roster = client.roster(study)
        if active_fingerprint(roster) != fingerprint.strip().lower():
            raise RosterNotPinned("the roster that the coordinator shows has another fingerprint: do not take part")
        active = tuple(member for member in roster.members if member.state == "active")
        here.identity.remember(here.identity.membership(study).model_copy(update={"pinned": active}))
        typer.echo(f"pinned: {', '.join(member.client for member in active)}")
