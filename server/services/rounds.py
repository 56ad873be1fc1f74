"""The history of rounds."""

from __future__ import annotations

from client_sdk.protocol.messages import RoundList, RoundView
from server.services.ports import Coordinator


def list_rounds(
    coordinator: Coordinator, study: str, *, with_clients: bool, after: int = 0, limit: int = 100
) -> RoundList:
    """Rounds above `after`. `with_clients` shows who took part: for operators only. Raises Rejected `unknown-study`."""
    raise NotImplementedError


def show_round(coordinator: Coordinator, study: str, round: int, *, with_clients: bool) -> RoundView:
    """Raises Rejected `unknown-study`, `round-unknown`."""
    raise NotImplementedError
