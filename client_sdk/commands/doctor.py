"""`wardround doctor`: why does it not work?"""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from client_sdk.api.config import load as load_settings
from client_sdk.commands.shared import AsJson, Home, Server, plain_errors, print_json, table

Dataset = Annotated[str, typer.Option(help="name of the records whose ledger is looked at")]


def doctor(server: Server = None, home: Home = None, dataset: Dataset = "records", as_json: AsJson = False) -> None:
    """Check the installation, address, proxy, TLS, clock, key file, disk, policy and ledger. Changes nothing."""
    from client_sdk.installation import clashes, remarks
    from client_sdk.study.diagnostics import Finding, examine

    wrong, noted = clashes(), remarks()
    verdict = "bad" if wrong else "note" if noted else "good"
    findings = [Finding("packages", verdict, "; ".join(wrong + noted) or "all are Wardround's own")]
    with plain_errors():
        findings += examine(load_settings(), server=server, home=home, dataset=dataset)
    if as_json:
        print_json([dataclasses.asdict(finding) for finding in findings])
    else:
        table("Doctor", ["", "check", "finding"], [[f.verdict, f.check, f.text] for f in findings])
    if any(finding.verdict == "bad" for finding in findings):
        raise typer.Exit(1)
