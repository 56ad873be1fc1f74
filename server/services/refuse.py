"""Record a hospital's no."""

from __future__ import annotations

from client_sdk.protocol.messages import Refusal
from server.services.ports import Coordinator, Written


def refuse(coordinator: Coordinator, study: str, round: int, client: str, refusal: Refusal) -> Written[Refusal]:
    """Repeatable.

    Raises:
        Rejected: `unknown-study`, `round-unknown`, `not-sampled`, `round-closed`, `different-update`.
    """
    raise NotImplementedError
