"""`wardround certificate …`: a study's privacy as one signed document, to keep, to lay before a board, to check."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from private_learning.durable import write_durably
from wardround.cli.officer.verify import CoordinatorKey, named_key, read_export, trust
from wardround.cli.shared.output import require_writable
from wardround.cli.shared.shared import (
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

if TYPE_CHECKING:
    from client_sdk.api.client import Client
    from study_protocol.documents.check import Check, OpenedCertificate
    from study_protocol.study.certificate import Certificate

app = typer.Typer(no_args_is_help=True, help="The certificate of a study's privacy: show, keep and check it.")
Round = Annotated[
    int | None, typer.Option("--round", help="of the model that this round released; left out: of the study now", min=1)
]
Out = Annotated[
    Path | None, typer.Option("--output", "-o", help="file to write: .json (the signed document) or .pdf (to read)")
]
Form = Annotated[
    str | None, typer.Option("--format", help="json, pdf, or registry: the entry of the public registry of deployments")
]
CertificateFile = Annotated[Path, typer.Argument(help="a certificate as JSON", dir_okay=False)]
PdfFile = Annotated[Path, typer.Option("--output", "-o", help="the PDF to write")]
ModelFile = Annotated[Path | None, typer.Option("--model", help="a model's file: is it the one that is named?")]
LedgerFile = Annotated[
    Path | None, typer.Option("--ledger", help="from `wardround ledger export`: every ε is computed again from it")
]
Fonts = Annotated[
    Path | None, typer.Option(help="folder with fonts for scripts that are not built in", exists=True, file_okay=False)
]
_BAD, _NOT_KNOWN = 4, 1


@app.command()
def show(
    study: StudyName,
    round: Round = None,
    output: Out = None,
    form: Form = None,
    fonts: Fonts = None,
    server: Server = None,
    key_file: KeyFile = None,
    home: Home = None,
) -> None:
    """Print the certificate of a study in words, or write it to a file; its signature is checked first."""
    with plain_errors():
        chosen = _form(output, form)
        require_writable(output, replaces=True)
        with reader(study, server, key_file, home) as client:
            document, why = checked(client, study, round, key_file, home)
        body = None if chosen is None else _written(document, chosen, fonts)
        if body is None:
            _print(document.certificate)
            say(f"signed with {why}")
        elif output is None:
            say(body.decode().rstrip("\n"))
        else:
            write_durably(output, body)
            say(f"{output}: {len(body)} bytes, signed with {why}")


@app.command()
def pdf(file: CertificateFile, output: PdfFile, fonts: Fonts = None) -> None:
    """Make the PDF of a certificate that is at hand, if nobody changed it. Whose it is, `verify` says."""
    from client_sdk.errors import LedgerNotExtended
    from study_protocol.documents import check
    from study_protocol.documents.shown import certificate_pdf

    with plain_errors():
        require_writable(output, replaces=True)
        document = opened(file.read_bytes(), str(file))
        key = document.certificate.coordinator_key
        # A PDF of made-up numbers would look like any other.
        if check.check_signature(document, key, "its own key", is_confirmed=False).result == "bad":
            raise LedgerNotExtended(f"{file}: something was changed after it was signed; no PDF is made of it")
        body = certificate_pdf(document, fonts)
        write_durably(output, body)
        say(f"{output}: {len(body)} bytes")


@app.command()
def verify(
    file: CertificateFile,
    model: ModelFile = None,
    ledger: LedgerFile = None,
    coordinator_key: CoordinatorKey = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Check a certificate without a network. Exit code 0: all is good; 4: something is wrong; 1: not known."""
    from study_protocol.documents import check

    with plain_errors():
        document = opened(file.read_bytes(), str(file))
        key, whose, known = _key(document, coordinator_key, home)
        found = [check.check_signature(document, key, whose, is_confirmed=known)]
        if model is not None:
            found.append(check.check_model(document.certificate, model))
        if ledger is not None:
            found += _against(document, ledger, key)
    if as_json:
        print_json([vars(one) for one in found])
    else:
        stated = document.certificate
        title = f"Certificate of {stated.study}, round {stated.round}, issued {stated.issued_at:%Y-%m-%d %H:%M} UTC"
        table(title, ["check", "result", "what was found"], [[one.subject, one.result, one.words] for one in found])
    results = {one.result for one in found}
    if results != {"good"}:
        raise typer.Exit(_BAD if "bad" in results else _NOT_KNOWN)


