"""The command `wardround ledger seen`, and the witnesses that `ledger verify` reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from client_sdk.api.config import load as load_settings
from wardround.cli.shared.shared import AsJson, Home, StudyName, not_here, plain_errors, print_json, say, table

if TYPE_CHECKING:
    from pathlib import Path

    from accounting.budget.ledger import Entry
    from client_sdk.study.vouching import HeadAgreement, Voucher
    from study_protocol.study.messages import Roster, WitnessedHead
    from study_protocol.study.outside_witness import OutsideWitness

Dataset = Annotated[str, typer.Option("--dataset", help="name of the records that this hospital takes part with")]
SeenIn = Annotated[
    str | None, typer.Option("--dataset", help="data set, as in `join`. Default: that of the auditor, or `records`")
]
Fingerprint = Annotated[
    str | None,
    typer.Option("--roster", help="number of the roster in quotes, as a person at a hospital read it to you"),
]
Colluders = Annotated[
    int | None,
    typer.Option(min=0, help="number of hospitals that may sign for the coordinator. Default: as the study says"),
]
EntryNumber = Annotated[int | None, typer.Option("--entry", min=1, help="show this entry instead of the newest")]


def seen(
    study: StudyName, entry: EntryNumber = None, dataset: SeenIn = None, home: Home = None, as_json: AsJson = False
) -> None:
    """Print the hash of the newest ledger entry seen here, to compare by telephone. Works without a network."""
    from client_sdk.errors import ConfigurationError
    from client_sdk.guard.ledger import HospitalLedger
    from client_sdk.guard.ledger_file import ledger_path, seen_in

    with plain_errors():
        directory = home or load_settings().client_home
        dataset_name = dataset or seen_in(directory)
        with HospitalLedger.open(ledger_path(directory, dataset_name), read_only=True) as ledger:
            ledger_view = ledger.seen_ledger(study)
            number = ledger_view.head.sequence if entry is None else entry
            sha256 = ledger_view.hash_of(number)
        if sha256 is None:
            entry_words = f"entry {number}" if number else "entry"
            raise ConfigurationError(
                f"with data set {dataset_name} this hospital has seen no {entry_words} of the ledger of {study}"
                f"{not_here(directory, dataset_name)}"
            )
    if as_json:
        print_json({"study": study, "entry": number, "sha256": sha256})
    else:
        # In groups, for reading it out.
        typer.echo(f"{study}, entry {number}: {' '.join(sha256[i : i + 8] for i in range(0, 64, 8))}")


def evidence(
    study: Annotated[str | None, typer.Argument(help="name of the study. Default: all studies")] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Show the stored proofs against coordinators. Works without a network."""
    from client_sdk.study.evidence import proofs_in

    with plain_errors():
        directory = _evidence_of(home or load_settings().client_home)
        proofs = {name: proof for name, proof in proofs_in(directory).items() if study in (None, name)}
    if as_json:
        print_json(proofs)
        return
    if not proofs:
        say("no proof is kept here" if study is None else f"no proof about {study} is kept here")
        return
    rows = [
        [name, proof["at"], proof["code"], proof["said"], str(directory / f"{name}.json")]
        for name, proof in proofs.items()
    ]
    table("Proofs against coordinators", ["study", "kept at", "code", "what was found", "file"], rows)


def _evidence_of(directory: Path) -> Path:
    """Return the folder of the proofs.

    Raises:
        ConfigurationError: the directory belongs to no hospital or auditor, so that an empty list would mislead.
    """
    from client_sdk.errors import ConfigurationError

    if not (directory / "identity.key").exists() and not (directory / "evidence").exists():
        raise ConfigurationError(
            f"{directory} is no hospital's or auditor's directory: name it with --home or WARDROUND_CLIENT_HOME"
        )
    return directory / "evidence"


