"""A hospital's part in a session whose coordinator answers from a script: what ends it, and what is left behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client_sdk.api.client import Client, ServerClock, Signature
from client_sdk.api.config import Connection
from client_sdk.api.transport import Transport
from client_sdk.errors import ApiError, SessionEnded
from client_sdk.secure_sum.refusals import CohortRefused, ParametersRefused, SurvivorsRefused
from client_sdk.secure_sum.round import MaskedRound
from client_sdk.secure_sum.store import Opened, keep_opened
from server.domain import secure_sum as domain
from server.domain import secure_sum as views
from server.domain import secure_sum_recovery as recovery
from study_protocol.secure_sum.messages import SurvivorList
from study_protocol.secure_sum.vectors import VectorSpec, cost_vector, count_vector
from tests.factories.coordinator_in_process import ORIGIN
from tests.factories.secure_sum import NOW, ROUND, STUDY, Run, World, small_counts
from tests.factories.wire_answers import problem, reply

MINE = "h000"
LEFT = f"PUT /left/{MINE}"


class Scripted:
    """Plays the coordinator of `run` for one hospital; the others take their steps in the same process."""

    def __init__(self, run: Run) -> None:
        self.run, self.world = run, run.world
        self.seen: list[str] = []
        self.answers: dict[str, Callable[[], httpx.Response]] = {}
        self.on_octets: Callable[[], None] = lambda: None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        what = request.url.path.partition("/secure-sum")[2]
        called = f"{request.method} {what or '/'}"
        self.seen.append(called)
        if called in self.answers:
            return self.answers[called]()
        step = {"GET /keys": views.key_list, "GET /survivors": views.survivor_list}.get(called)
        if step is not None:
            return reply(step(self.run.session))
        if called == f"GET /shares/{MINE}":
            return reply(views.inbox(self.run.session, MINE))
        if request.method == "PUT" and what.split("/")[1] in ("keys", "shares"):
            # Whatever this hospital said is said already: its store answers alike when the run drives it.
            getattr(self.run, what.split("/")[1])()
        if called == f"PUT /masked/{MINE}":
            self.on_octets()
        # Recorded, and what follows is asked for by itself.
        return httpx.Response(201, content=b"null")

    def round(self) -> MaskedRound:
        hospital = self.world.hospitals[MINE]
        connection = Connection(url="https://dialled.example", patience_seconds=5.0)
        transport = Transport(connection, handler=httpx.MockTransport(self))
        credentials = Signature(hospital.identity, MINE, STUDY, ORIGIN)
        api = Client(
            connection, credentials, transport=transport, clock=ServerClock(lambda: float(NOW)), sleep=lambda _: None
        )
        return MaskedRound(api, hospital.party, self.world.plan, hospital.store)

    @property
    def phase(self) -> str:
        return self.world.hospitals[MINE].client.phase


@pytest.fixture
def scripted() -> Scripted:
    world = World(5)
    return Scripted(Run(world, small_counts(world)))


def test_a_session_that_failed_ends_before_anything_is_paid(scripted: Scripted) -> None:
    failed = problem(409, "session-failed", extra={"failure": "too-few-keys"})
    scripted.answers[f"PUT /keys/{MINE}"] = lambda: failed
    with pytest.raises(SessionEnded) as ended:
        scripted.round().prepare(scripted.run.signed)
    assert (ended.value.code, scripted.phase) == ("too-few-keys", "ended")
    assert scripted.seen == [f"PUT /keys/{MINE}"]


def test_keys_and_shares_make_a_round_ready(scripted: Scripted) -> None:
    assert scripted.round().prepare(scripted.run.signed) == scripted.world.vectors
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
        scripted.round().prepare(scripted.run.signed)
    assert "h001" in str(refused.value)
    assert scripted.phase == "ended"
    # The refusal, which the participation sends, leaves the session as well.
    assert scripted.seen[-1] == "GET /keys"


def test_a_hospital_that_changed_its_key_since_the_opening_says_so(scripted: Scripted) -> None:
    hospital = scripted.world.hospitals[MINE]
    hospital.party = replace(hospital.party, identity=Ed25519PrivateKey.generate())
    with pytest.raises(ParametersRefused, match="takes part in the next") as refused:
        scripted.round().prepare(scripted.run.signed)
    assert (refused.value.code, scripted.seen) == ("rotated-key", [])


@pytest.mark.parametrize(("status", "code", "phase"), [(403, "revoked", "ended"), (422, "invalid-request", "ended")])
def test_what_is_refused_for_good_leaves_no_secrets(scripted: Scripted, status: int, code: str, phase: str) -> None:
    scripted.answers[f"PUT /shares/{MINE}"] = lambda: problem(status, code)
    with pytest.raises(ApiError, match=code):
        scripted.round().prepare(scripted.run.signed)
    assert scripted.phase == phase


def test_what_may_be_mended_keeps_the_secrets_for_who_starts_again(scripted: Scripted) -> None:
    scripted.answers[f"PUT /shares/{MINE}"] = lambda: problem(401, "bad-signature")
    with pytest.raises(ApiError, match="bad-signature"):
        scripted.round().prepare(scripted.run.signed)
    assert scripted.phase == "shared"


def test_a_vector_this_hospital_would_not_send_is_refused(scripted: Scripted) -> None:
    hospital = scripted.round()
    hospital._plan = replace(hospital._plan, vectors=lambda _: ())
    with pytest.raises(ParametersRefused):
        hospital.prepare(scripted.run.signed)
    assert scripted.seen == []


@pytest.mark.parametrize("answer", [problem(403, "forbidden"), problem(404, "no-session"), httpx.Response(502)])
def test_what_ended_the_session_is_told_even_if_nobody_hears_that_the_hospital_left(
    scripted: Scripted, answer: httpx.Response
) -> None:
    scripted.answers |= {f"PUT /keys/{MINE}": lambda: problem(409, "different-message"), LEFT: lambda: answer}
    with pytest.raises(SessionEnded):
        scripted.round().prepare(scripted.run.signed)
    assert (scripted.phase, scripted.seen[-1]) == ("ended", LEFT)


def test_a_survivor_list_that_is_refused_erases_the_secrets(scripted: Scripted) -> None:
    hospital = scripted.round()
    hospital.prepare(scripted.run.signed)
    scripted.answers |= {"GET /survivors": lambda: reply(SurvivorList(entries=()))}
    scripted.on_octets = lambda: setattr(scripted.run, "session", replace(scripted.run.session, phase="consistency"))
    with pytest.raises(SurvivorsRefused):
        hospital.complete({"terms": np.array([1, 2, 3], "<u4")})
    assert (scripted.phase, scripted.seen[-1]) == ("ended", "GET /survivors")


def test_keys_that_contradict_earlier_ones_end_in_leaving(scripted: Scripted) -> None:
    scripted.answers[f"PUT /keys/{MINE}"] = lambda: problem(409, "different-message")
    with pytest.raises(SessionEnded) as ended:
        scripted.round().prepare(scripted.run.signed)
    assert (ended.value.code, scripted.phase, scripted.seen[-1]) == ("different-message", "ended", LEFT)


def test_vectors_that_come_too_late_end_the_session(scripted: Scripted) -> None:
    late = f"PUT /masked/{MINE}"
    scripted.answers[late] = lambda: problem(410, "round-closed")
    hospital = scripted.round()
    hospital.prepare(scripted.run.signed)
    words: dict[str, Any] = {"terms": np.array([1, 2, 3], "<u4")}
    with pytest.raises(SessionEnded) as ended:
        hospital.complete(words)
    assert ended.value.code == "round-closed"
    assert scripted.phase == "ended"
    assert scripted.seen[-1] == late


@pytest.mark.parametrize("step", ["consistency", "unmask"])
def test_a_reply_that_came_after_the_others_had_opened_the_sum_is_not_missed(step: str) -> None:
    world = World(5)
    run = Run(world, small_counts(world), lost={step: {MINE}})
    scripted = Scripted(run)
    hospital = scripted.round()
    hospital.prepare(scripted.run.signed)

    def others_reply() -> None:
        for taken in (run.masked, run.consistency, run.unmask):
            taken()

    def too_late() -> httpx.Response:
        run.session, result = recovery.summed(run.session, {"terms": bytes(32)}, world.coordinator.sign)
        scripted.answers["GET /result"] = lambda: reply(result)
        return problem(410, "round-closed")

    scripted.on_octets = others_reply
    scripted.answers |= {
        f"PUT /{step}/{MINE}": too_late,
        "GET /consistency": lambda: reply(views.consistency_list(run.session)),
    }
    hospital.complete({"terms": small_counts(world)[MINE]["terms"]})
    assert (run.session.phase, len(run.session.unmasks)) == ("summed", 4)
    assert scripted.seen[-1] == "GET /result"
    assert world.hospitals[MINE].client.released
    assert (scripted.phase, LEFT in scripted.seen) == ("idle", False)


def opened_before(world: World, round_number: int, cohort: frozenset[str]) -> None:
    """As after an earlier round whose sum this hospital helped to open."""
    names = tuple(sorted(cohort))
    # Every round from a model of its own, as where each is released.
    opened = Opened(round=round_number, cohort=names, survivors=names, model=f"{round_number:064}")
    keep_opened(world.hospitals[MINE].store, STUDY, opened)


@pytest.mark.parametrize(
    ("vector", "refused"), [(cost_vector("metrics", 1, 7), True), (count_vector("terms", 3, 7), False)]
)
def test_totals_are_not_summed_over_one_client_more_or_less_than_last_time(vector: VectorSpec, refused: bool) -> None:
    world = World(5, vectors=[vector])
    scripted = Scripted(Run(world, {}))
    opened_before(world, ROUND - 3, frozenset(world.names))
    opened_before(world, ROUND - 2, frozenset(world.names) - {"h004"})
    if not refused:
        assert scripted.round().prepare(scripted.run.signed) == world.vectors
        return
    with pytest.raises(CohortRefused, match="differs from the last one by one"):
        scripted.round().prepare(scripted.run.signed)
    assert (scripted.phase, scripted.seen[-1]) == ("ended", "GET /keys")


@pytest.mark.parametrize("gone", [set[str](), {"h005", "h006"}])
def test_totals_over_the_same_clients_or_without_two_are_summed(gone: set[str]) -> None:
    world = World(5, vectors=[cost_vector("metrics", 1, 7)])
    opened_before(world, ROUND - 1, frozenset(world.names) | gone)
    scripted = Scripted(Run(world, {}))
    assert scripted.round().prepare(scripted.run.signed) == world.vectors
