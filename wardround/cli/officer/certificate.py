"""The group `wardround certificate`: show, export and verify the signed document of a study's privacy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from study_protocol.files.durable import write_durably
from wardround.cli.officer.verify import CoordinatorKey, named_key, read_export, trust
from wardround.cli.shared.certificate_file import CertificateFile, Fonts, opened
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

Round = Annotated[
    int | None,
    typer.Option("--round", help="certificate of the model that this round released. Default: of the study now", min=1),
]
Out = Annotated[
    Path | None, typer.Option("--output", "-o", help="file to write: .json (the signed document) or .pdf (for reading)")
]
Form = Annotated[
    str | None,
    typer.Option("--format", help="json, pdf, or registry: the entry for the public registry of deployments"),
]
PdfFile = Annotated[Path, typer.Option("--output", "-o", help="PDF file to write")]
ModelFile = Annotated[
    Path | None, typer.Option("--model", help="model file: check that it is the model of the certificate")
]
Released = Annotated[
    Path | None,
    typer.Option(
        help="folder from `wardround study model --released`: compute the mean again from its models",
        exists=True,
        file_okay=False,
    ),
]
LedgerFile = Annotated[
    Path | None, typer.Option("--ledger", help="export from `wardround ledger export`: compute every ε again from it")
]
_BAD, _NOT_KNOWN = 4, 1


def show(
    study: StudyName,
    round_number: Round = None,
    output: Out = None,
    form: Form = None,
    fonts: Fonts = None,
    server: Server = None,
    key_file: KeyFile = None,
    home: Home = None,
) -> None:
    """Print the certificate of a study in words, or write it to a file, after checking its signature."""
    with plain_errors():
        file_format = _form(output, form)
        require_writable(output, replaces=True)
        with reader(study, server, key_file, home) as client:
            document, key_words = checked(client, study, round_number, key_file, home)
        body = None if file_format is None else _written(document, file_format, fonts)
        if body is None:
            _print(document.certificate)
            say(f"signed with {key_words}")
        elif output is None:
            say(body.decode().rstrip("\n"))
        else:
            write_durably(output, body)
            say(f"{output}: {len(body)} bytes, signed with {key_words}")


def pdf(file: CertificateFile, output: PdfFile, fonts: Fonts = None) -> None:
    """Render a certificate file as PDF after checking its signature. Use `certificate verify` to see who signed it."""
    from client_sdk.errors import LedgerNotExtended
    from study_protocol.documents import check
    from study_protocol.documents.pdf_content import certificate_pdf

    with plain_errors():
        require_writable(output, replaces=True)
        document = opened(file.read_bytes(), str(file))
        key = document.certificate.coordinator_key
        # A PDF with forged numbers would look like any other.
        if check.check_signature(document, key, "its own key", is_confirmed=False).result == "bad":
            raise LedgerNotExtended(f"{file}: the certificate was changed after it was signed. No PDF was written")
        body = certificate_pdf(document, fonts)
        write_durably(output, body)
        say(f"{output}: {len(body)} bytes")


def verify(
    file: CertificateFile,
    model: ModelFile = None,
    ledger: LedgerFile = None,
    released: Released = None,
    coordinator_key: CoordinatorKey = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Check a certificate without a network. Exit code 0: valid. 4: a check failed. 1: the signer is not known."""
    from study_protocol.documents import check
    from study_protocol.documents.check_model import check_mean, check_model

    with plain_errors():
        document = opened(file.read_bytes(), str(file))
        key, key_words, is_named = key_of(document, coordinator_key, home)
        checks = [check.check_signature(document, key, key_words, is_confirmed=is_named)]
        if model is not None:
            checks.append(check_model(document.certificate, model))
        if ledger is not None:
            checks += _against(document, ledger, key)
        if released is not None:
            entries = None if ledger is None else read_export(ledger)[0]
            checks.append(check_mean(document.certificate, sorted(released.glob("*.safetensors")), entries))
    _print_checks(document.certificate, checks, as_json)
    results = {result_of_check.result for result_of_check in checks}
    if results != {"good"}:
        raise typer.Exit(_BAD if "bad" in results else _NOT_KNOWN)


def _print_checks(stated: Certificate, checks: Sequence[Check], as_json: bool) -> None:
    if as_json:
        print_json([{"what": done.subject, "result": done.result, "words": done.words} for done in checks])
    else:
        title = f"Certificate of {stated.study}, round {stated.round}, issued {stated.issued_at:%Y-%m-%d %H:%M} UTC"
        table(
            title,
            ["check", "result", "what was found"],
            [[result_of_check.subject, result_of_check.result, result_of_check.words] for result_of_check in checks],
        )


