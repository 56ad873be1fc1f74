"""The commands `certificate dossier` and `certificate dpia`: documents for officers, from one certificate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from study_protocol.files.durable import write_durably
from wardround.cli.officer.certificate import key_of
from wardround.cli.officer.verify import CoordinatorKey
from wardround.cli.shared.certificate_file import CertificateFile, Fonts, opened
from wardround.cli.shared.output import require_writable
from wardround.cli.shared.shared import Home, plain_errors, say

if TYPE_CHECKING:
    from study_protocol.documents.check import Check, OpenedCertificate
    from study_protocol.documents.sectioned import SectionedDocument

Output = Annotated[Path, typer.Option("--output", "-o", help="file to write, .md or .pdf")]


def dossier(
    file: CertificateFile,
    output: Output,
    coordinator_key: CoordinatorKey = None,
    fonts: Fonts = None,
    home: Home = None,
) -> None:
    """Write the egress dossier: what leaves, the bound, and the lines of SATRE 2 and TEHDAS2. Needs no network."""
    from study_protocol.documents.dossier import dossier as content

    with plain_errors():
        _write(content, file, output, coordinator_key, fonts, home)


def dpia(
    file: CertificateFile,
    output: Output,
    coordinator_key: CoordinatorKey = None,
    fonts: Fonts = None,
    home: Home = None,
) -> None:
    """Write the annex of a data-protection impact assessment, with the record of processing. Needs no network."""
    from study_protocol.documents.dpia import dpia_annex

    with plain_errors():
        _write(dpia_annex, file, output, coordinator_key, fonts, home)


def _write(
    content: Callable[[OpenedCertificate, Check], SectionedDocument],
    file: Path,
    output: Path,
    coordinator_key: str | None,
    fonts: Path | None,
    home: Path | None,
) -> None:
    from client_sdk.errors import ConfigurationError, LedgerNotExtended
    from study_protocol.documents.check import check_signature

    if output.suffix.lower() not in (".md", ".pdf"):
        raise ConfigurationError(f"{output.suffix!r} is neither .md nor .pdf: end the file's name so")
    require_writable(output, replaces=True)
    document = opened(file.read_bytes(), str(file))
    key, key_words, is_named = key_of(document, coordinator_key, home)
    signature = check_signature(document, key, key_words, is_confirmed=is_named)
    # Forged numbers would look like any others.
    if signature.result == "bad":
        raise LedgerNotExtended(f"{file}: the signature is {signature.words}. No document was written")
    report = content(document, signature)
    body = report.to_pdf(fonts) if output.suffix.lower() == ".pdf" else report.to_markdown().encode()
    write_durably(output, body)
    say(f"{output}: {len(body)} bytes. Signature: {signature.result}, {signature.words}")
