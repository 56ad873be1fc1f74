"""A hospital's part in a session whose coordinator answers from a script: what ends it, and what is left behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest

from client_sdk._exchange import Clock
from client_sdk._transport import Transport
from client_sdk.client import Client
from client_sdk.config import Connection
from client_sdk.credentials import Signature
from client_sdk.masked_round import MaskedRound, SessionEnded
from client_sdk.protocol.secure_sum_messages import SessionView
from client_sdk.secure_sum_refusals import CohortRefused, ParametersRefused
from server.domain import secure_sum as domain
from server.domain import secure_sum_views as views
from tests.coordinator_in_process import ORIGIN, problem, reply
from tests.secure_sum_hospitals import MODEL, NOW, ROUND, STUDY, Run, World, small_counts

MINE = "h000"


class Scripted:
    """Plays the coordinator of `run` for one hospital; the others take their steps in the same process."""

    def __init__(self, run: Run) -> None:
        self.run, self.world = run, run.world
        self.seen: list[str] = []
        self.answers: dict[str, Callable[[], httpx.Response]] = {}
        self.failure: str | None = None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        what = request.url.path.partition("/secure-sum")[2]
        called = f"{request.method} {what or '/'}"
        self.seen.append(called)
        if called in self.answers:
            return self.answers[called]()
        if called == "GET /":
            phase = "failed" if self.failure else self.run.session.phase
            return reply(SessionView(signed=self.run.signed, phase=phase, failure=self.failure))
        step = {"GET /keys": views.key_list, "GET /survivors": views.survivor_list}.get(called)
        if step is not None:
            return reply(step(self.run.session))
        if called == f"GET /shares/{MINE}":
            return reply(views.inbox(self.run.session, MINE))
        if request.method == "PUT" and what.split("/")[1] in ("keys", "shares"):
            # Whatever this hospital said is said already: its store answers alike when the run drives it.
            getattr(self.run, what.split("/")[1])()
        return httpx.Response(201)

    def round(self) -> MaskedRound:
        hospital = self.world.hospitals[MINE]
        connection = Connection(url="https://dialled.example", patience_seconds=5.0)
        transport = Transport(connection, handler=httpx.MockTransport(self))
        credentials = Signature(hospital.identity, MINE, STUDY, ORIGIN)
        api = Client(
            connection, credentials, transport=transport, clock=Clock(lambda: float(NOW)), sleep=lambda _: None
        )
        return MaskedRound(api, hospital.party, STUDY, ROUND, MODEL, lambda _: self.world.vectors, hospital.store)

    @property
    def phase(self) -> str:
        return self.world.hospitals[MINE].client.phase


@pytest.fixture
def scripted() -> Scripted:
    world = World(5)
    return Scripted(Run(world, small_counts(world)))


def test_a_session_that_failed_ends_before_anything_is_sent(scripted: Scripted) -> None:
    scripted.failure = "too-few-keys"
    with pytest.raises(SessionEnded) as ended:
        scripted.round().prepare()
    assert (ended.value.code, scripted.seen) == ("too-few-keys", ["GET /"])


def test_keys_and_shares_make_a_round_ready(scripted: Scripted) -> None:
    assert scripted.round().prepare() == scripted.world.vectors
    assert scripted.phase == "shared"
    assert isinstance(scripted.run.session, domain.Session)
    assert scripted.run.session.phase == "masked"


def test_a_list_with_a_swapped_key_is_refused_in_words_and_the_session_left(scripted: Scripted) -> None:
    def swapped() -> httpx.Response:
        shown = views.key_list(scripted.run.session)
        first, second, *rest = shown.entries
        forged = second.model_copy(update={"mask_key": bytes(reversed(second.mask_key))})
        return reply(shown.model_copy(update={"entries": (first, forged, *rest)}))

    scripted.answers["GET /keys"] = swapped
    with pytest.raises(CohortRefused) as refused:
        scripted.round().prepare()
    assert "h001" in str(refused.value)
    assert scripted.phase == "ended"
    assert not any(called.startswith("PUT /shares") for called in scripted.seen)


def test_a_vector_this_hospital_would_not_send_is_refused(scripted: Scripted) -> None:
    hospital = scripted.round()
    hospital._vectors_for = lambda _: ()
    with pytest.raises(ParametersRefused):
        hospital.prepare()
    assert scripted.seen == ["GET /"]


@pytest.mark.parametrize("late", [f"PUT /masked/{MINE}", f"PUT /masked/{MINE}/terms"])
def test_vectors_that_come_too_late_end_the_session(scripted: Scripted, late: str) -> None:
    scripted.answers[late] = lambda: problem(410, "round-closed")
    hospital = scripted.round()
    hospital.prepare()
    words: dict[str, Any] = {"terms": np.array([1, 2, 3], "<u4")}
    with pytest.raises(SessionEnded) as ended:
        hospital.complete(words)
    assert ended.value.code == "round-closed"
    assert scripted.phase == "ended"
    assert scripted.seen[-1] == late
