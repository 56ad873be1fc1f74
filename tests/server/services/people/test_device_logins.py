"""Logins from the command line: one process asks the provider at a time, and each login ends once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from server.services.people import device_logins
from server.services.people.device_logins import (
    MOST_AT_ONCE,
    forget_login,
    give_turn_back,
    keep_login,
    require_room,
    take_turn,
)
from server.single_sign_on.logins import PendingDevice
from tests.factories.studies import FakeClock

PENDING = PendingDevice(
    user_code="ABCD-EFGH",
    verification_uri="https://id.example/device",
    verification_uri_complete=None,
    interval=5.0,
    next_poll_at=5.0,
    expires_at=600.0,
    device_code="secret-of-the-provider",
)


def unknown(act: Any, *arguments: Any) -> None:
    with pytest.raises(Rejected, match="unknown-login"):
        act(*arguments)


def test_a_login_is_kept_with_what_the_provider_answered(coordinator: Coordinator) -> None:
    token = keep_login(coordinator, PENDING, 600.0)
    assert take_turn(coordinator, token) == PENDING
    slower = replace(PENDING, interval=10.0)
    give_turn_back(coordinator, token, slower)
    assert take_turn(coordinator, token) == slower
    assert PENDING.device_code not in token


def test_one_process_asks_at_a_time(coordinator: Coordinator, clock: FakeClock) -> None:
    token = keep_login(coordinator, PENDING, 600.0)
    assert take_turn(coordinator, token) is not None
    assert take_turn(coordinator, token) is None
    # A process that was killed keeps its turn for a minute.
    clock.sleep(59.0)
    assert take_turn(coordinator, token) is None
    clock.sleep(2.0)
    assert take_turn(coordinator, token) == PENDING


def test_many_ask_in_one_moment(coordinator: Coordinator) -> None:
    token, ready = keep_login(coordinator, PENDING, 600.0), threading.Barrier(6)

    def ask(_: int) -> PendingDevice | None:
        ready.wait()
        return take_turn(coordinator, token)

    with ThreadPoolExecutor(6) as pool:
        turns = list(pool.map(ask, range(6)))
    assert sorted(turn is None for turn in turns) == [False] + 5 * [True]


def test_a_login_ends_once(coordinator: Coordinator) -> None:
    token = keep_login(coordinator, PENDING, 600.0)
    take_turn(coordinator, token)
    forget_login(coordinator, token)
    unknown(forget_login, coordinator, token)
    unknown(give_turn_back, coordinator, token, PENDING)
    unknown(take_turn, coordinator, token)


def test_a_login_takes_no_longer_than_the_provider_says(coordinator: Coordinator, clock: FakeClock) -> None:
    token = keep_login(coordinator, PENDING, 600.0)
    clock.sleep(600.0)
    unknown(take_turn, coordinator, token)


def test_another_token_asks_for_nothing(coordinator: Coordinator) -> None:
    token = keep_login(coordinator, PENDING, 600.0)
    other = keep_login(coordinator, PENDING, 600.0)
    mixed = token.rpartition("_")[0] + "_" + other.rpartition("_")[2]
    for wrong in ("", "wrl", token[:-1], token.replace("wrl_", "wrs_"), mixed, "wrl_\x00_x", "wrl_\ud800_x", "wrl_0_0"):
        unknown(take_turn, coordinator, wrong)
        unknown(forget_login, coordinator, wrong)
    assert take_turn(coordinator, token) == PENDING


def test_strangers_fill_no_more_than_their_places(
    coordinator: Coordinator, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MOST_AT_ONCE == 200
    monkeypatch.setattr(device_logins, "MOST_AT_ONCE", 3)
    for _ in range(3):
        require_room(coordinator)
        keep_login(coordinator, PENDING, 600.0)
    with pytest.raises(Rejected, match="too-many-logins"):
        require_room(coordinator)
    clock.sleep(600.0)
    require_room(coordinator)
    rows = coordinator.database.read("x", lambda tx: tx.session.scalar(text("SELECT count(*) FROM device_logins")))
    assert rows == 0, "what took too long is forgotten"


@pytest.mark.parametrize("pending", ["{}", "[]", "7", '"x"', '{"user_code": 7}', '{"more": 1}'])
def test_a_login_that_was_changed_in_the_database(coordinator: Coordinator, pending: str) -> None:
    token = keep_login(coordinator, PENDING, 600.0)
    statement = text("UPDATE device_logins SET pending = :pending")
    coordinator.database.write("x", lambda tx: tx.session.execute(statement, {"pending": pending}))
    unknown(take_turn, coordinator, token)
