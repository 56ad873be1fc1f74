"""One round's secure sum over HTTP: keys and shares before anything is paid, masked vectors after training.

Every step writes the hospital's state before it sends, so a restarted process goes on where the old one stopped. A
session that goes on without this hospital, or fails, ends in `SessionEnded`: nothing more is sent for the round.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TypeVar

from pydantic import BaseModel

from client_sdk.api.calls import OCTETS, POLL_SECONDS, get, nothing, path, put, query
from client_sdk.api.client import Client
from client_sdk.api.transport import Call
from client_sdk.errors import (
    ApiError,
    ConflictError,
    ConnectionFailed,
    NotFoundError,
    SessionEnded,
    UnexpectedAnswer,
)
from client_sdk.protocol.secure_sum.fixed_point import RingVector
from client_sdk.protocol.secure_sum.messages import (
    ConsistencyList,
    ConsistencyMessage,
    Inbox,
    KeyList,
    KeysMessage,
    Manifest,
    ParameterFault,
    SessionParameters,
    SessionView,
    SharesMessage,
    SumResult,
    SurvivorList,
    UnmaskMessage,
)
from client_sdk.protocol.secure_sum.parameters import SessionPlan
from client_sdk.protocol.secure_sum.vectors import VectorSpec
from client_sdk.protocol.wire.failpoints import failpoint, register
from client_sdk.secure_sum.checks import Party, shows_totals
from client_sdk.secure_sum.refusals import ParametersRefused, SecureSumRefused
from client_sdk.secure_sum.session import SecureSumClient
from client_sdk.secure_sum.store import Store

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
_LOG = logging.getLogger(__name__)
_MIB = 1 << 20

register(
    "hospital.after-keys",
    "hospital.after-shares",
    "hospital.after-manifest",
    "hospital.after-octets",
    "hospital.after-consistency",
    "hospital.after-unmask",
)


class MaskedRound:
    """This hospital's part in one round's session.

    plan           what this hospital expects of the session
    exact_updates  the hospitals put no noise on their updates
    """

    def __init__(
        self,
        client: Client,
        party: Party,
        plan: SessionPlan,
        store: Store,
        *,
        exact_updates: bool = False,
    ) -> None:
        self._client, self._party = client, party
        self._plan, self._exact_updates = plan, exact_updates
        self._sum = SecureSumClient(party, plan.study, plan.round, store)
        self._calls = SessionCalls(plan.study, plan.round, party.client)

    def prepare(self) -> tuple[VectorSpec, ...]:
        """Keys and shares. Afterwards enough others hold shares of this hospital's secrets for training to make sense.

        Returns:
            The vectors to fill.

        Raises:
            SessionEnded: nothing is to be paid or trained for this round.
            SecureSumRefused: something that was shown is not acceptable; the session is left.
        """
        return self._guarded(self._prepare)

    def complete(self, words: Mapping[str, RingVector]) -> None:
        """Mask, send, confirm, open, and check the announced result.

        Raises:
            SessionEnded, SecureSumRefused: as `prepare`.
        """
        self._guarded(lambda: self._complete(words))

    def leave(self) -> None:
        """Erase the session's secrets and tell the coordinator, so that nobody waits for this hospital.

        Best effort: whatever made the hospital leave matters more than whether this arrives.
        """
        try:
            self._sum.abort()
            self._client.send(self._calls.leave())
        except (ApiError, ConnectionFailed, UnexpectedAnswer, SecureSumRefused) as unheard:
            _LOG.warning("round %d: the session was not left in order: %s", self._plan.round, unheard)

    def _prepare(self) -> tuple[VectorSpec, ...]:
        if self._party.roster.get(self._party.client) != self._party.identity.public_key():
            raise ParametersRefused(
                "rotated-key",
                "this hospital's identity key changed after the round was opened: it takes part in the next",
            )
        view = self._view(None)
        vectors = self._expected(view)
        if self._sum.phase in ("masked", "confirmed", "unmasked"):
            return vectors
        keys = self._sum.advertise(view.signed, self._plan, self._now())
        self._send(self._calls.put_keys(keys))
        failpoint("hospital.after-keys")
        self._wait_past("keys")
        before = self._sum.opened_cohort() if shows_totals(vectors) else None
        shares = self._sum.share(self._send(self._calls.keys()), self._now(), before)
        self._send(self._calls.put_shares(shares))
        failpoint("hospital.after-shares")
        self._wait_past("shares")
        return vectors

    def _complete(self, words: Mapping[str, RingVector]) -> None:
        if self._sum.phase in ("shared", "masked"):
            self._send_vectors(words)
        if self._sum.phase in ("masked", "confirmed"):
            self._wait_past("masked")
            message = self._sum.confirm(self._send(self._calls.survivors()), self._now(), exact=self._exact_updates)
            self._reply(self._calls.put_consistency(message))
            failpoint("hospital.after-consistency")
        self._open()

    def _send_vectors(self, words: Mapping[str, RingVector]) -> None:
        upload = self._sum.mask(self._send(self._calls.inbox()), words, self._now())
        self._send(self._calls.put_manifest(upload.manifest))
        failpoint("hospital.after-manifest")
        for name, vector in upload.vectors.items():
            self._send(self._calls.put_octets(name, vector.tobytes()))
        failpoint("hospital.after-octets")

    def _open(self) -> None:
        view = self._wait_past("consistency")
        # After an answer that was lost too: what was opened once is said again.
        message = self._sum.unmask(self._send(self._calls.consistency()), self._now())
        if view.phase == "unmask":
            self._reply(self._calls.put_unmask(message))
            failpoint("hospital.after-unmask")
        self._wait_past("unmask")
        self._sum.check_result(self._send(self._calls.result()))

    def _reply(self, call: Call[None]) -> None:
        """Send what the sum can also do without: this hospital's vectors are in it, others may have opened it first."""
        try:
            self._send(call)
        except SessionEnded as ended:
            if ended.code != "round-closed" or self._view(None).phase != "summed":
                raise

    def _wait_past(self, phase: str) -> SessionView:
        """The session, once it has left `phase`."""
        while (view := self._view(phase)).phase == phase:
            pass
        return view

    def _view(self, left: str | None) -> SessionView:
        view = self._send(self._calls.view(left, POLL_SECONDS))
        if view.phase == "failed":
            raise SessionEnded(view.failure or "failed")
        return view

    def _expected(self, view: SessionView) -> tuple[VectorSpec, ...]:
        # The number of clients is the coordinator's; every check of the parameters follows in `advertise`.
        try:
            return self._plan.vectors(SessionParameters.from_bytes(view.signed.parameters).clients)
        except ParameterFault as fault:
            raise ParametersRefused(fault.code, str(fault)) from fault

    def _send(self, call: Call[T]) -> T:
        try:
            return self._client.send(call)
        except (ConflictError, NotFoundError) as error:
            raise SessionEnded(error.code) from error

    def _guarded(self, step: Callable[[], T]) -> T:
        try:
            return step()
        except SessionEnded as ended:
            self._sum.abort()
            if ended.code == "different-message":
                # The state on this disk is not what was sent before: the others wait for this hospital in vain.
                self.leave()
            raise
        except SecureSumRefused:
            self.leave()
            raise

    def _now(self) -> int:
        return int(self._client.clock.now())


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
