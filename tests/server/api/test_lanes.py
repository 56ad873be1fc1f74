"""One caller with many requests keeps nobody else waiting, and is told when to come again."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from client_sdk.api.client import ApiKey, Client
from client_sdk.api.config import Connection
from server.api import events, lanes
from server.api.lanes import Lane, Lanes
from server.api.problems import ApiProblem
from server.db.session import Database
from server.services import certificates
from server.services.studies import lifecycle
from tests.factories.hospital_double import update
from tests.factories.live_coordinator import Live, code_of, live

# What one caller asks at once, as in the attack.
MANY = 120


@pytest.fixture
def attacked(database_url: str, tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path / "home", database_url=database_url) as here:
        hospitals = here.running("ward", "north", "south")
        for who in hospitals:
            assert here.put_update(who, 1, update()).status_code == 201
        here.work()
        yield here


class Held:
    """Work that stands still until `released`; `most` of it stood still at once."""

    def __init__(self) -> None:
        self.released, self._lock = threading.Event(), threading.Lock()
        self.now = self.most = 0

    def __call__(self, work: Any) -> Any:
        def held(*given: Any, **named: Any) -> Any:
            with self._lock:
                self.now += 1
                self.most = max(self.most, self.now)
            self.released.wait(120)
            with self._lock:
                self.now -= 1
            return work(*given, **named)

        return held


def _one_after_another(here: Live, key: str, path: str, count: int, held: Held, pool: ThreadPoolExecutor) -> list[Any]:
    """So many requests with this key, all of them under way or refused."""
    asked = [pool.submit(here.send, "GET", path, key, timeout=90) for _ in range(count)]
    while held.now < lanes.HEAVY_OF_ONE:
        assert not all(one.done() for one in asked)
    return asked


def _others(here: Live, held: Held, *paths: str) -> list[int]:
    """What another caller is answered meanwhile, on a connection of its own; with all threads taken it times out."""
    headers = {"Authorization": f"Bearer {here.operator_key}"}
    try:
        with httpx.Client(base_url=here.url, trust_env=False, timeout=20, headers=headers) as other:
            return [other.get(path).status_code for path in paths]
    finally:
        held.released.set()


@pytest.mark.slow
def test_certificates_of_one_caller_leave_room_for_a_list(attacked: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held()
    monkeypatch.setattr(certificates, "certificate", held(certificates.certificate))
    path = "/v1/studies/ward/certificate"
    with ThreadPoolExecutor(MANY) as pool:
        asked = _one_after_another(attacked, attacked.viewer_key, path, MANY, held, pool)
        assert _others(attacked, held, "/v1/studies", "/v1/studies/ward/budget") == [200, 200]
        answers = [one.result() for one in asked]
    assert held.most <= lanes.HEAVY_OF_ONE
    statuses = Counter(answer.status_code for answer in answers)
    assert set(statuses) == {200, 429}
    assert statuses[200] >= lanes.HEAVY_OF_ONE
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert code_of(refused) == (429, "too-many-requests")
    assert int(refused.headers["retry-after"]) >= 1


@pytest.mark.slow
def test_whatever_one_caller_asks_leaves_threads_for_others(attacked: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held()
    monkeypatch.setattr(lifecycle, "list_studies", held(lifecycle.list_studies))
    with ThreadPoolExecutor(MANY) as pool:
        asked = _one_after_another(attacked, attacked.viewer_key, "/v1/studies", MANY, held, pool)
        assert _others(attacked, held, "/v1/studies/ward") == [200]
        assert {one.result().status_code for one in asked} == {200}
    assert held.most <= lanes.THREADS_OF_ONE


@pytest.mark.slow
def test_the_sdk_comes_again_when_it_was_told_to(attacked: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held()
    monkeypatch.setattr(certificates, "certificate", held(certificates.certificate))
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        held.released.set()
        for one in asked:
            one.result()

    with ThreadPoolExecutor(MANY) as pool:
        path = "/v1/studies/ward/certificate"
        asked = _one_after_another(attacked, attacked.viewer_key, path, MANY, held, pool)
        while sum(not one.done() for one in asked) > lanes.HEAVY_OF_ONE + Lanes().heavy.waiting:
            pass
        with Client(Connection(url=attacked.url), ApiKey(attacked.viewer_key), sleep=pause) as client:
            assert client.certificate("ward")
    assert pauses
    assert pauses[0] >= 1


@contextmanager
def _stream(here: Live, key: str) -> Iterator[httpx.Response]:
    headers = {"Authorization": f"Bearer {key}"}
    with (
        httpx.Client(base_url=here.url, trust_env=False, timeout=30) as http,
        http.stream("GET", "/v1/studies/ward/events?wait=60", headers=headers) as answer,
    ):
        yield answer


@pytest.mark.slow
def test_one_caller_has_so_many_event_streams_and_another_its_own(attacked: Live) -> None:
    with ExitStack() as streams:
        for _ in range(lanes.STREAMS_OF_ONE):
            assert streams.enter_context(_stream(attacked, attacked.viewer_key)).status_code == 200
        with _stream(attacked, attacked.viewer_key) as refused:
            refused.read()
            assert code_of(refused) == (429, "too-many-requests")
        with _stream(attacked, attacked.operator_key) as answer:
            assert next(answer.iter_lines()) == "id: 1"
    # Whoever leaves gives its place back, once the server has seen it go.
    for _ in range(200):
        with _stream(attacked, attacked.viewer_key) as answer:
            if answer.status_code == 200:
                return
    raise AssertionError("the places of streams that have ended are not given back")


@pytest.mark.quick("sqlite")
def test_a_body_that_never_comes_keeps_nobody_else_from_its_certificate(attacked: Live) -> None:
    hospital, path = attacked.enrol("ward", "east"), "/v1/studies/ward/certificate"
    with ExitStack() as stack:
        for _ in range(lanes.HEAVY_OF_ALL):
            silent = stack.enter_context(attacked.connect())
            head = f"GET {path} HTTP/1.1\r\nHost: study.example.org\r\nContent-Length: 1000\r\n"
            token = attacked.token(hospital, "GET", path, b"x" * 1000)
            silent.sendall(f"{head}Authorization: Bearer {token}\r\n\r\n{{".encode())
        # The server has read them once it has answered what came after them.
        assert attacked.operator("GET", "/v1/studies/ward/budget").status_code == 200
        with httpx.Client(base_url=attacked.url, trust_env=False, timeout=10) as other:
            answer = other.get(path, headers={"Authorization": f"Bearer {attacked.operator_key}"})
    assert answer.status_code == 200


def test_places_are_given_back_however_a_request_ends() -> None:
    async def scene() -> None:
        lane = Lane(1, 1, "requests")
        with pytest.raises(ValueError, match="broken"):
            async with lane.place("a"):
                raise ValueError("broken")
        async with lane.place("a"):
            waiting = asyncio.create_task(_pass(lane, "a"))
            await asyncio.sleep(0)
            with pytest.raises(ApiProblem):
                lane.require_room("a")
            # Others are not in its way.
            await _pass(lane, "b")
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            lane.require_room("a")
        await _pass(lane, "a")
        assert lane == Lane(1, 1, "requests")

    asyncio.run(scene())


async def _pass(lane: Lane, caller: str) -> None:
    async with lane.place(caller):
        pass


@pytest.mark.slow
def test_a_stream_that_is_refused_reads_no_event(attacked: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    # Those that are open do not look by themselves meanwhile.
    monkeypatch.setattr(events, "KEEP_ALIVE_SECONDS", 3600.0)
    asked: list[str] = []
    read = Database.read

    def noted(database: Database, name: str, work: Any) -> Any:
        asked.append(name)
        return read(database, name, work)

    with ExitStack() as streams:
        monkeypatch.setattr(Database, "read", noted)
        for _ in range(lanes.STREAMS_OF_ONE):
            assert streams.enter_context(_stream(attacked, attacked.viewer_key)).status_code == 200
        # Each looks for the events there are, and, once its answer has begun, whether there are more.
        looks = 2 * lanes.STREAMS_OF_ONE
        deadline = time.monotonic() + 30
        while asked.count("events-since") < looks:
            assert time.monotonic() < deadline, "not every stream that is open has looked"
            time.sleep(0.01)
        for _ in range(20):
            with _stream(attacked, attacked.viewer_key) as refused:
                assert refused.status_code == 429
        monkeypatch.undo()
    assert asked.count("events-since") == looks
