"""What happened in a study, numbered from 1 without gaps."""

from __future__ import annotations

from collections.abc import Collection

from client_sdk.protocol.messages import Event
from server.services.ports import Coordinator


def since(coordinator: Coordinator, study: str, after: int = 0, limit: int = 500) -> list[Event]:
    """Raises Rejected `unknown-study`."""
    raise NotImplementedError


def marks(coordinator: Coordinator, studies: Collection[str]) -> dict[str, int]:
    """The newest event number of each of these studies: one cheap query for everybody who waits."""
    raise NotImplementedError
