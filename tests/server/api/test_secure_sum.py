"""A secure sum over HTTP: steps that may be repeated, in one's own name only, and phases that are waited for."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from client_sdk.secure_sum.session import MaskedUpload
from server.api.secure_sum import router
from server.services.secure_sum import exchanges
from study_protocol.secure_sum.messages import MANIFEST_HEADER
from study_protocol.wire.signing import to_base64url
from tests.factories.hospital_double import MODEL, Hospital
from tests.factories.live_coordinator import Live, code_of, live
from tests.factories.masked_studies import MaskedHospital, Turn, body_of
from tests.factories.settings import settings
from tests.factories.studies import open_study

NAMES = ("north", "south", "east", "west")


class Session(NamedTuple):
    path: str
    hospitals: list[Hospital]
    turns: list[Turn]

    def take(self, *steps: str) -> None:
        for step in steps:
            for turn in self.turns:
                turn.take(step)

    def take_all_but_first(self, step: str) -> None:
        for turn in self.turns[1:]:
            turn.take(step)


@pytest.fixture
def opened(here: Live, study: str) -> Session:
    chosen = settings(masked=True)
    hospitals = here.running(study, *NAMES, settings=chosen)
    update = {name: np.full_like(array, 0.01) for name, array in MODEL.items()}
    turns = [MaskedHospital(who, update).session(here.coordinator, chosen, 1) for who in hospitals]  # type: ignore[arg-type]
    for turn in turns:
        turn.now = int(time.time())
    return Session(f"/v1/studies/{study}/rounds/1/secure-sum", hospitals, turns)


def test_a_step_is_written_once_and_may_be_repeated(here: Live, opened: Session) -> None:
    body = opened.turns[0].keys_message().model_dump_json().encode()
    answers = [here.signed(opened.hospitals[0], "PUT", f"{opened.path}/keys/north", body) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 200]


def test_nobody_speaks_for_another(here: Live, opened: Session) -> None:
    body = opened.turns[0].keys_message().model_dump_json().encode()
    assert code_of(here.signed(opened.hospitals[1], "PUT", f"{opened.path}/keys/north", body)) == (403, "forbidden")
    assert code_of(here.signed(opened.hospitals[1], "PUT", f"{opened.path}/keys/south", body)) == (403, "forbidden")


def test_a_list_is_shown_when_its_step_is_over(here: Live, opened: Session) -> None:
    early = here.signed(opened.hospitals[0], "GET", f"{opened.path}/keys")
    assert early.status_code == 204, early.text
    opened.take("keys")
    shown = here.signed(opened.hospitals[0], "GET", f"{opened.path}/keys").json()
    assert {entry["client"] for entry in shown["entries"]} == set(NAMES)
    inbox = here.signed(opened.hospitals[0], "GET", f"{opened.path}/shares/south")
    assert code_of(inbox) == (403, "forbidden"), "shares are sealed for one hospital"


def test_a_step_is_answered_with_the_list_that_follows(here: Live, opened: Session) -> None:
    bodies = [turn.keys_message().model_dump_json().encode() for turn in opened.turns]
    asked = [f"{opened.path}/keys/{name}" for name in NAMES]
    alone = here.signed(opened.hospitals[0], "PUT", asked[0], bodies[0])
    assert (alone.status_code, alone.json()) == (201, None), "nobody else is here yet"
    with ThreadPoolExecutor(len(NAMES)) as pool:
        sent = pool.map(
            lambda i: here.signed(opened.hospitals[i], "PUT", f"{asked[i]}?wait=20", bodies[i]), range(len(NAMES))
        )
        answers = list(sent)
    assert sorted(answer.status_code for answer in answers) == [200, 201, 201, 201]
    assert len({answer.content for answer in answers}) == 1
    assert {entry["client"] for entry in answers[0].json()["entries"]} == set(NAMES)


def test_whoever_is_revoked_while_it_waits_is_shown_nothing(here: Live, opened: Session, study: str) -> None:
    north = opened.hospitals[0]
    body = opened.turns[0].keys_message().model_dump_json().encode()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(here.signed, north, "PUT", f"{opened.path}/keys/north?wait=20", body)
        while not here.watcher.waiting:
            time.sleep(0.01)
        here.operator("PUT", f"/v1/studies/{study}/clients/north/revoked")
        opened.take_all_but_first("keys")
        assert code_of(waiting.result()) == (403, "revoked")


def test_the_phase_is_waited_for(here: Live, opened: Session) -> None:
    assert here.signed(opened.hospitals[0], "GET", f"{opened.path}?wait=0").json()["phase"] == "keys"
    opened.take("keys")
    moved = here.signed(opened.hospitals[0], "GET", f"{opened.path}?phase=keys&wait=20").json()
    assert moved["phase"] == "shares"


def sealed(upload: MaskedUpload) -> dict[str, str]:
    return {MANIFEST_HEADER: to_base64url(upload.manifest.model_dump_json().encode())}


def test_masked_vectors_are_octets_that_their_manifest_names(here: Live, opened: Session) -> None:
    opened.take("keys", "shares")
    who, upload = opened.hospitals[0], opened.turns[0].upload()
    body, path, octets = body_of(upload), f"{opened.path}/masked/north", "application/octet-stream"
    for wrong in (bytes(len(body)), body[:-1], body + b"\0", b""):
        assert here.signed(who, "PUT", path, wrong, octets, sealed(upload)).status_code in (409, 413, 422)
    for header in ({}, {MANIFEST_HEADER: "none"}, {MANIFEST_HEADER: to_base64url(b"{}")}):
        assert here.signed(who, "PUT", path, body, octets, header).status_code == 422
    others = sealed(opened.turns[1].upload())
    assert code_of(here.signed(who, "PUT", path, body, octets, others)) == (403, "forbidden")
    sent = [here.signed(who, "PUT", path, body, octets, sealed(upload)).status_code for _ in range(2)]
    assert sent == [201, 200]


def revoking(here: Live, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator puts the client out while the body of its next request comes in."""
    known = exchanges.begin_octets

    def begin(*asked: Any) -> Any:
        slot = known(*asked)
        here.operator("PUT", f"/v1/studies/{slot.study}/clients/{name}/revoked")
        return slot

    monkeypatch.setattr(exchanges, "begin_octets", begin)


