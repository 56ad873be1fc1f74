"""`wardround budget`: what is spent and what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from client_sdk.commands.shared import (
    AsJson,
    Home,
    KeyFile,
    Server,
    StudyName,
    number,
    plain_errors,
    print_json,
    reader,
    table,
)

if TYPE_CHECKING:
    from client_sdk.protocol.study.messages import BudgetStatement, LimitStatement


def budget(
    study: StudyName, server: Server = None, key_file: KeyFile = None, home: Home = None, as_json: AsJson = False
) -> None:
    """Print the budget of a study: the enforced numbers first, what each one means below."""
    with plain_errors():
        with reader(study, server, key_file, home) as client:
            statement = client.budget(study)
        if as_json:
            print_json(statement)
        else:
            show(statement)


def show(statement: BudgetStatement) -> None:
    """The table, and one sentence a certificate."""
    state = "may continue" if statement.can_continue else f"ended: {statement.stop_reason}"
    columns = ["level", "definition", "spent", "reserved", "remaining", "limit", "delta", "state", "enforced by"]
    table(f"{statement.study}, round {statement.round}: {state}", columns, [_row(limit) for limit in statement.limits])
    for limit in statement.limits:
        if limit.certificate is not None:
            typer.echo(f"{limit.level} {limit.definition}: {limit.certificate['assumption']}")
    typer.echo(f"ledger: {statement.ledger.entries} entries, head {statement.ledger.head}")


def _row(limit: LimitStatement) -> list[str]:
    if limit.state == "unbounded":
        return [limit.level, limit.definition, "unbounded", "", "", "", "", limit.state, "nothing protects this level"]
    return [
        limit.level,
        limit.definition,
        number(limit.spent),
        number(limit.reserved),
        number(limit.remaining, left=True),
        number(limit.epsilon),
        "" if limit.delta is None else f"{limit.delta:g}",
        limit.state,
        limit.enforced_by or "",
    ]
