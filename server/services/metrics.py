"""Numbers measured on a declared evaluation set outside the guarantee, put beside a model."""

from __future__ import annotations

from client_sdk.protocol.messages import Metrics
from server.services.ports import Coordinator, Written


def record(coordinator: Coordinator, study: str, version: int, metrics: Metrics) -> Written[Metrics]:
    """Repeatable; later numbers for the same model replace earlier ones. Raises `unknown-study`, `unknown-model`."""
    raise NotImplementedError