def opened(body: bytes, what: str) -> OpenedCertificate:
    """A certificate, of which nothing is believed yet.

    Raises:
        ConfigurationError: it is none.
    """
    from client_sdk.errors import ConfigurationError
    from study_protocol.documents.check import NoCertificate
    from study_protocol.documents.check import open_certificate as read

    try:
        return read(body)
    except NoCertificate as error:
        raise ConfigurationError(f"{what}: {error}; ask for it again (wardround certificate show)") from error


def _form(output: Path | None, form: str | None) -> str | None:
    from client_sdk.errors import ConfigurationError

    chosen = form or (None if output is None else output.suffix.removeprefix(".").lower())
    if chosen not in (None, "json", "pdf", "registry"):
        raise ConfigurationError(f"{chosen!r} is none of json, pdf, registry: end the file's name so, or pass --format")
    if chosen == "pdf" and output is None:
        raise ConfigurationError("a PDF goes into a file: pass -o certificate.pdf")
    return chosen


def _written(document: OpenedCertificate, form: str, fonts: Path | None) -> bytes:
    import json

    if form == "pdf":
        from study_protocol.documents.shown import certificate_pdf

        return certificate_pdf(document, fonts)
    if form == "registry":
        from study_protocol.documents.registry import as_yaml, entry

        return as_yaml(entry(document.certificate)).encode()
    return (json.dumps(document.raw, indent=2, ensure_ascii=False) + "\n").encode()


def checked(
    client: Client, study: str, round: int | None, key_file: Path | None, home: Path | None
) -> tuple[OpenedCertificate, str]:
    """A study's certificate, fresh from its coordinator, and whose signature it has, in words.

    Raises:
        LedgerNotExtended: not the coordinator's signature, or another certificate than the one asked for.
    """
    from client_sdk.errors import LedgerNotExtended
    from study_protocol.documents import check

    document = opened(client.certificate(study, round), f"the certificate of {study}")
    trusted = trust(client, study, None, key_file, home, "records")
    stated, found = document.certificate, check.check_signature(document, trusted.key, trusted.why, is_confirmed=True)
    if found.result != "good":
        raise LedgerNotExtended(f"the certificate's signature: {found.words}")
    about = stated.round, None if stated.model is None else stated.model.version
    if stated.study != study or (round is not None and about != (round, round)):
        raise LedgerNotExtended(f"this is the certificate of {stated.study}, round {stated.round}")
    return document, trusted.why


def _key(document: OpenedCertificate, given: str | None, home: Path | None) -> tuple[str, str, bool]:
    """Whose signature must be there, in words, and whether somebody other than the document says so."""
    from client_sdk.api.config import load
    from client_sdk.errors import ConfigurationError
    from client_sdk.identity import Identity

    stated = document.certificate
    if given is not None:
        trusted = named_key(given, stated.coordinator_key, needed=True)
        return trusted.key, trusted.why, True
    try:
        pinned = Identity.open(home or load().client_home).membership(stated.study).coordinator_key
    except ConfigurationError:
        # A directory that is named must be there; nobody needs one to look at a document.
        if home is not None:
            raise
        return stated.coordinator_key, "the key that the document itself names", False
    return pinned, "the key that was pinned at enrolment", True


def _against(document: OpenedCertificate, path: Path, key: str) -> list[Check]:
    from client_sdk.errors import LedgerNotExtended
    from client_sdk.study.audit import audited, require_signed
    from study_protocol.documents import check

    stated = document.certificate
    entries, told = read_export(path)
    try:
        require_signed(key, stated.study, told.head, entries)
        audited(stated.study, entries)
    except LedgerNotExtended as error:
        return [check.Check("ledger", "bad", str(error))]
    return check.check_ledger(stated, entries)


def _print(stated: Certificate) -> None:
    from study_protocol.documents.words import exact_delta

    for line in stated.summary:
        say(line)
    rows = [
        [
            one.level,
            one.definition,
            number(one.spent),
            number(one.epsilon),
            exact_delta(one),
        ]
        for one in stated.limits
        if one.epsilon is not None
    ]
    table(
        f"{stated.title or stated.study}, round {stated.round}",
        ["level", "definition", "spent", "limit", "delta"],
        rows,
    )
    for limit in stated.limits:
        if limit.definition != "classical":
            say(limit.meaning)
    for line in (*stated.who_sees_what, *stated.under_masks):
        say(f"who sees what: {line}")
    for step in stated.verify:
        say(f"{step.shows}:\n  {step.command}")
