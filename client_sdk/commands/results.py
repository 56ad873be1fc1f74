"""`wardround study list|rounds|model`: what has become of studies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from client_sdk.commands.shared import (
    AsJson,
    Home,
    KeyFile,
    Server,
    StudyName,
    number,
    operator,
    plain_errors,
    print_json,
    reader,
    table,
)

if TYPE_CHECKING:
    from client_sdk.protocol.study.messages import RoundList, RoundView, StudyList

P = TypeVar("P", bound="StudyList | RoundList")
Output = Annotated[Path, typer.Option("--output", "-o", help="file to write; one that exists is not overwritten")]
Round = Annotated[int | None, typer.Option("--round", help="the model that this round released; left out: the latest")]
Last = Annotated[int, typer.Option("--last", help="show this many rounds, the newest", min=1)]


def list_studies(server: Server = None, key_file: KeyFile = None, as_json: AsJson = False) -> None:
    """List every study of the coordinator; needs an operator's or a viewer's key."""
    with plain_errors(), operator(server, key_file) as client:
        found = [study for page in _pages(client.studies) for study in page.studies]
    if as_json:
        print_json([study.model_dump(mode="json") for study in found])
        return
    rows = [[s.study, s.title, s.stop_reason or s.state, str(s.rounds), str(s.clients)] for s in found]
    table("Studies", ["study", "title", "state", "rounds", "hospitals"], rows)


def rounds(
    study: StudyName,
    last: Last = 20,
    server: Server = None,
    key_file: KeyFile = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Show how the newest rounds ended, what was spent after each, and, to operators, who kept one from going on."""
    with plain_errors(), reader(study, server, key_file, home) as client:
        found = [one for page in _pages(partial(client.rounds, study)) for one in page.rounds][-last:]
    if as_json:
        print_json([one.model_dump(mode="json") for one in found])
        return
    table(f"Rounds of {study}", ["round", "state", "spent", "measured", "who is missing"], [_row(one) for one in found])


def model(
    study: StudyName,
    output: Output,
    round: Round = None,
    server: Server = None,
    key_file: KeyFile = None,
    home: Home = None,
) -> None:
    """Write a released model to a file, as safetensors."""
    with plain_errors(), reader(study, server, key_file, home) as client:
        if output.exists():
            raise FileExistsError(f"{output} exists already")
        body = client.model(study, "latest" if round is None else round)
        output.write_bytes(body)
        typer.echo(f"{output}: {len(body)} bytes")


def _pages(page: Callable[[str | None], P]) -> Iterator[P]:
    """All pages of a list, from the first."""
    found = page(None)
    yield found
    while found.next is not None:
        found = page(found.next)
        yield found


def _row(one: RoundView) -> list[str]:
    spent = ", ".join(f"{each.level} {each.definition} {number(each.spent)}" for each in one.spent or [])
    values = {} if one.metrics is None else one.metrics.values
    measured = ", ".join(f"{name} {value:.4f}" for name, value in values.items())
    missing = [
        f"{each.client}: {each.refusal.detail if each.refusal is not None else each.state}"
        for each in one.clients or []
        if each.state != "received"
    ]
    return [str(one.round), one.state if one.reason is None else one.reason, spent, measured, "\n".join(missing)]
