"""What a hospital and an operator install. Names load on first use: importing this package imports nothing heavy."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from client_sdk.client import AsyncClient, Client
    from client_sdk.config import Connection
    from client_sdk.credentials import OperatorKey
    from client_sdk.errors import (
        ApiError,
        ConnectionFailed,
        NotTrusted,
        Refused,
        TrainingStopped,
        WardroundError,
    )
    from client_sdk.hospital import Hospital
    from client_sdk.participation import Outcome
    from client_sdk.policy import SitePolicy

_HOME = {
    "ApiError": "errors",
    "AsyncClient": "client",
    "Client": "client",
    "Connection": "config",
    "ConnectionFailed": "errors",
    "Hospital": "hospital",
    "NotTrusted": "errors",
    "OperatorKey": "credentials",
    "Outcome": "participation",
    "Refused": "errors",
    "SitePolicy": "policy",
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
