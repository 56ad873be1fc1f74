"""`wardround witness …`: sign a study's ledger as an auditor, and compare signed heads without the coordinator."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from client_sdk.api.config import load as load_settings
from client_sdk.guard.ledger_file import OF_AUDITOR, seen_in
from private_learning.durable import write_durably
from wardround.cli.officer.verify import CoordinatorKey, named_key
from wardround.cli.shared.output import require_writable
from wardround.cli.shared.shared import Home, KeyFile, Server, StudyName, operator, plain_errors, say

if TYPE_CHECKING:
    from client_sdk.api.client import Client
    from client_sdk.guard.ledger import HospitalLedger
    from client_sdk.identity import Identity, Membership
    from study_protocol.study.messages import Study, WitnessedHead

Out = Annotated[Path | None, typer.Option("--output", "-o", help="file to write; left out: print it")]
Dataset = Annotated[
    str | None, typer.Option("--dataset", help="records that this hospital takes part with; left out: as an auditor, "
                             "or with `records`")
]  # fmt: skip
HeadPath = Annotated[Path, typer.Argument(help="what somebody else exported", dir_okay=False)]


def key(home: Home = None) -> None:
    """Print this auditor's public key, for the study's settings; a new one is made the first time."""
    from client_sdk.identity import Identity

    with plain_errors():
        say(Identity.create(_directory(home)).public_key)


def sign(
    study: StudyName,
    coordinator_key: CoordinatorKey = None,
    server: Server = None,
    key_file: KeyFile = None,
    home: Home = None,
) -> None:
    """Check every new entry of the ledger, keep it, and sign its head; exit code 4 if it was forked or rewritten."""
    from client_sdk.errors import NotTrusted
    from client_sdk.study.evidence import Evidence
    from client_sdk.study.verifier import CoordinatorVerifier
    from study_protocol.study.messages import LedgerHead
    from study_protocol.study.witness import sign_head

    with plain_errors():
        directory = _directory(home)
        evidence = Evidence(directory / "evidence", study, auditor=True)
        evidence.require_none()
        with operator(server, key_file) as client, _opened(directory, OF_AUDITOR, write=True) as (identity, ledger):
            shown = client.study(study)
            membership = _pinned(identity, client, shown, coordinator_key)
            try:
                CoordinatorVerifier(client, membership, shown.settings, ledger).statement(client.budget(study))
            except NotTrusted as error:
                evidence.keep(error, membership, ledger.seen_ledger(study).head.sequence)
                raise
            head = ledger.seen_ledger(study).head
            named = LedgerHead(study=study, entries=head.sequence, sha256=head.sha256)
            client.put_outside_witness(study, sign_head(identity.key, membership.client, named))
        say(f"{study}: entries 1 to {head.sequence} checked and signed as {membership.client}")


def export(study: StudyName, output: Out = None, dataset: Dataset = None, home: Home = None) -> None:
    """Write the newest head of a study's ledger that was seen here, signed: for others to compare. Needs no network."""
    from client_sdk.study.heads import exported

    with plain_errors():
        require_writable(output, replaces=True)
        with _opened(_directory(home), dataset) as (identity, ledger):
            body = exported(identity, identity.membership(study), ledger).model_dump_json(indent=1)
        if output is None:
            say(body)
        else:
            write_durably(output, f"{body}\n".encode())


def compare(file: HeadPath, dataset: Dataset = None, home: Home = None) -> None:
    """Compare somebody's exported head with the ledger that was seen here; exit code 4 and a kept proof if it forks."""
    from client_sdk.errors import LedgerForked
    from client_sdk.study.evidence import Evidence
    from client_sdk.study.heads import compare_heads, read_head_file

    with plain_errors():
        directory, given = _directory(home), read_head_file(file.read_bytes())
        study, theirs = given.witness.head.study, given.witness.head.entries
        with _opened(directory, dataset) as (identity, ledger):
            membership, own = identity.membership(study), ledger.seen_ledger(study).head.sequence
            try:
                found = compare_heads(membership, ledger, given)
            except LedgerForked as error:
                auditor = (dataset or seen_in(directory)) == OF_AUDITOR
                Evidence(directory / "evidence", study, auditor=auditor).keep(error, membership, own)
                raise
        if found == "same":
            say(f"{study}: entry {theirs} is the same for {given.witness.client} and here; {own} entries are seen here")
            return
        _keep_ahead(directory, dataset, given.witness)
        say(
            f"{study}: {given.witness.client} was shown {theirs - own} entries more than are seen here, {theirs}. "
            "It is kept, and compared when the ledger comes so far. If it never does, heads are held back from here. "
            "Keep the file, too: the coordinator's signature is in it"
        )


def _directory(home: Path | None) -> Path:
    return home or load_settings().client_home


@contextmanager
def _opened(directory: Path, dataset: str | None, *, write: bool = False) -> Generator[tuple[Identity, HospitalLedger]]:
    """Who this is, and the file of what was seen here."""
    from client_sdk.guard.ledger import HospitalLedger
    from client_sdk.guard.ledger_file import ledger_path
    from client_sdk.identity import Identity

    identity = Identity.open(directory)
    chosen = dataset or seen_in(directory)
    with HospitalLedger.open(ledger_path(directory, chosen), read_only=not write) as ledger:
        yield identity, ledger


def _keep_ahead(directory: Path, dataset: str | None, witness: WitnessedHead) -> None:
    """Raises LedgerInUse: this hospital takes part just now."""
    with _opened(directory, dataset, write=True) as (_, ledger):
        ledger.seen_ledger(witness.head.study).keep_ahead(witness)


def _pinned(identity: Identity, client: Client, shown: Study, coordinator_key: str | None) -> Membership:
    """What this auditor keeps of the study: its own name there, and the coordinator's key as a person named it.

    Raises:
        ConfigurationError: the settings name no witness with this key, or no key of the coordinator was named.
        LedgerNotExtended: the coordinator shows another key than the one that was named.
    """
    from client_sdk.errors import ConfigurationError
    from client_sdk.identity import Membership

    study = shown.study
    if any(one.study == study for one in identity.memberships()):
        return identity.membership(study)
    names = [one.name for one in shown.settings.schedule.witnesses if one.public_key == identity.public_key]
    if not names:
        raise ConfigurationError(
            f"the settings of {study} name no witness with the key {identity.public_key}: its operator sets "
            "schedule.witnesses before the study is created"
        )
    trusted, url = named_key(coordinator_key, shown.coordinator_key, needed=True), client.connection.url
    membership = Membership(study=study, client=names[0], url=url, origin=url, coordinator_key=trusted.key)
    identity.remember(membership)
    return membership
