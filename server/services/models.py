"""The initial model, and where a published model lies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from client_sdk.protocol.messages import ModelInfo
from server.services.ports import Coordinator, Incoming, Written


@dataclass(frozen=True)
class StoredModel:
    """A published model; `path` is a file that never changes."""

    info: ModelInfo
    path: Path


def put_initial(coordinator: Coordinator, study: str, incoming: Incoming) -> Written[ModelInfo]:
    """Freeze names, shapes and types; the study begins to enrol. The same bytes again: created False.

    Raises:
        Rejected: `unknown-study`, `frozen` (other bytes than before), `malformed-tensors`, `wrong-dtype`,
            `wrong-names`, `not-finite`.
    """
    raise NotImplementedError


def locate(coordinator: Coordinator, study: str, version: int | None = None) -> StoredModel:
    """Version None: the latest. Raises Rejected `unknown-study`, `unknown-model`."""
    raise NotImplementedError
