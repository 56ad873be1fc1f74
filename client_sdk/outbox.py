"""The finished bytes of a round, which wait on the disk until they are sent."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from client_sdk.errors import LedgerDamaged
from study_protocol.files.durable import erase, unfinished_files, write_durably
from study_protocol.files.private import make_private_folder


class Outbox:
    """One study's folder: one file a round, synced before anything is sent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def checkpoint(self) -> Path:
        """Return the path of the checkpoint of a round under way: `private_learning.training.checkpoint`."""
        return self.folder / "checkpoint"

    def put(self, round_number: int, body: bytes) -> None:
        """Durable when this returns."""
        make_private_folder(self.folder)
        write_durably(self._file(round_number), body)

    def take(self, round_number: int, sha256: str | None) -> bytes:
        """The bytes of `round_number`, as often as asked.

        Raises:
            LedgerDamaged: the ledger holds another digest, or none.
        """
        try:
            body = self._file(round_number).read_bytes()
        except OSError:
            # Gone or altered is the same trouble to whoever has to send it.
            body = b""
        if hashlib.sha256(body).hexdigest() != sha256:
            raise LedgerDamaged(f"the finished update of round {round_number} is gone from {self.folder}")
        return body

    def forget_before(self, round_number: int) -> None:
        """Scrub updates of earlier rounds: they will not be asked for again, and their digests are in the ledger."""
        self.keep(lambda number: number >= round_number)

    def keep(self, is_needed: Callable[[int], bool], *, checkpoint: bool = True) -> None:
        """Scrub the updates of all other rounds, and what a killed process left half written.

        checkpoint  whether the checkpoint of a round under way stays
        """
        finished = (path for path in self.folder.glob("*.safetensors") if path.stem.isdigit())
        useless = [path for path in finished if not is_needed(int(path.stem))]
        erase([*useless, *unfinished_files(self.folder), *([] if checkpoint else [self.checkpoint])])

    def _file(self, round_number: int) -> Path:
        return self.folder / f"{round_number}.safetensors"