@pytest.mark.parametrize("repeated", [False, True])
def test_whoever_is_revoked_while_its_message_is_recorded_is_shown_nothing(
    here: Live, opened: Session, monkeypatch: pytest.MonkeyPatch, repeated: bool
) -> None:
    who, message = opened.hospitals[0], opened.turns[0].keys_message().model_dump_json().encode()
    if repeated:
        opened.take("keys")
    known = exchanges.put

    async def put(*asked: Any, **more: Any) -> Any:
        heard = await known(*asked, **more)
        await asyncio.to_thread(here.operator, "PUT", f"/v1/studies/{asked[1]}/clients/north/revoked")
        return heard

    monkeypatch.setattr(exchanges, "put", put)
    sent = here.signed(who, "PUT", f"{opened.path}/keys/north?wait=5", message, "application/json")
    assert code_of(sent) == (403, "revoked")


@pytest.mark.parametrize("repeated", [False, True])
def test_whoever_is_revoked_while_its_vectors_come_in_is_shown_nothing(
    here: Live, opened: Session, monkeypatch: pytest.MonkeyPatch, repeated: bool
) -> None:
    opened.take("keys", "shares")
    who, upload = opened.hospitals[0], opened.turns[0].upload()
    if repeated:
        opened.take("masked")
    revoking(here, "north", monkeypatch)
    sent = here.signed(
        who, "PUT", f"{opened.path}/masked/north?wait=5", body_of(upload), "application/octet-stream", sealed(upload)
    )
    assert code_of(sent) == ((403, "revoked") if repeated else (410, "round-closed"))


def test_what_is_said_again_is_answered_with_what_this_process_has_not_seen_yet(
    here: Live, opened: Session, study: str
) -> None:
    """Its answer was lost, or the coordinator was started anew: nobody waits for news that have been."""
    body = opened.turns[0].keys_message().model_dump_json().encode()
    opened.take("keys")
    here.coordinator.sessions.forget(study, 1)
    again = here.signed(opened.hospitals[0], "PUT", f"{opened.path}/keys/north?wait=1", body)
    assert again.status_code == 200
    assert {entry["client"] for entry in again.json()["entries"]} == set(NAMES)


def test_a_vector_longer_than_any_other_body_may_be_repeated(tmp_path: Path) -> None:
    """Whose answer was lost sends it again, whatever the limit of small messages is."""
    chosen, model = settings(masked=True), {"weight": np.zeros(1_000, np.float32)}
    with live(tmp_path, body_limit_bytes=1024) as here:
        hospitals = open_study(here.coordinator, clients=len(NAMES), model=model, settings=chosen)
        here.work()
        turns = [MaskedHospital(who, model).session(here.coordinator, chosen, 1) for who in hospitals]
        for turn in turns:
            turn.now = int(time.time())
        session = Session("/v1/studies/sepsis/rounds/1/secure-sum", hospitals, turns)
        session.take("keys")
        here.work()
        session.take("shares")
        here.work()
        upload = turns[0].upload()
        words, path, octets = body_of(upload), f"{session.path}/masked/h0", "application/octet-stream"
        sent = [here.signed(hospitals[0], "PUT", path, words, octets, sealed(upload)) for _ in range(2)]
        assert len(words) > 1024
        assert [answer.status_code for answer in sent] == [201, 200]


def test_a_round_that_is_not_masked_has_no_session(here: Live, study: str) -> None:
    north, _ = here.running(study, "north", "south")
    answer = here.signed(north, "GET", f"/v1/studies/{study}/rounds/1/secure-sum?wait=0")
    assert answer.status_code == 404


def test_what_a_client_says_is_written_in_its_own_name_at_every_step() -> None:
    """Every route that writes names the client, and none of them can be read by GET but a client's own inbox."""
    routes = [(route.path, method) for route in router.routes for method in route.methods]  # type: ignore[attr-defined]
    written = {path.removeprefix(router.prefix) for path, method in routes if method == "PUT"}
    assert written == {f"/{step}/{{client}}" for step in ("keys", "shares", "masked", "consistency", "unmask", "left")}
    assert {method for _, method in routes} == {"GET", "PUT"}
    read = {path.removeprefix(router.prefix) for path, method in routes if method == "GET"}
    assert {path for path in read if "{client}" in path} == {"/shares/{client}"}
