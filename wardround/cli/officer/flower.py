"""The command `wardround flower show`: what runs of Flower, or other trainings, have spent of one budget."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from wardround.cli.shared.shared import AsJson, number, plain_errors, print_json, say, table

Ledger = Annotated[
    Path, typer.Argument(help="file of a RunLedger, or a statement that --out wrote", show_default=False)
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="write the statement, with all entries, to this file")]


def show(ledger: Ledger, out: Out = None, as_json: AsJson = False) -> None:
    """Check a ledger of runs and print what each run spent. Works without a network."""
    from study_protocol.files.durable import write_durably
    from wardround.flower.statement import read_statement

    with plain_errors():
        statement = read_statement(ledger)
        if out is not None:
            text = json.dumps(statement, indent=2, ensure_ascii=False) + "\n"
            write_durably(out, text.encode(), mode=0o644)
    if as_json:
        print_json(statement)
        return
    limit, head = statement["limit"], statement["head"]
    rows = [
        [name, *(str(run[column]) for column in ("releases", "settled", "steps"))]
        for name, run in statement["runs"].items()
    ]
    table("runs", ["run", "charged", "settled", "noised steps"], rows)
    say(
        f"ε = {number(statement['epsilon'])} of {limit['epsilon']:g} at δ = {limit['delta']:g} is spent, level "
        f"{limit['level']}. The unit is {statement['unit']}"
    )
    say(f"assumed: {statement['assumes']}")
    say(f"not shown: {statement['not_shown']}")
    say(f"all {head['sequence']} entries follow from one another. Head: {head['sha256']}")
