"""The requests of a secure-sum session."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel

from client_sdk.api.calls import OCTETS, Call, get, nothing, path, put, query
from client_sdk.protocol.secure_sum.messages import (
    ConsistencyList,
    ConsistencyMessage,
    Inbox,
    KeyList,
    KeysMessage,
    Manifest,
    SessionView,
    SharesMessage,
    SumResult,
    SurvivorList,
    UnmaskMessage,
)

M = TypeVar("M", bound=BaseModel)
_MIB = 1 << 20


class SessionCalls:
    """Addresses of one round's session."""

    def __init__(self, study: str, round: int, client: str) -> None:
        self._base = ("studies", study, "rounds", round, "secure-sum")
        self._client = client

    def view(self, left: str | None, wait_seconds: float) -> Call[SessionView]:
        """The session; with `left`, once it is in another phase or the time is up."""
        wait = None if left is None else f"{wait_seconds:g}"
        target = query(path(*self._base), phase=left, wait=wait)
        return get(target, SessionView, quiet_seconds=wait_seconds, answer_limit=_MIB)

    def put_keys(self, message: KeysMessage) -> Call[None]:
        return self._put("keys", message)

    def put_shares(self, message: SharesMessage) -> Call[None]:
        return self._put("shares", message)

    def put_manifest(self, message: Manifest) -> Call[None]:
        return self._put("masked", message)

    def put_consistency(self, message: ConsistencyMessage) -> Call[None]:
        return self._put("consistency", message)

    def put_unmask(self, message: UnmaskMessage) -> Call[None]:
        return self._put("unmask", message)

    def put_octets(self, vector: str, octets: bytes) -> Call[None]:
        return Call("PUT", path(*self._base, "masked", self._client, vector), nothing, octets, OCTETS)

    def leave(self) -> Call[None]:
        return put(path(*self._base, "left", self._client))

    def keys(self) -> Call[KeyList]:
        return self._list("keys", KeyList)

    def inbox(self) -> Call[Inbox]:
        return self._list("shares", Inbox, self._client)

    def survivors(self) -> Call[SurvivorList]:
        return self._list("survivors", SurvivorList)

    def consistency(self) -> Call[ConsistencyList]:
        return self._list("consistency", ConsistencyList)

    def result(self) -> Call[SumResult]:
        return self._list("result", SumResult)

    def _put(self, step: str, message: BaseModel) -> Call[None]:
        return put(path(*self._base, step, self._client), message)

    def _list(self, what: str, model: type[M], *more: str) -> Call[M]:
        return get(path(*self._base, what, *more), model, answer_limit=4 * _MIB)
