"""What a client is asked to do now."""

from __future__ import annotations

from client_sdk.protocol.messages import Assignment
from server.services.ports import Coordinator


def find(coordinator: Coordinator, study: str, client: str) -> Assignment | None:
    """The signed assignment if the client is sampled and has not answered yet, else None.

    Raises:
        Rejected: `unknown-study`, `unknown-client`, `revoked` (also withdrawn), `study-finished` (extra stop_reason).
    """
    raise NotImplementedError
