"""One round's secure sum over HTTP: keys and shares before anything is paid, masked vectors after training.

Every step writes the hospital's state before it sends, so a restarted process goes on where the old one stopped. A
session that goes on without this hospital, or fails, ends in `SessionEnded`: nothing more is sent for the round.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from pydantic import BaseModel

from client_sdk.api.calls import OCTETS, POLL_SECONDS, get, nothing, path, put, query
from client_sdk.api.client import Client
from client_sdk.api.transport import Call
from client_sdk.errors import (
    ApiError,
    ConflictError,
    ConnectionFailed,
    InvalidRequestError,
    NotFoundError,
    SessionEnded,
    UnexpectedAnswer,
)
from client_sdk.protocol.secure_sum.messages import (
    ConsistencyList,
    Inbox,
    KeyList,
    ParameterFault,
    SessionParameters,
    SessionView,
    SumResult,
    SurvivorList,
)
from client_sdk.protocol.secure_sum.parameters import SessionPlan
from client_sdk.protocol.secure_sum.vectors import RingVector, VectorSpec
from client_sdk.protocol.study.messages import WitnessedHead
from client_sdk.protocol.wire.failpoints import failpoint, register
from client_sdk.secure_sum.checks import shows_totals
from client_sdk.secure_sum.refusals import ParametersRefused, SecureSumRefused
from client_sdk.secure_sum.session import SecureSumClient
from client_sdk.secure_sum.steps import Party
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
    witness        vouches for the ledger, with the keys
    shares_taken   the coordinator has acknowledged this hospital's shares: the sum may be opened
    """

    def __init__(
        self,
        client: Client,
        party: Party,
        plan: SessionPlan,
        store: Store,
        *,
        exact_updates: bool = False,
        witness: WitnessedHead | None = None,
    ) -> None:
        self._witness, self.shares_taken = witness, False
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
        with self._leaving():
            # A session keeps the roster of its opening: the others would check with the old key, and refuse.
            if self._party.roster.get(self._party.client) != self._party.identity.public_key():
                changed = "this hospital's identity key changed after the round was opened: it takes part in the next"
                raise ParametersRefused("rotated-key", changed)
            view = self._view(None)
            vectors = self._expected(view)
            # Started again after masking: keys and shares are behind, `complete` goes on.
            if self._sum.phase in ("masked", "confirmed", "unmasked"):
                return vectors
            keys = self._sum.advertise(view.signed, self._plan, self._now())
            self._send(self._calls.put("keys", keys, self._witness))
            failpoint("hospital.after-keys")
            self._wait_past("keys")
            before = self._sum.opened_cohort() if shows_totals(vectors) else None
            cohort = self._send(self._calls.shown("keys", KeyList))
            shares = self._sum.share(cohort, self._now(), before, exact=self._exact_updates)
            self._send(self._calls.put("shares", shares))
            failpoint("hospital.after-shares")
            self._wait_past("shares")
            return vectors

    def complete(self, words: Mapping[str, RingVector]) -> None:
        """Mask, send, confirm, open, and check the announced result.

        Raises:
            SessionEnded, SecureSumRefused: as `prepare`.
        """
        with self._leaving():
            # Once masked too: whether every vector has arrived, a process that was killed does not know.
            if self._sum.phase in ("shared", "masked"):
                self._send_vectors(words)
            if self._sum.phase in ("masked", "confirmed"):
                self._wait_past("masked")
                survivors = self._send(self._calls.shown("survivors", SurvivorList))
                message = self._sum.confirm(survivors, self._now(), exact=self._exact_updates)
                self._reply(self._calls.put("consistency", message))
                failpoint("hospital.after-consistency")
            self._open()

    def leave(self) -> None:
        """Erase the session's secrets and tell the coordinator, so that nobody waits for this hospital.

        Best effort: whatever made the hospital leave matters more than whether this arrives.
        """
        try:
            self._sum.abort()
            self._client.send(self._calls.put("left"))
        except (ApiError, ConnectionFailed, UnexpectedAnswer, SecureSumRefused) as unheard:
            _LOG.warning("round %d: the session was not left in order: %s", self._plan.round, unheard)

    def _send_vectors(self, words: Mapping[str, RingVector]) -> None:
        inbox = self._send(self._calls.shown("shares", Inbox, self._party.client))
        upload = self._sum.mask(inbox, words, self._now())
        self._send(self._calls.put("masked", upload.manifest))
        failpoint("hospital.after-manifest")
        for name, vector in upload.vectors.items():
            self._send(self._calls.put_octets(name, vector.tobytes()))
        failpoint("hospital.after-octets")

    def _open(self) -> None:
        view = self._wait_past("consistency")
        # After an answer that was lost too: what was opened once is said again.
        signatures = self._send(self._calls.shown("consistency", ConsistencyList))
        message = self._sum.unmask(signatures, self._now())
        # In a later phase the others have opened the sum, and nobody asks for this share.
        if view.phase == "unmask":
            self.shares_taken = self._reply(self._calls.put("unmask", message))
            failpoint("hospital.after-unmask")
        self._wait_past("unmask")
        self._sum.check_result(self._send(self._calls.shown("result", SumResult)))

    def _reply(self, call: Call[None]) -> bool:
        """Send what the sum can also do without: this hospital's vectors are in it, others may have opened it first.

        Returns whether it was taken.
        """
        try:
            self._send(call)
        except SessionEnded as ended:
            if ended.code != "round-closed" or self._view(None).phase != "summed":
                raise
            return False
        return True

    def _wait_past(self, phase: str) -> SessionView:
        """The session, once it has left `phase`."""
        # No pause: the coordinator holds each answer back for up to POLL_SECONDS.
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

    @contextmanager
    def _leaving(self) -> Generator[None]:
        """Within, a session that ended or was refused loses its secrets. Whoever calls tells the refusal."""
        try:
            yield
        except SessionEnded as ended:
            # The coordinator knows that the session is over: only the secrets have to go.
            self._sum.abort()
            if ended.code == "different-message":
                # The state on this disk is not what was sent before: the others wait for this hospital in vain.
                self.leave()
            raise
        except SecureSumRefused:
            # No more than that: the refusal, which the caller sends, leaves the session too. Left before it, the round
            # might have ended when its reason arrives.
            self._sum.abort()
            raise
        except ApiError as error:
            # For good: the same messages, sent again, would be refused again, or this hospital is out.
            if isinstance(error, InvalidRequestError) or error.code == "revoked":
                self._sum.abort()
            raise

    def _now(self) -> int:
        # This machine's own: no word of the coordinator's makes secrets expire, or live on.
        return int(self._client.clock.read())


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

    def put(self, step: str, message: BaseModel | None = None, witness: WitnessedHead | None = None) -> Call[None]:
        """Say something as this client; without a message the step's name says it all."""
        return put(path(*self._base, step, self._client), message, witness)

    def put_octets(self, vector: str, octets: bytes) -> Call[None]:
        return Call("PUT", path(*self._base, "masked", self._client, vector), nothing, octets, OCTETS)

    def shown(self, what: str, model: type[M], *more: str) -> Call[M]:
        """What the coordinator shows of the session."""
        return get(path(*self._base, what, *more), model, answer_limit=4 * _MIB)
