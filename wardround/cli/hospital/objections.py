"""The group `wardround objection`: leave patients out who objected, list the objections, and write the letters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from client_sdk.api.config import load as load_settings
from study_protocol.files.durable import write_durably
from study_protocol.files.private import make_private_folder
from wardround.cli.hospital.hospital import (
    Dataset,
    Dates,
    Decimal,
    Encoding,
    PatientColumn,
    PolicyFile,
    Separator,
    policy_in_force,
)
from wardround.cli.hospital.named_records import named_records
from wardround.cli.hospital.table_format import FormatOptions, read_records, stored_format
from wardround.cli.shared.certificate_file import Fonts, opened
from wardround.cli.shared.output import require_writable
from wardround.cli.shared.person_options import PersonOptions, with_person
from wardround.cli.shared.shared import AsJson, Home, plain_errors, print_json, say, table

if TYPE_CHECKING:
    from client_sdk.guard.objections import Objection
    from client_sdk.guard.policy import SitePolicy
    from client_sdk.study.objecting import TakenObjection
    from private_learning.records import Records
    from study_protocol.documents.sectioned import SectionedDocument

Identifier = Annotated[
    str | None,
    typer.Argument(metavar="ID", help="the patient's identifier, as the records write it, or - to read it from a line"),
]
IdentifierFile = Annotated[
    Path | None, typer.Option("--file", help="file with one identifier on each line, for several patients")
]
DataFile = Annotated[
    Path | None,
    typer.Option("--data", help="records, or the name of a snapshot: the letter says whether they hold the patient"),
]
Certificates = Annotated[
    list[Path],
    typer.Option("--certificate", help="certificate of a study, JSON. Its bound goes into the letter. Repeatable"),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", help="letter to write, .md or .pdf, or a folder. Default: letters in the hospital's directory"
    ),
]
Form = Annotated[Literal["md", "pdf"], typer.Option("--format", help="of letters in a folder: Markdown or PDF")]
_FOLDER = "letters"


@with_person
def add(
    identifier: Identifier = None,
    file: IdentifierFile = None,
    data: DataFile = None,
    patient_column: PatientColumn = None,
    separator: Separator = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    dates: Dates = None,
    dataset: Dataset = "records",
    certificate: Certificates = [],  # noqa: B006 (typer reads the default and copies it)
    output: Output = None,
    form: Form = "md",
    fonts: Fonts = None,
    policy: PolicyFile = None,
    home: Home = None,
    as_json: AsJson = False,
    *,
    person: PersonOptions,
) -> None:
    """Leave a patient out from the next round on, record that the patient objected, and write the letter.

    A running `join` takes the list over at its next round. Models and answers that were released before do not change.
    The letter says in which rounds the patient may have been, and what these reveal at most. It has no identifier.
    """
    from client_sdk.study.objecting import take_objections

    with plain_errors():
        directory = home or load_settings().client_home
        rules = policy_in_force(policy, directory)
        # All that can be wrong is found before anything is recorded.
        identities = _identities(identifier, file)
        _require_output(output, patients=len(identities))
        records = _records(data, patient_column, FormatOptions(separator, encoding, decimal, dates), directory, dataset)
        if not directory.is_dir():
            say(f"{directory} is new: no hospital has enrolled in it yet (--home names another directory)", err=True)
        objections = take_objections(directory, rules, identities, person.acting())
        # Before the letters: the patients are left out, whatever comes of these.
        if not as_json:
            _show_taken(objections, rules)
        by_number = _Letters(directory, rules, certificate, records, output, form, fonts).written_for(identities)
        if as_json:
            print_json([_as_json(each, by_number[each.objection.number]) for each in objections])
            return
        _show_letters(by_number.values())


def letter(
    identifier: Annotated[str, typer.Argument(metavar="ID", help="the patient's identifier, or - to read it")],
    data: DataFile = None,
    patient_column: PatientColumn = None,
    separator: Separator = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    dates: Dates = None,
    dataset: Dataset = "records",
    certificate: Certificates = [],  # noqa: B006 (typer reads the default and copies it)
    output: Output = None,
    form: Form = "md",
    fonts: Fonts = None,
    policy: PolicyFile = None,
    home: Home = None,
) -> None:
    """Write the letter on a recorded objection again, for example with a study's final certificate."""
    with plain_errors():
        directory = home or load_settings().client_home
        rules = policy_in_force(policy, directory)
        identities = _identities(identifier, None)
        _require_output(output, patients=1)
        records = _records(data, patient_column, FormatOptions(separator, encoding, decimal, dates), directory, dataset)
        letters = _Letters(directory, rules, certificate, records, output, form, fonts)
        _show_letters(letters.written_for(identities).values())


def list_objections(policy: PolicyFile = None, home: Home = None, as_json: AsJson = False) -> None:
    """List the recorded objections by number, and whether the list still names the patient. It has no identifier."""
    from client_sdk.guard.objections import OBJECTIONS_LEDGER, ObjectionLedger

    with plain_errors():
        directory = home or load_settings().client_home
        rules = policy_in_force(policy, directory)
        objections: list[Objection] = []
        listed: set[str] = set()
        if (directory / OBJECTIONS_LEDGER).exists():
            with ObjectionLedger.open(directory / OBJECTIONS_LEDGER, read_only=True) as ledger:
                objections, listed = ledger.objections(), ledger.listed(rules.exclusions)
        if as_json:
            print_json([_facts(each) | {"listed": each.digest in listed} for each in objections])
            return
        rows = [
            [
                str(each.number),
                each.at[:16].replace("T", " "),
                str(each.person),
                each.person.reason,
                "yes" if each.digest in listed else "NO",
            ]
            for each in objections
        ]
        if rows:
            table("Objections", ["number", "UTC", "recorded by", "reason", "on the list"], rows)
        else:
            say("no objection is recorded here")
        if (lost := sum(each.digest not in listed for each in objections)) > 0:
            say(
                f"warning: {lost} of these patients are not on the list any more, and studies read their records",
                err=True,
            )


