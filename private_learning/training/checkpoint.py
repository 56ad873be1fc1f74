"""Progress of a round of many local steps, kept on the disk so that a restarted hospital goes on from there.

No result of a round leaves before the round is finished, so a checkpoint costs no privacy. It holds the state of the
steps and their charges. Therefore a step is either in both, or is done again and charged once. Its noise is then fresh
or, seeded, the very noise of its number.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self, cast

import torch
from torch import Tensor

from study_protocol.files import durable
from study_protocol.files.private import make_private_folder
from study_protocol.wire.failpoints import failpoint, register

register("hospital.after-checkpoint")


@dataclass(frozen=True, repr=False)
class Checkpoint:
    """The state after `step` local steps.

    weights                  parameter name -> tensor of its shape
    optimiser                its `state_dict`, empty for plain steps
    log_moments, individual  the accounts' own bytes, with these steps charged
    """

    step: int
    weights: dict[str, Tensor]
    optimiser: dict[str, Any]
    log_moments: bytes | None
    individual: bytes | None


class Checkpoints:
    """One round's place on the disk: at most one checkpoint, mode 0600.

    start  the checkpoint to begin at, or None for the beginning
    """

    def __init__(
        self,
        path: Path,
        round_sha256: str,
        *,
        every_seconds: float,
        start: Checkpoint | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path, self._round, self._every, self._now = path, round_sha256, every_seconds, now
        self._last = now()
        self.start = start

    @classmethod
    def open(cls, path: Path, *belonging: str | bytes | None, every_seconds: float) -> Self:
        """Return the checkpoint at `path`, if it was written for the same round and the same accounts.

        belonging  all that the round's work depends on. A checkpoint of other work is useless and is erased.
        """
        digest = hashlib.sha256()
        for part in belonging:
            piece = part.encode() if isinstance(part, str) else part
            # Each part hashed by itself and absence marked: no two lists of parts give one digest.
            digest.update(b"-" if piece is None else b"+" + hashlib.sha256(piece).digest())
        checkpoints = cls(path, digest.hexdigest(), every_seconds=every_seconds)
        checkpoints.start = checkpoints._read()
        if checkpoints.start is None:
            checkpoints.erase()
        return checkpoints

    @property
    def due(self) -> bool:
        """Is the last one, or the beginning, long enough ago?"""
        return self._now() - self._last >= self._every

    def write(self, checkpoint: Checkpoint) -> None:
        """Replace the one before. Durable when this returns.

        Raises:
            OSError: the disk is full or read-only.
        """
        buffer = io.BytesIO()
        torch.save({"round": self._round, **vars(checkpoint)}, buffer)
        make_private_folder(self._path.parent)
        durable.write_durably(self._path, buffer.getvalue())
        self._last = self._now()
        failpoint("hospital.after-checkpoint")

    def erase(self) -> None:
        """The round is finished, or is another."""
        durable.erase([self._path])

    def _read(self) -> Checkpoint | None:
        try:
            # weights_only: tensors and plain values. No code in the file is run.
            saved = torch.load(self._path, weights_only=True)
        # A file that cannot be read counts as absent: the steps are taken anew, and none of them was charged yet.
        except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError):
            return None
        if not isinstance(saved, dict):
            return None
        values = cast("dict[str, Any]", saved)
        if values.pop("round", None) != self._round or set(values) != set(_FIELDS):
            return None
        return Checkpoint(**values)


_FIELDS = tuple(field.name for field in fields(Checkpoint))