@dataclass(frozen=True)
class Witnesses:
    """The hospitals and auditors that vouch for a ledger.

    hospitals  the signatures of the hospitals
    agreed     the entries that enough hospitals have signed
    compared   the roster has the fingerprint that a person gave, or this hospital pinned it. Then its keys are the
               hospitals' own
    colluders  the number of hospitals that may sign any ledger for the coordinator
    strangers  members of the roster that are not in the pinned one. None: no hospital asks, or it pinned none
    outside    the signatures of the auditors that the settings name. They are no part of the agreement, and the
               lead states their keys
    """

    hospitals: Sequence[Voucher]
    agreed: HeadAgreement
    compared: bool
    colluders: int
    strangers: Sequence[str] | None = None
    outside: Sequence[Voucher] = ()

    @classmethod
    def of(
        cls,
        entries: Sequence[Entry],
        roster: Roster,
        signed: Sequence[WitnessedHead],
        fingerprint: str | None,
        colluders: int | None,
        strangers: Sequence[str] | None = None,
    ) -> Witnesses:
        """Return what the signatures say about these entries.

        fingerprint  of the roster, in digits or hex, from a person
        colluders    None: the study's own number

        Raises:
            ConfigurationError: `fingerprint` is not complete.
            RosterNotPinned: the roster has another fingerprint.
            LedgerForked: a member or an outside witness has signed another ledger.
        """
        from client_sdk.errors import RosterNotPinned
        from client_sdk.study.pinning import is_fingerprint, require_whole
        from client_sdk.study.verifier import active_fingerprint
        from client_sdk.study.vouching import agreement, outside_vouchers, vouchers

        if fingerprint is not None:
            require_whole(fingerprint)
            if not is_fingerprint(fingerprint, active_fingerprint(roster)):
                raise RosterNotPinned("the roster that is shown has another number than the one that you named")
        hospital_vouchers = vouchers(entries, roster.members, signed)
        outside = outside_vouchers(entries, _outside(entries[0]), signed)
        assumed = _colluders(entries[0]) if colluders is None else colluders
        compared = fingerprint is not None or (strangers is not None and not strangers)
        return cls(hospital_vouchers, agreement(hospital_vouchers, assumed), compared, assumed, strangers, outside)

    def to_json(self) -> dict[str, Any]:
        """Return the witnesses as `ledger verify --json` prints them."""
        signatures = {
            "signed": _as_json(self.hospitals),
            "outside": _as_json(self.outside),
            "needed": self.agreed.needed,
            "vouched": self.agreed.entries,
        }
        return signatures | {"colluders": self.colluders, "roster_compared": self.compared}

    def show(self) -> None:
        """Print the table of witnesses, and its meaning."""
        table("Hospitals that have signed this ledger", ["hospital", "up to entry", ""], _rows(self.hospitals))
        if self.outside:
            table(
                "Auditors named by the lead that have signed it",
                ["auditor", "up to entry", ""],
                _rows(self.outside),
            )
        needed, of = self.agreed.needed, f"{len(self.hospitals)} hospital{'s' * (len(self.hospitals) != 1)}"
        lies = f"while at most {self.colluders} of them sign any ledger for the coordinator"
        if self.agreed.entries:
            last = self.agreed.entries
            typer.echo(f"entries 1 to {last} are what the hospitals saw: at least {needed} of {of} signed them, {lies}")
        elif needed > len(self.hospitals):
            typer.echo(f"{of}: too few to confirm a ledger {lies}. It would take {needed}")
        else:
            typer.echo(f"no entry is signed by the {needed} of {of} that it takes {lies}: they may have seen others")
        if self.compared:
            typer.echo("the keys are those of the roster that was compared")
        elif self.strangers:
            say(f"{', '.join(self.strangers)}: not in the roster that this hospital pinned, or with another key")
        else:
            typer.echo(
                "the keys are those that the coordinator shows: ask a hospital for the number that `wardround roster "
                'show` prints there, and compare with --roster "NUMBER"'
            )


def _rows(vouchers: Sequence[Voucher]) -> list[list[str]]:
    return [[voucher.client, str(voucher.entries) if voucher.entries else "-", voucher.reason] for voucher in vouchers]


def _as_json(vouchers: Sequence[Voucher]) -> list[dict[str, Any]]:
    return [
        {"client": voucher.client, "entries": voucher.entries, "why": voucher.reason or None} for voucher in vouchers
    ]


def _outside(opening: Entry) -> list[OutsideWitness]:
    from study_protocol.study.outside_witness import OutsideWitness

    declared = opening.body["settings"]["schedule"].get("witnesses", [])
    return [OutsideWitness.model_validate(value) for value in declared]


def _colluders(opening: Entry) -> int:
    masking = opening.body["settings"]["privacy"]["masking"]
    return 1 if masking is None else int(masking["colluders"])
