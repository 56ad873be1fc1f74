"""Certificates that a person names as files: the argument, the fonts of documents about them, and their reading."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from study_protocol.documents.check import OpenedCertificate

CertificateFile = Annotated[Path, typer.Argument(help="certificate file, JSON", dir_okay=False)]
Fonts = Annotated[
    Path | None, typer.Option(help="folder with fonts for scripts that are not built in", exists=True, file_okay=False)
]


def opened(body: bytes, source: str) -> OpenedCertificate:
    """Return the certificate in these bytes, without checking its signature.

    Raises:
        ConfigurationError: the bytes are no certificate.
    """
    from client_sdk.errors import ConfigurationError
    from study_protocol.documents.check import NoCertificate
    from study_protocol.documents.check import open_certificate as read

    try:
        return read(body)
    except NoCertificate as error:
        raise ConfigurationError(f"{source}: {error}. Get it again with `wardround certificate show`") from error
