"""The command `audit-log`: who asked the coordinator for which change, checked on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from wardround.cli.officer.verify import CoordinatorKey, fetch, named_key
from wardround.cli.shared.shared import KeyFile, Server, a_name_or_none, operator, plain_errors, say, table

if TYPE_CHECKING:
    from study_protocol.study.audit_log import AuditEntry

AnyStudy = Annotated[
    str | None,
    typer.Argument(
        help="name of the study. Without one: the coordinator's own log, as of its keys",
        callback=a_name_or_none,
    ),
]
JsonLines = Annotated[bool, typer.Option("--jsonl", help="print one JSON object a line, as the coordinator keeps it")]


def audit_log(
    study: AnyStudy = None,
    jsonl: JsonLines = False,
    coordinator_key: CoordinatorKey = None,
    server: Server = None,
    key_file: KeyFile = None,
) -> None:
    """Show who asked for which change, and check that no entry was changed or removed.

    A study's log needs the role auditor, lead or administrator, and the coordinator's own log an administrator. Exit
    code 1: something was changed in the database.
    """
    from client_sdk.study.audit_log import fetch_audit_log, fetch_coordinator_log

    with plain_errors(), operator(server, key_file) as client:
        # First: the ledger may grow meanwhile, and the entries that it names must be in the log.
        ledger = [] if study is None else fetch(client, study)[0]
        log, keys = fetch_coordinator_log(client) if study is None else (fetch_audit_log(client, study), [])
        trusted = named_key(coordinator_key, log.coordinator_key, needed=False)
        faults = log.faults(trusted.key, ledger, keys)
    if jsonl:
        for entry in log.entries:
            typer.echo(entry.model_dump_json())
    else:
        title, columns = f"audit log of {study or 'the coordinator'}", ["entry", "at", "who", "what"]
        table(title, columns, list(map(_row, log.entries)))
        if not faults:
            say(f"entries: {len(log.entries)}. The chain is good, and its head is signed with {trusted.reason}")
    for fault in faults:
        say(f"wardround: {fault}", err=True)
    if faults:
        raise typer.Exit(1)


def _row(entry: AuditEntry) -> list[str]:
    from study_protocol.study.audit_log import BEFORE_THE_LOG
    from study_protocol.study.roles import Grant

    event = entry.event
    before = event.action == BEFORE_THE_LOG
    actor_words = "nobody was recorded before this entry" if before else str(event.actor)
    key, about = event.key, event.address
    if key is not None:
        about = f"{key.id}: {Grant(key.role, key.study)} for {key.name}"
    action_words = "an upgrade began this log" if before else f"{event.action} {about}".rstrip()
    return [str(entry.sequence), f"{event.at:%Y-%m-%d %H:%M:%S}", actor_words, action_words]
