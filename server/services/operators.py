"""API keys of operators and viewers: `wrk_<id>_<secret>`, shown once, only the hash is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from client_sdk.protocol.messages import OperatorKey, OperatorKeyCreate, OperatorKeyList
from server.services.ports import Coordinator


@dataclass(frozen=True)
class Operator:
    """Who holds a valid API key."""

    id: str
    role: Literal["operator", "viewer"]


def create_key(coordinator: Coordinator, request: OperatorKeyCreate) -> OperatorKey:
    """A new key; the answer is the only place where it can be read. Old keys stay valid: rotate with overlap."""
    raise NotImplementedError


def list_keys(coordinator: Coordinator) -> OperatorKeyList:
    """All keys ever made, without their secrets."""
    raise NotImplementedError


def revoke_key(coordinator: Coordinator, id: str) -> OperatorKey:
    """Repeatable. Raises Rejected `unknown-key`."""
    raise NotImplementedError


def authenticate(coordinator: Coordinator, key: str) -> Operator:
    """Raises Rejected `bad-token` for anything but a valid key."""
    raise NotImplementedError
