"""What a hospital and an operator install. Names load on first use: importing this package imports nothing heavy."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from client_sdk.api.attempts import OperatorKey
    from client_sdk.api.client import AsyncClient, Client
    from client_sdk.api.config import Connection
    from client_sdk.errors import (
        ApiError,
        ConnectionFailed,
        NotTrusted,
        Refused,
        TrainingStopped,
        WardroundError,
    )
    from client_sdk.guard.policy import SitePolicy
    from client_sdk.study.hospital import Hospital
    from client_sdk.study.participation import Outcome

_HOME = {
    "ApiError": "errors",
    "AsyncClient": "api.client",
    "Client": "api.client",
    "Connection": "api.config",
    "ConnectionFailed": "errors",
    "Hospital": "study.hospital",
    "NotTrusted": "errors",
    "OperatorKey": "api.attempts",
    "Outcome": "study.participation",
    "Refused": "errors",
    "SitePolicy": "guard.policy",
    "TrainingStopped": "errors",
    "WardroundError": "errors",
}

__all__ = [
    "ApiError",
    "AsyncClient",
    "Client",
    "Connection",
    "ConnectionFailed",
    "Hospital",
    "NotTrusted",
    "OperatorKey",
    "Outcome",
    "Refused",
    "SitePolicy",
    "TrainingStopped",
    "WardroundError",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
