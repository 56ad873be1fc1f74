"""A round over HTTP on each kind of database, with everybody talking at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.factories.hospital_double import Hospital, update
from tests.factories.live_coordinator import PROGRAM, Live, live
from tests.factories.settings import settings

NAMES = [f"hospital-{number}" for number in range(8)]


@pytest.fixture
def busy(database_url: str, tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path / "home", database_url=database_url) as coordinator:
        yield coordinator


def _all_in_round_one(busy: Live) -> list[Hospital]:
    chosen = settings(expected_clients=8.0, schedule={"min_clients": 8})
    return busy.running("ward", *NAMES, settings=chosen)


@pytest.mark.quick("sqlite")
def test_everybody_sends_at_once_and_twice(busy: Live) -> None:
    hospitals = _all_in_round_one(busy)
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda who: busy.put_update(who, 1, update()), hospitals * 2))
    # Two copies on their way at the same time may both be new to begin with; one of them is recorded.
    assert Counter(answer.status_code for answer in answers) == {201: 8, 200: 8}
    busy.work()
    shown = busy.operator("GET", "/v1/studies/ward/rounds/1").json()
    assert shown["state"] == "released"
    assert {client["state"] for client in shown["clients"]} == {"received"}
    kinds = [entry["kind"] for entry in busy.operator("GET", "/v1/studies/ward/ledger").json()["entries"]]
    assert [kind for kind in kinds if kind not in ("roster", "operated", "released")] == [
        "opened",
        "reserved",
        "settled",
        "reserved",
    ]


@pytest.mark.slow
def test_two_different_updates_at_once_leave_one(busy: Live) -> None:
    who = _all_in_round_one(busy)[0]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: busy.put_update(who, 1, update(0.01 * n)), range(1, 9)))
    assert Counter(answer.status_code for answer in answers) == {201: 1, 409: 7}
    kept = next(answer.json()["sha256"] for answer in answers if answer.status_code == 201)
    clients = busy.operator("GET", "/v1/studies/ward/rounds/1").json()["clients"]
    assert next(client["sha256"] for client in clients if client["client"] == who.name) == kept


@pytest.mark.quick("sqlite")
def test_a_token_for_a_post_passes_once_however_many_come(busy: Live) -> None:
    busy.open_study("ward")
    who = busy.enrol("ward", "north")
    token = busy.token(who, "POST", "/v1/studies/ward/start", token_id="once-and-only-once")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: busy.send("POST", "/v1/studies/ward/start", token), range(8)))
    assert Counter(answer.json()["code"] for answer in answers) == {"forbidden": 1, "replayed": 7}


@pytest.mark.quick("sqlite")
def test_one_invitation_admits_one_key_however_many_come(busy: Live) -> None:
    busy.open_study("ward")
    token = busy.invite("ward", "north")
    requests = [busy.enrolment(busy.hospital("ward", "north"), token) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        enrol = partial(busy.send, "POST", "/v1/enrolments", headers=PROGRAM)
        answers = list(pool.map(lambda request: enrol(json=request), requests))
    assert Counter(answer.status_code for answer in answers) == {201: 1, 409: 7}
    assert len(busy.operator("GET", "/v1/studies/ward/roster").json()["members"]) == 1
