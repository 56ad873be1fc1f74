"""The group `wardround witness`: sign a study's ledger as an auditor, and compare signed heads."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from client_sdk.api.config import load as load_settings
from client_sdk.guard.ledger_file import OF_AUDITOR, seen_in
from study_protocol.files.durable import write_durably
from wardround.cli.officer.verify import CoordinatorKey, named_key
from wardround.cli.shared.output import require_writable
from wardround.cli.shared.shared import Home, KeyFile, Server, StudyName, operator, plain_errors, say

if TYPE_CHECKING:
    from client_sdk.api.client import Client
    from client_sdk.guard.ledger import HospitalLedger
    from client_sdk.identity import Identity, Membership
    from study_protocol.study.messages import Study, WitnessedHead

Out = Annotated[Path | None, typer.Option("--output", "-o", help="file to write. Default: standard output")]
Dataset = Annotated[
    str | None, typer.Option("--dataset", help="data set of this hospital. Default: that of the auditor, or `records`")
]  # fmt: skip
HeadPath = Annotated[Path, typer.Argument(help="head that another hospital or auditor exported", dir_okay=False)]


def key(home: Home = None) -> None:
    """Print this auditor's public key for the study's settings. The first call creates the key."""
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
    """Check and store every new entry of a ledger, and sign its head. Exit code 4: it was forked or rewritten."""
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
            received_study = client.study(study)
            membership = _pinned(identity, client, received_study, coordinator_key)
            try:
                CoordinatorVerifier(client, membership, received_study.settings, ledger).statement(client.budget(study))
            except NotTrusted as error:
                evidence.keep(error, membership, ledger.seen_ledger(study).head.sequence)
                raise
            head = ledger.seen_ledger(study).head
            signed_head = LedgerHead(study=study, entries=head.sequence, sha256=head.sha256)
            client.put_outside_witness(study, sign_head(identity.key, membership.client, signed_head))
        say(f"{study}: entries 1 to {head.sequence} checked and signed as {membership.client}")


def export(study: StudyName, output: Out = None, dataset: Dataset = None, home: Home = None) -> None:
    """Write the newest ledger head that was seen here, signed, for others to compare. Works without a network."""
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
    """Compare an exported head with the ledger that was seen here. Exit code 4: it forks, and the proof is kept."""
    from client_sdk.errors import LedgerForked
    from client_sdk.study.evidence import Evidence
    from client_sdk.study.heads import compare_heads, read_head_file

    with plain_errors():
        directory, head_file = _directory(home), read_head_file(file.read_bytes())
        study, theirs = head_file.witness.head.study, head_file.witness.head.entries
        with _opened(directory, dataset) as (identity, ledger):
            membership, own_entries = identity.membership(study), ledger.seen_ledger(study).head.sequence
            try:
                outcome = compare_heads(membership, ledger, head_file)
            except LedgerForked as error:
                auditor = (dataset or seen_in(directory)) == OF_AUDITOR
                Evidence(directory / "evidence", study, auditor=auditor).keep(error, membership, own_entries)
                raise
        if outcome == "same":
            say(
                f"{study}: entry {theirs} is the same for {head_file.witness.client} and here. {own_entries} entries "
                "are seen here"
            )
            return
        _keep_ahead(directory, dataset, head_file.witness)
        say(
            f"{study}: {head_file.witness.client} was shown {theirs - own_entries} entries more than are seen here, "
            f"{theirs}. "
            "The head is stored, and compared when the ledger is that long. If that never happens, the coordinator "
            "holds entries back from here. Keep the file, too: the coordinator's signature is in it"
        )


def _directory(home: Path | None) -> Path:
    return home or load_settings().client_home


@contextmanager
def _opened(directory: Path, dataset: str | None, *, write: bool = False) -> Generator[tuple[Identity, HospitalLedger]]:
    """Yield this hospital's or auditor's identity, and the ledger file with the entries seen here."""
    from client_sdk.guard.ledger import HospitalLedger
    from client_sdk.guard.ledger_file import ledger_path
    from client_sdk.identity import Identity

    identity = Identity.open(directory)
    dataset_name = dataset or seen_in(directory)
    with HospitalLedger.open(ledger_path(directory, dataset_name), read_only=not write) as ledger:
        yield identity, ledger


def _keep_ahead(directory: Path, dataset: str | None, witness: WitnessedHead) -> None:
    """Store a head that is ahead of the ledger seen here. Raises LedgerInUse: `join` is running with this ledger."""
    with _opened(directory, dataset, write=True) as (_, ledger):
        ledger.seen_ledger(witness.head.study).keep_ahead(witness)


def _pinned(identity: Identity, client: Client, received_study: Study, coordinator_key: str | None) -> Membership:
    """Return this auditor's membership of the study: its name there, and the coordinator's key as a person named it.

    Raises:
        ConfigurationError: the settings name no witness with this key, or no key of the coordinator was named.
        LedgerNotExtended: the coordinator shows another key than the named one.
    """
    from client_sdk.errors import ConfigurationError
    from client_sdk.identity import Membership

    study = received_study.study
    if any(item.study == study for item in identity.memberships()):
        return identity.membership(study)
    names = [item.name for item in received_study.settings.schedule.witnesses if item.public_key == identity.public_key]
    if not names:
        raise ConfigurationError(
            f"the settings of {study} name no witness with the key {identity.public_key}: its lead sets "
            "schedule.witnesses before the study is created"
        )
    trusted, url = named_key(coordinator_key, received_study.coordinator_key, needed=True), client.connection.url
    membership = Membership(study=study, client=names[0], url=url, origin=url, coordinator_key=trusted.key)
    identity.remember(membership)
    return membership
