"""One round's secure sum over HTTP: keys and shares before anything is paid, masked vectors after training.

Every step writes the hospital's state before it sends, so a restarted process goes on where the old one stopped. A
session that goes on without this hospital, or fails, ends in `SessionEnded`: no more messages are sent for the round.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from pydantic import BaseModel

from client_sdk.api.calls import OCTETS, POLL_SECONDS, as_document, path, put, with_values
from client_sdk.api.client import Client
from client_sdk.api.transport import Call, HttpAnswer
from client_sdk.errors import (
    ApiError,
    ConflictError,
    ConnectionFailed,
    InvalidRequestError,
    NotFoundError,
    SessionEnded,
    UnexpectedAnswer,
)
from client_sdk.secure_sum.checks import shows_totals
from client_sdk.secure_sum.refusals import ParametersRefused, SecureSumRefused
from client_sdk.secure_sum.session import Derived, MaskedUpload, SecureSumClient
from client_sdk.secure_sum.steps import Party
from client_sdk.secure_sum.store import Store
from study_protocol.secure_sum.messages import (
    MANIFEST_HEADER,
    ConsistencyList,
    Inbox,
    KeyList,
    ParameterFault,
    SessionParameters,
    SumResult,
    SurvivorList,
)
from study_protocol.secure_sum.parameters import SessionPlan
from study_protocol.secure_sum.vectors import RingVector, VectorSpec
from study_protocol.study.messages import SignedParameters, WitnessedHead
from study_protocol.study.witness import to_header
from study_protocol.wire.failpoints import failpoint, register
from study_protocol.wire.signing import to_base64url

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
_LOG = logging.getLogger(__name__)
# Bytes of an answer: of a thousand clients' keys, signatures and digests there is half a megabyte.
_MAX_ANSWER_BYTES = 4 << 20

register(
    "hospital.after-keys",
    "hospital.after-shares",
    "hospital.after-octets",
    "hospital.after-consistency",
    "hospital.after-unmask",
)


class MaskedRound:
    """This hospital's part in one round's session.

    plan           what this hospital expects of the session
    exact          hospitals sum values without noise that are new in every model: see `Privacy.sums_exact_values`
    witness        vouches for the ledger, with the keys
    derived        makes the session's secrets of fresh bytes: `Randomness.derived`
    shares_taken   the coordinator has acknowledged this hospital's shares: the sum may be opened
    """

    def __init__(
        self,
        client: Client,
        party: Party,
        plan: SessionPlan,
        store: Store,
        *,
        exact: bool = False,
        witness: WitnessedHead | None = None,
        derived: Derived = lambda fresh, use, context: fresh,
    ) -> None:
        self._witness, self.shares_taken = witness, False
        self._client, self._party = client, party
        self._plan, self._exact = plan, exact
        self._sum = SecureSumClient(party, plan.study, plan.round, store, derived=derived)
        self._calls = SessionCalls(plan.study, plan.round, party.client)
        # What the last answer brought along. Asked for where a process was started again in between.
        self._inbox: Inbox | None = None
        self._signatures: ConsistencyList | None = None

    def prepare(self, signed: SignedParameters) -> tuple[VectorSpec, ...]:
        """Keys and shares. Afterwards enough others hold shares of this hospital's secrets for training to make sense.

        signed  the session's parameters, as they came with the assignment

        Returns:
            The vectors to fill.

        Raises:
            SessionEnded: this round needs no payment and no training.
            SecureSumRefused: something that was shown is not acceptable. The session is left.
        """
        with self._leaving():
            # A session keeps the roster of its opening: the others would check with the old key, and refuse.
            if self._party.roster.get(self._party.client) != self._party.identity.public_key():
                changed = "this hospital's identity key changed after the round was opened: it takes part in the next"
                raise ParametersRefused("rotated-key", changed)
            # Started again after masking: keys and shares are behind, `complete` goes on.
            if self._sum.phase in ("masked", "confirmed", "unmasked"):
                return self._expected(signed)
            keys = self._sum.advertise(signed, self._plan, self._now())
            vectors = self._expected(signed)
            cohort = self._say("keys", keys, KeyList, self._witness)
            before = self._sum.opened_cohort() if shows_totals(vectors) else None
            shares = self._sum.share(cohort, self._now(), before, exact=self._exact)
            self._inbox = self._say("shares", shares, Inbox)
            return vectors

    def complete(self, words: Mapping[str, RingVector]) -> None:
        """Mask, send, confirm, open, and check the announced result.

        Raises:
            SessionEnded, SecureSumRefused: as `prepare`.
        """
        with self._leaving():
            survivors = None
            # Once masked too: whether every vector has arrived, a process that was killed does not know.
            if self._sum.phase in ("shared", "masked"):
                survivors = self._send_vectors(words)
            if self._sum.phase in ("masked", "confirmed"):
                survivors = survivors or self._wait_for("survivors", SurvivorList)
                message = self._sum.confirm(survivors, self._now(), exact=self._exact)
                self._signatures = self._say("consistency", message, ConsistencyList)
            self._open()

    def leave(self) -> None:
        """Erase the session's secrets and tell the coordinator, so that the others do not wait for this hospital.

        Best effort: the reason for leaving matters more than whether this arrives.
        """
        try:
            self._sum.abort()
            self._client.send(self._calls.leave())
        except (ApiError, ConnectionFailed, UnexpectedAnswer, SecureSumRefused) as unheard:
            _LOG.warning("round %d: the session was not left in order: %s", self._plan.round, unheard)

    def _send_vectors(self, words: Mapping[str, RingVector]) -> SurvivorList:
        inbox = self._inbox or self._wait_for("shares", Inbox, self._party.client)
        upload = self._sum.mask(inbox, words, self._now())
        self._inbox = None
        reply = self._send(self._calls.put_vectors(upload, POLL_SECONDS))
        failpoint("hospital.after-octets")
        return reply or self._wait_for("survivors", SurvivorList)

    def _open(self) -> None:
        # After an answer that was lost too: what was opened once is said again.
        signatures = self._signatures or self._wait_for("consistency", ConsistencyList)
        message = self._sum.unmask(signatures, self._now())
        result: SumResult | None = None
        try:
            result = self._send(self._calls.put("unmask", message, SumResult, POLL_SECONDS))
            self.shares_taken = True
        except SessionEnded as ended:
            # The others have opened the sum, and nobody asks for these shares.
            if ended.code != "round-closed":
                raise
        failpoint("hospital.after-unmask")
        self._sum.check_result(result or self._wait_for("result", SumResult))

    def _say(self, step: str, message: BaseModel, then: type[M], witness: WitnessedHead | None = None) -> M:
        """Send a message, and wait for the list that all hospitals' messages make."""
        reply: M | None = None
        try:
            reply = self._send(self._calls.put(step, message, then, POLL_SECONDS, witness))
        except SessionEnded as ended:
            # A signature that is not needed any more: there are enough, and the list is there.
            if step != "consistency" or ended.code != "round-closed":
                raise
        failpoint(f"hospital.after-{step}")
        return reply or self._wait_for(step, then, *([self._party.client] if step == "shares" else []))

    def _wait_for(self, list_name: str, model: type[M], *more: str) -> M:
        """A list, once it is frozen."""
        # No pause: the coordinator holds each answer back for up to POLL_SECONDS.
        while (reply := self._send(self._calls.session_list(list_name, model, POLL_SECONDS, *more))) is None:
            pass
        return reply

    def _expected(self, signed: SignedParameters) -> tuple[VectorSpec, ...]:
        # The number of clients is the coordinator's.
        try:
            return self._plan.vectors(SessionParameters.from_bytes(signed.parameters).clients)
        except ParameterFault as fault:
            raise ParametersRefused(fault.code, str(fault)) from fault

    def _send(self, call: Call[T]) -> T:
        try:
            return self._client.send(call)
        except (ConflictError, NotFoundError) as error:
            # Why it failed says more than that it did.
            failure = (error.problem.extra or {}).get("failure")
            raise SessionEnded(failure if isinstance(failure, str) else error.code) from error

    @contextmanager
    def _leaving(self) -> Generator[None]:
        """Within, a session that ended or was refused loses its secrets. The caller tells the refusal."""
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
    """Addresses of one round's session. Every answer is held back for `wait_seconds` while it would be empty."""

    def __init__(self, study: str, round_number: int, client: str) -> None:
        self._base = ("studies", study, "rounds", round_number, "secure-sum")
        self._client = client

    def put(
        self, step: str, message: BaseModel, then: type[M], wait_seconds: float, witness: WitnessedHead | None = None
    ) -> Call[M | None]:
        """Say something as this client. The answer is the list that follows, None where it is not frozen yet."""
        target = with_values(path(*self._base, step, self._client), wait=f"{wait_seconds:g}")
        body, headers = message.model_dump_json().encode(), {} if witness is None else to_header(witness)
        return Call(
            "PUT",
            target,
            _or_null(then),
            body,
            "application/json",
            headers,
            quiet_seconds=wait_seconds,
            answer_limit=_MAX_ANSWER_BYTES,
        )

    def put_vectors(self, upload: MaskedUpload, wait_seconds: float) -> Call[SurvivorList | None]:
        """All masked vectors in one body, under their manifest."""
        target = with_values(path(*self._base, "masked", self._client), wait=f"{wait_seconds:g}")
        manifest = {MANIFEST_HEADER: to_base64url(upload.manifest.model_dump_json().encode())}
        body = b"".join(vector.tobytes() for vector in upload.vectors.values())
        return Call(
            "PUT",
            target,
            _or_null(SurvivorList),
            body,
            OCTETS,
            manifest,
            quiet_seconds=wait_seconds,
            answer_limit=_MAX_ANSWER_BYTES,
        )

    def leave(self) -> Call[None]:
        return put(path(*self._base, "left", self._client))

    def session_list(self, list_name: str, model: type[M], wait_seconds: float, *more: str) -> Call[M | None]:
        """Request a list of the session, which is None while it is not frozen."""
        target = with_values(path(*self._base, list_name, *more), wait=f"{wait_seconds:g}")
        return Call("GET", target, _or_null(model), quiet_seconds=wait_seconds, answer_limit=_MAX_ANSWER_BYTES)


def _or_null(model: type[M]) -> Callable[[HttpAnswer], M | None]:
    read = as_document(model)
    return lambda answer: None if answer.status == 204 or answer.body == b"null" else read(answer)
