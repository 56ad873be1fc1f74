"""`wardround budget` and `ledger …`: what is spent, and the coordinator's ledger, fetched whole and checked here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    say,
    table,
)
from client_sdk.commands.witnesses import Colluders, Fingerprint, Witnesses
from client_sdk.durable import write_durably

if TYPE_CHECKING:
    from accounting.budget.ledger import Entry
    from client_sdk.api.client import Client
    from client_sdk.protocol.study.messages import BudgetStatement, LedgerPage, LimitStatement, SignedLedgerHead

app = typer.Typer(no_args_is_help=True, help="Check and export the ledger of a study.")
Out = Annotated[Path, typer.Option("--out", help="file to write, one JSON entry a line")]


def budget(
    study: StudyName, server: Server = None, key_file: KeyFile = None, home: Home = None, as_json: AsJson = False
) -> None:
    """Print the budget of a study: the enforced numbers first, what each one means below."""
    with plain_errors(), reader(study, server, key_file, home) as client:
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
            say(f"{limit.level} {limit.definition}: {limit.certificate['assumption']}")
    say(f"ledger: {statement.ledger.entries} entries, head {statement.ledger.head}")


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


@app.command()
def verify(
    study: StudyName,
    server: Server = None,
    key_file: KeyFile = None,
    home: Home = None,
    roster: Fingerprint = None,
    colluders: Colluders = None,
    as_json: AsJson = False,
) -> None:
    """Check the chain and the signed head, compute every ε again from the raw events, and say who vouches for them."""
    from accounting.budget.budget import replay
    from accounting.budget.ledger import LedgerError
    from client_sdk.errors import LedgerNotExtended

    with plain_errors(), reader(study, server, key_file, home) as client:
        # Asked first: the ledger may grow meanwhile, and what was shown must be somewhere inside it.
        shown = client.budget(study)
        entries, page = fetch(client, study)
        _require_signed(client, study, page.head)
        if not 0 < shown.ledger.entries <= len(entries):
            raise LedgerNotExtended("the budget that is shown stands on entries that the ledger does not have")
        try:
            found = replay(entries[: shown.ledger.entries]).statements()
        except LedgerError as error:
            raise LedgerNotExtended(str(error)) from error
        if entries[shown.ledger.entries - 1].sha256 != shown.ledger.head.removeprefix("sha256:"):
            raise LedgerNotExtended("the budget that is shown does not hang on this ledger")
        rows = _compare(found, [limit.model_dump(mode="json") for limit in shown.limits])
        if any(row["shown"] != row["recomputed"] for row in rows):
            raise LedgerNotExtended("the budget that is shown is not the one that the ledger gives")
        vouched = Witnesses.of(entries, client.roster(study), page.witnesses, roster, colluders)
    if as_json:
        shown_head = {"study": study, "entries": len(entries), "head": entries[-1].sha256}
        print_json(shown_head | {"limits": rows, "witnesses": vouched.to_json()})
        return
    cells = [[r["level"], r["definition"], number(r["shown"]), number(r["recomputed"])] for r in rows]
    title = f"{study}: {len(entries)} entries, chain and signature good"
    table(title, ["level", "definition", "shown", "recomputed"], cells)
    vouched.show()


@app.command()
def export(study: StudyName, out: Out, server: Server = None, key_file: KeyFile = None, home: Home = None) -> None:
    """Write the whole ledger to a file, checked on the way; the last line holds the head and who signed it."""
    with plain_errors(), reader(study, server, key_file, home) as client:
        entries, page = fetch(client, study)
        _require_signed(client, study, page.head)
        signed = {
            "head": page.head.model_dump(mode="json"),
            "coordinator_key": client.study(study).coordinator_key,
            "roster": client.roster(study).model_dump(mode="json"),
            "witnesses": [witness.model_dump(mode="json") for witness in page.witnesses],
        }
        told = [*(entry.to_dict() for entry in entries), signed]
        lines = [json.dumps(line, sort_keys=True, ensure_ascii=False) for line in told]
        write_durably(out, "".join(f"{line}\n" for line in lines).encode())
    say(f"{len(entries)} entries, head sha256:{entries[-1].sha256}")


def fetch(client: Client, study: str) -> tuple[list[Entry], LedgerPage]:
    """Every entry up to the head of the last page, which comes with them; the chain verified from the first.

    Raises:
        LedgerNotExtended: the chain is broken, empty, or does not lead to the head.
    """
    from accounting.budget.ledger import Entry, LedgerError, verify_chain
    from client_sdk.errors import LedgerNotExtended

    entries: list[Entry] = []
    try:
        while True:
            page = client.ledger(study, len(entries))
            entries += [Entry.from_dict(entry.model_dump(mode="json")) for entry in page.entries]
            # An empty page ends it too, else a head that is never reached would be asked for without end.
            if not page.entries or len(entries) >= page.head.head.entries:
                break
        reached = verify_chain(entries)
    except LedgerError as error:
        raise LedgerNotExtended(str(error)) from error
    if not entries or reached != (page.head.head.entries, page.head.head.sha256):
        raise LedgerNotExtended("the entries do not lead to the head that the coordinator signed")
    return entries, page


def _require_signed(client: Client, study: str, head: SignedLedgerHead) -> None:
    from client_sdk.errors import LedgerNotExtended
    from client_sdk.protocol.wire.signing import LEDGER_HEAD, SigningError, decode_public_key, verify_document

    key = client.study(study).coordinator_key
    try:
        verify_document(decode_public_key(key), LEDGER_HEAD, head.head.model_dump(mode="json"), head.signature)
    except SigningError as error:
        raise LedgerNotExtended("the ledger head is not signed by the coordinator") from error


def _compare(found: list[dict[str, Any]], shown: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    recomputed = {(limit["level"], limit["definition"]): limit["spent"] for limit in found}
    for limit in shown:
        level, definition = limit["level"], limit["definition"]
        again = recomputed.get((level, definition))
        rows.append({"level": level, "definition": definition, "shown": limit["spent"], "recomputed": again})
    return rows