def _form(output: Path | None, form: str | None) -> str | None:
    from client_sdk.errors import ConfigurationError

    file_format = form or (None if output is None else output.suffix.removeprefix(".").lower())
    if file_format not in (None, "json", "pdf", "registry"):
        raise ConfigurationError(
            f"{file_format!r} is none of json, pdf, registry: end the file's name so, or pass --format"
        )
    if file_format == "pdf" and output is None:
        raise ConfigurationError("a PDF goes into a file: pass -o certificate.pdf")
    return file_format


def _written(document: OpenedCertificate, form: str, fonts: Path | None) -> bytes:
    import json

    if form == "pdf":
        from study_protocol.documents.pdf_content import certificate_pdf

        return certificate_pdf(document, fonts)
    if form == "registry":
        from study_protocol.documents.registry import as_yaml, entry

        return as_yaml(entry(document.certificate)).encode()
    return (json.dumps(document.raw, indent=2, ensure_ascii=False) + "\n").encode()


def checked(
    client: Client, study: str, round_number: int | None, key_file: Path | None, home: Path | None
) -> tuple[OpenedCertificate, str]:
    """Return a study's certificate from its coordinator, and words for the key that signed it.

    Raises:
        LedgerNotExtended: the coordinator did not sign it, or it is another certificate than the requested one.
    """
    from client_sdk.errors import LedgerNotExtended
    from study_protocol.documents import check

    document = opened(client.certificate(study, round_number), f"the certificate of {study}")
    trusted = trust(client, study, None, key_file, home, "records")
    stated, signature_check = (
        document.certificate,
        check.check_signature(document, trusted.key, trusted.reason, is_confirmed=True),
    )
    if signature_check.result != "good":
        raise LedgerNotExtended(f"the certificate's signature: {signature_check.words}")
    about = stated.round, None if stated.model is None else stated.model.version
    if stated.study != study or (round_number is not None and about != (round_number, round_number)):
        raise LedgerNotExtended(f"this is the certificate of {stated.study}, round {stated.round}")
    return document, trusted.reason


def key_of(document: OpenedCertificate, given_key: str | None, home: Path | None) -> tuple[str, str, bool]:
    """Return the key that must have signed, words for it, and whether it comes from outside of the document."""
    from client_sdk.api.config import load
    from client_sdk.errors import ConfigurationError
    from client_sdk.identity import Identity

    stated = document.certificate
    if given_key is not None:
        trusted = named_key(given_key, stated.coordinator_key, needed=True)
        return trusted.key, trusted.reason, True
    try:
        pinned = Identity.open(home or load().client_home).membership(stated.study).coordinator_key
    except ConfigurationError:
        # A directory that is named must exist. A document can be checked without one.
        if home is not None:
            raise
        return stated.coordinator_key, "the key that the document itself names", False
    return pinned, "the key that was pinned at enrolment", True


def _against(document: OpenedCertificate, path: Path, key: str) -> list[Check]:
    from client_sdk.errors import LedgerNotExtended
    from client_sdk.study.audit import audited, require_signed
    from study_protocol.documents import check

    stated = document.certificate
    entries, export = read_export(path)
    try:
        require_signed(key, stated.study, export.head, entries)
        audited(stated.study, entries)
    except LedgerNotExtended as error:
        return [check.Check("ledger", "bad", str(error))]
    return check.check_ledger(stated, entries)


def _remarks(stated: Certificate) -> Iterator[str]:
    yield from (limit.meaning for limit in stated.limits if limit.definition != "classical")
    if stated.distances is not None:
        yield from (f"by hospital: {line}" for line in stated.distances.words)
    yield from (f"who sees what: {line}" for line in (*stated.who_sees_what, *stated.under_masks))


def _print(stated: Certificate) -> None:
    from study_protocol.documents.phrases import exact_delta

    for line in stated.summary:
        say(line)
    rows = [
        [
            stated_limit.level,
            stated_limit.definition,
            number(stated_limit.spent),
            number(stated_limit.epsilon),
            exact_delta(stated_limit),
        ]
        for stated_limit in stated.limits
        if stated_limit.epsilon is not None
    ]
    table(
        f"{stated.title or stated.study}, round {stated.round}",
        ["level", "definition", "guaranteed", "limit", "delta"],
        rows,
    )
    for line in _remarks(stated):
        say(line)
    for step in stated.verify:
        say(f"{step.shows}:\n  {step.command}")
