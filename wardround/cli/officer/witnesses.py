"""`wardround ledger seen`, and what `ledger verify` says of the hospitals that vouch for a ledger."""

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
    str | None,
    typer.Option("--dataset", help="as in join; left out: what this auditor saw, or the hospital with `records`"),
]
Fingerprint = Annotated[
    str | None, typer.Option("--roster", help="the roster's number in quotes, as a person at a hospital read it to you")
]
Colluders = Annotated[
    int | None, typer.Option(min=0, help="how many hospitals may sign for the coordinator; left out: as the study says")
]
EntryNumber = Annotated[int | None, typer.Option("--entry", min=1, help="this entry instead of the newest")]


def seen(
    study: StudyName,
    entry: EntryNumber = None,
    dataset: SeenIn = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Print the coordinator's ledger as it was seen here: to compare on the telephone. Works without a network."""
    from client_sdk.errors import ConfigurationError
    from client_sdk.guard.ledger import HospitalLedger
    from client_sdk.guard.ledger_file import ledger_path, seen_in

    with plain_errors():
        directory = home or load_settings().client_home
        chosen = dataset or seen_in(directory)
        with HospitalLedger.open(ledger_path(directory, chosen), read_only=True) as ledger:
            kept = ledger.seen_ledger(study)
            number = kept.head.sequence if entry is None else entry
            sha256 = kept.hash_of(number)
        if sha256 is None:
            which = f"entry {number}" if number else "entry"
            raise ConfigurationError(
                f"with data set {chosen} this hospital has seen no {which} of the ledger of {study}"
                f"{not_here(directory, chosen)}"
            )
    if as_json:
        print_json({"study": study, "entry": number, "sha256": sha256})
    else:
        # In groups, for whoever reads it out.
        typer.echo(f"{study}, entry {number}: {' '.join(sha256[i : i + 8] for i in range(0, 64, 8))}")


def evidence(
    study: Annotated[str | None, typer.Argument(help="the study; left out: all")] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Show the proofs against coordinators that this hospital keeps. Works without a network."""
    from client_sdk.study.evidence import proofs_in

    with plain_errors():
        directory = _evidence_of(home or load_settings().client_home)
        found = {name: kept for name, kept in proofs_in(directory).items() if study in (None, name)}
    if as_json:
        print_json(found)
        return
    if not found:
        say("no proof is kept here" if study is None else f"no proof about {study} is kept here")
        return
    rows = [
        [name, kept["at"], kept["code"], kept["said"], str(directory / f"{name}.json")] for name, kept in found.items()
    ]
    table("Proofs against coordinators", ["study", "kept at", "code", "what was found", "file"], rows)


def _evidence_of(directory: Path) -> Path:
    """Where proofs would lie. Raises ConfigurationError: nobody's directory, where no proof says nothing."""
    from client_sdk.errors import ConfigurationError

    if not (directory / "identity.key").exists() and not (directory / "evidence").exists():
        raise ConfigurationError(
            f"{directory} is no hospital's or auditor's directory: name it with --home or WARDROUND_CLIENT_HOME"
        )
    return directory / "evidence"


@dataclass(frozen=True)
class Witnesses:
    """Who vouches for a ledger.

    found      what each hospital has signed;  outside: each outside witness, who is no part of the agreement
    compared   the roster has the fingerprint that a person gave, or this hospital pinned it: its keys are the
               hospitals' own
    strangers  who is in the roster and not in the one that this hospital pinned; None: it pinned none, or none asks
    colluders  how many of them may sign whatever the coordinator wants
    outside    what the auditors whom the settings name have signed; whose their keys are, the operator says
    """

    found: Sequence[Voucher]
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
        """What the signatures say of these entries.

        fingerprint  of the roster, in digits or hex, from a person;  colluders: None takes the study's own number

        Raises:
            ConfigurationError: `fingerprint` is no whole one.
            RosterNotPinned: the roster has another one.
            LedgerForked: a member or an outside witness has signed another ledger.
        """
        from client_sdk.errors import RosterNotPinned
        from client_sdk.study.pinning import is_fingerprint, require_whole
        from client_sdk.study.verifier import active_fingerprint
        from client_sdk.study.vouching import agreement, outside_vouchers, vouchers

        if fingerprint is not None:
            require_whole(fingerprint)
            if not is_fingerprint(fingerprint, active_fingerprint(roster)):
                raise RosterNotPinned("the roster that is shown has another number than the one that you were told")
        found = vouchers(entries, roster.members, signed)
        outside = outside_vouchers(entries, _outside(entries[0]), signed)
        assumed = _colluders(entries[0]) if colluders is None else colluders
        compared = fingerprint is not None or (strangers is not None and not strangers)
        return cls(found, agreement(found, assumed), compared, assumed, strangers, outside)

    def to_json(self) -> dict[str, Any]:
        """What `ledger verify --json` says."""
        said = {
            "signed": _as_json(self.found),
            "outside": _as_json(self.outside),
            "needed": self.agreed.needed,
            "vouched": self.agreed.entries,
        }
        return said | {"colluders": self.colluders, "roster_compared": self.compared}

    def show(self) -> None:
        """The table, and what it means."""
        table("Which hospitals have signed this ledger", ["hospital", "up to entry", ""], _rows(self.found))
        if self.outside:
            table(
                "Which auditors have signed it, whom the operator named",
                ["auditor", "up to entry", ""],
                _rows(self.outside),
            )
        needed, of = self.agreed.needed, f"{len(self.found)} hospital{'s' * (len(self.found) != 1)}"
        lies = f"while at most {self.colluders} of them sign whatever the coordinator wants"
        if self.agreed.entries:
            last = self.agreed.entries
            typer.echo(f"entries 1 to {last} are what the hospitals saw: at least {needed} of {of} signed them, {lies}")
        elif needed > len(self.found):
            typer.echo(f"{of}: too few to confirm a ledger {lies}; it would take {needed}")
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


def _rows(found: Sequence[Voucher]) -> list[list[str]]:
    return [[one.client, str(one.entries) if one.entries else "-", one.reason] for one in found]


def _as_json(found: Sequence[Voucher]) -> list[dict[str, Any]]:
    return [{"client": one.client, "entries": one.entries, "why": one.reason or None} for one in found]


def _outside(opening: Entry) -> list[OutsideWitness]:
    from study_protocol.study.outside_witness import OutsideWitness

    named = opening.body["settings"]["schedule"].get("witnesses", [])
    return [OutsideWitness.model_validate(one) for one in named]


def _colluders(opening: Entry) -> int:
    masking = opening.body["settings"]["privacy"]["masking"]
    return 1 if masking is None else int(masking["colluders"])
