"""A secure sum over HTTP: steps that may be repeated, in one's own name only, and phases that are waited for."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.factories.hospital_double import MODEL, Hospital
from tests.factories.live_coordinator import Live, code_of, live
from tests.factories.masked_studies import MaskedHospital, Turn
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
    assert early.status_code == 409, early.text
    opened.take("keys")
    shown = here.signed(opened.hospitals[0], "GET", f"{opened.path}/keys").json()
    assert {entry["client"] for entry in shown["entries"]} == set(NAMES)
    inbox = here.signed(opened.hospitals[0], "GET", f"{opened.path}/shares/south")
    assert code_of(inbox) == (403, "forbidden"), "shares are sealed for one hospital"


def test_the_phase_is_waited_for(here: Live, opened: Session) -> None:
    assert here.signed(opened.hospitals[0], "GET", f"{opened.path}?wait=0").json()["phase"] == "keys"
    opened.take("keys")
    moved = here.signed(opened.hospitals[0], "GET", f"{opened.path}?phase=keys&wait=20").json()
    assert moved["phase"] == "shares"


def test_a_masked_vector_is_octets_that_their_manifest_names(here: Live, opened: Session) -> None:
    opened.take("keys", "shares", "masked")
    who, words = opened.hospitals[0], opened.turns[0].upload().vectors["update"].tobytes()
    path, octets = f"{opened.path}/masked/north/update", "application/octet-stream"
    other = bytes(len(words))
    assert here.signed(who, "PUT", path, other, octets).status_code in (409, 422)
    assert [here.signed(who, "PUT", path, words, octets).status_code for _ in range(2)] == [201, 200]
    assert here.signed(who, "PUT", f"{opened.path}/masked/north/nothing", words, octets).status_code in (404, 422)


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
        session.take("masked")
        words = turns[0].upload().vectors["update"].tobytes()
        path = f"{session.path}/masked/h0/update"
        sent = [here.signed(hospitals[0], "PUT", path, words, "application/octet-stream") for _ in range(2)]
        assert len(words) > 1024
        assert [answer.status_code for answer in sent] == [201, 200]


def test_a_round_that_is_not_masked_has_no_session(here: Live, study: str) -> None:
    north, _ = here.running(study, "north", "south")
    answer = here.signed(north, "GET", f"/v1/studies/{study}/rounds/1/secure-sum?wait=0")
    assert answer.status_code == 404
