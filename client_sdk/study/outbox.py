"""The finished bytes of a round, kept until a later round has bytes of its own."""

from __future__ import annotations

import hashlib
from pathlib import Path

from client_sdk.durable import sync_directory, write_durably
from client_sdk.errors import LedgerDamaged


class Outbox:
    """One study's folder: one file a round, synced before anything is sent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, round: int, body: bytes) -> None:
        """Durable when this returns."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(self._file(round), body)

    def take(self, round: int, sha256: str | None) -> bytes:
        """The bytes of `round`, as often as asked.

        Raises:
            LedgerDamaged: the ledger holds another digest, or none.
        """
        try:
            body = self._file(round).read_bytes()
        except OSError:
            body = b""
        if hashlib.sha256(body).hexdigest() != sha256:
            raise LedgerDamaged(f"the finished update of round {round} is gone from {self.folder}")
        return body

    def forget_before(self, round: int) -> None:
        """Scrub updates of earlier rounds: they will not be asked for again, and their digests are in the ledger."""
        old = [p for p in self.folder.glob("*.safetensors") if p.stem.isdigit() and int(p.stem) < round]
        for path in old:
            path.unlink()
        if old:
            sync_directory(self.folder)

    def _file(self, round: int) -> Path:
        return self.folder / f"{round}.safetensors"