@dataclass(frozen=True)
class _Letters:
    """The way in which letters are written."""

    home: Path
    rules: SitePolicy
    certificates: Sequence[Path]
    records: tuple[Records, str] | None
    output: Path | None
    form: str
    fonts: Path | None

    def written_for(self, identities: Sequence[str]) -> dict[int, Path]:
        """Write the letter of each patient. Return the files by the numbers of the objections."""
        from client_sdk.guard.objections import objection_of
        from client_sdk.study.objection_facts import NOT_LOOKED_UP, letter_of, presence_in

        documents = [opened(path.read_bytes(), str(path)) for path in self.certificates]
        paths: dict[int, Path] = {}
        for identity in identities:
            objection = objection_of(self.home, identity, self.rules.current().exclusions)
            presence = (
                NOT_LOOKED_UP if self.records is None else presence_in(self.records[0], identity, self.records[1])
            )
            content = letter_of(self.home, objection, self.rules, documents, presence, datetime.now(UTC))
            path = self._path(objection.number)
            write_durably(path, document_bytes(content.document(), path, self.fonts))
            paths[objection.number] = path
        return paths

    def _path(self, number: int) -> Path:
        if self.output is not None and not self.output.is_dir():
            return self.output
        folder = self.output or self.home / _FOLDER
        make_private_folder(folder)
        return folder / f"objection-{number}.{self.form}"


def document_bytes(report: SectionedDocument, path: Path, fonts: Path | None) -> bytes:
    """Return a document in the form that the file's name asks for."""
    return report.to_pdf(fonts) if path.suffix.lower() == ".pdf" else report.to_markdown().encode()


def _identities(identifier: str | None, file: Path | None) -> list[str]:
    """Return the patients whom a person names, each once.

    Raises:
        ConfigurationError: none is named, both ways are used, or one is no identifier. It is named by its line alone.
    """
    from client_sdk.errors import ConfigurationError
    from client_sdk.guard.exclusion import read_exclusion_file
    from client_sdk.guard.exclusion_file import identity_of

    if (identifier is None) == (file is None):
        raise ConfigurationError("name one patient, or several with --file")
    if file is not None:
        identities = [entry.identity for entry in read_exclusion_file(file, f"the file {file}")]
        if not identities:
            raise ConfigurationError(f"the file {file} names no patient")
        return list(dict.fromkeys(identities))
    # What is typed behind a command stands in the history of the shell and in the list of processes.
    text = typer.get_text_stream("stdin").readline() if identifier == "-" else identifier
    return [identity_of(text or "")]


def _require_output(output: Path | None, *, patients: int) -> None:
    """Require that letters can be written there, before anything is recorded. Raises ConfigurationError, OSError."""
    from client_sdk.errors import ConfigurationError

    if output is None or output.is_dir():
        return
    if output.suffix.lower() not in (".md", ".pdf"):
        raise ConfigurationError(f"{output} ends with neither .md nor .pdf, and is no folder")
    if patients > 1:
        raise ConfigurationError(f"{output}: there is a letter for each patient. Name a folder that is there")
    require_writable(output, replaces=True)


def _records(
    data: Path | None, patient_column: str | None, options: FormatOptions, home: Path, dataset: str
) -> tuple[Records, str] | None:
    """Return the records and what the letter calls them. None: no records are named."""
    if data is None:
        return None
    from private_learning.records import load

    source, declared = named_records(data, patient_column, home), stored_format(home, dataset)
    if declared is None:
        return read_records(source.path, options, patient_column=source.patient_column), data.name
    options.require_fit(declared)
    return load(source.path, declared, patient_column=source.patient_column), data.name


def _show_taken(objections: Sequence[TakenObjection], rules: SitePolicy) -> None:
    for each in objections:
        since = each.objection.since[:16].replace("T", " ")
        if not each.is_new:
            relisted = "" if each.was_listed else ". The patient was not on the list any more, and is again"
            say(f"objection {each.objection.number}: recorded since {since} UTC{relisted}")
            continue
        listed = "The list named the patient before" if each.was_listed else "The patient is on the list now"
        say(f"objection {each.objection.number}: recorded {since} UTC. {listed}: left out from the next round on")
    if rules.approval.people > 1 and any(not each.was_listed for each in objections):
        say(
            "the list is a part of the site policy, which people here agree to together. A running `join` goes on. "
            "Before its next start run `wardround policy agree`",
            err=True,
        )


def _show_letters(paths: Iterable[Path]) -> None:
    for path in paths:
        say(f"letter: {path}. Fill in what is marked as yours")


def _facts(objection: Objection) -> dict[str, object]:
    person = objection.person.to_dict()
    return {
        "number": objection.number,
        "at": objection.at,
        "since": objection.since,
        "person": person,
        "digest": objection.digest,
    }


def _as_json(objection: TakenObjection, path: Path) -> dict[str, object]:
    return _facts(objection.objection) | {
        "new": objection.is_new,
        "was_listed": objection.was_listed,
        "letter": str(path),
    }
