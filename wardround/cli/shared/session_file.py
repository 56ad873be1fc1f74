"""The file of a login: a session's token for one coordinator, in the person's own folder of settings."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import typer

from study_protocol.wire.variables import SecretUnreadable, read_secret


def session_file(url: str) -> Path:
    """Return where the login at this coordinator is kept."""
    return Path(typer.get_app_dir("wardround")) / "logins" / f"{quote(url.rstrip('/'), safe='')}.token"


def kept_session(url: str | None) -> str | None:
    """Return the token of a login at this coordinator, or None."""
    try:
        return read_secret(session_file(url)) if url else None
    except SecretUnreadable:
        return None


def keep_session(url: str, token: str) -> Path:
    """Keep a token where its person alone can read it, and return its file. Raises OSError."""
    from study_protocol.files.durable import write_durably
    from study_protocol.files.private import make_private_folder

    file = session_file(url)
    make_private_folder(file.parent)
    write_durably(file, f"{token}\n".encode())
    return file


def forget_session(url: str) -> None:
    """Remove the file of a login. Raises OSError."""
    session_file(url).unlink(missing_ok=True)
