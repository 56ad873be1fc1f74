"""Alive is not ready: readiness asks the database and the blob folder, once a second at most."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from server.db.file_blobs import FileBlobs
from server.db.session import Database
from server.services.readiness import CHECK_SECONDS
from tests.conftest import Postgres
from tests.factories.live_coordinator import Live, live
from tests.harness.object_store import ObjectStore


def _status(answer: httpx.Response) -> tuple[int, str]:
    body = answer.json()
    return answer.status_code, body.get("code") or body["status"]


def test_alive_and_ready(here: Live) -> None:
    assert _status(here.send("GET", "/livez")) == (200, "ok")
    assert _status(here.send("GET", "/readyz")) == (200, "ok")


def test_answers_are_neither_stored_nor_guessed_at(here: Live) -> None:
    answer = here.operator("GET", "/v1/studies")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert here.send("GET", "/static/docs.js").headers["etag"]


def test_ready_needs_the_blob_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with live(tmp_path / "home") as here:
        blobs = tmp_path / "home" / "blobs"
        blobs.rename(tmp_path / "elsewhere")
        answer = here.send("GET", "/readyz")
        assert _status(answer) == (503, "unavailable")
        assert int(answer.headers["retry-after"]) >= 1
        # Whoever asks is told nothing about the inside; the log is.
        (record,) = [record for record in caplog.records if record.getMessage() == "not ready"]
        assert record.exc_info
        assert _status(here.send("GET", "/livez")) == (200, "ok")
        (tmp_path / "elsewhere").rename(blobs)
        assert _status(here.send("GET", "/readyz")) == (200, "ok")


def test_ready_needs_the_database(tmp_path: Path) -> None:
    with live(tmp_path / "home") as here:
        database = tmp_path / "home" / "wardround.db"
        here.coordinator.database.engine.dispose()
        for path in (tmp_path / "home").glob("wardround.db*"):
            shutil.move(path, tmp_path / path.name)
        os.mkdir(database)
        assert _status(here.send("GET", "/readyz")) == (503, "unavailable")
        assert _status(here.operator("GET", "/v1/studies")) == (503, "unavailable")
        assert _status(here.send("GET", "/livez")) == (200, "ok")


def test_the_probe_leaves_nothing_behind(here: Live) -> None:
    for _ in range(3):
        here.send("GET", "/readyz")
    assert not list((here.home / "blobs" / ".incoming").iterdir())


def _in_time(here: Live) -> tuple[int, str]:
    """Status and detail of an answer that came long before what hangs came back, on a busy machine too."""
    began = time.monotonic()
    answer = here.send("GET", "/readyz")
    assert time.monotonic() - began < 5 * CHECK_SECONDS
    return answer.status_code, answer.json().get("detail", "")


@pytest.mark.slow
def test_what_hangs_is_named_in_time_and_keeps_one_thread(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Database and store side by side: neither begins when the other one is given up."""
    back, begun, read = threading.Event(), list[tuple[str, float]](), Database.read

    def hangs(database: Database, name: str, work: Any) -> Any:
        if name == "readiness":
            begun.append((name, time.monotonic()))
            back.wait(30)
        return read(database, name, work)

    def hangs_too(_: FileBlobs) -> None:
        begun.append(("check", time.monotonic()))
        back.wait(30)

    with live(tmp_path / "home", database_url=database_url) as here:
        monkeypatch.setattr(Database, "read", hangs)
        monkeypatch.setattr(FileBlobs, "check", hangs_too)
        with ThreadPoolExecutor(8) as pool:
            found = set(pool.map(lambda _: _in_time(here), range(8)))
        assert found == {
            (
                503,
                "the database gave no answer within 2 seconds, "
                "the store of model files gave no answer within 2 seconds. Try again",
            )
        }
        assert _in_time(here)[0] == 503
        (first, at), (second, later) = sorted(begun)
        assert (first, second) == ("check", "readiness")
        assert abs(at - later) < CHECK_SECONDS
        assert _status(here.send("GET", "/livez")) == (200, "ok")
        back.set()
        monkeypatch.undo()
        _until_ready(here)


def _until_ready(here: Live) -> None:
    _until(here, 200)


def _until(here: Live, status: int) -> None:
    give_up = time.monotonic() + 20
    while here.send("GET", "/readyz").status_code != status:
        assert time.monotonic() < give_up


@pytest.mark.slow
def test_a_database_that_is_stopped_is_said_in_time(tmp_path: Path, postgres: Postgres) -> None:
    name = postgres.create()
    url = postgres.url(name).render_as_string(hide_password=False)
    with live(tmp_path / "home", database_url=url) as here:
        assert _status(here.send("GET", "/readyz")) == (200, "ok")
        with ThreadPoolExecutor(50) as pool:
            with postgres.frozen(name):
                # More requests than the framework has threads, and all of them wait for the database.
                waiting = [pool.submit(here.operator, "GET", "/v1/studies", timeout=60) for _ in range(50)]
                _until(here, 503)
                assert _in_time(here) == (503, "the database gave no answer within 2 seconds. Try again")
                assert not any(one.done() for one in waiting)
            assert {one.result().status_code for one in waiting} <= {200, 503}
        _until_ready(here)
    postgres.drop(name)


@pytest.mark.slow
def test_an_object_store_that_is_stopped_is_said_in_time(tmp_path: Path, object_store: ObjectStore) -> None:
    with live(tmp_path / "home", **object_store.settings(object_store.bucket())) as here:
        assert _status(here.send("GET", "/readyz")) == (200, "ok")
        with _stopped(object_store):
            _until(here, 503)
            assert _in_time(here) == (503, "the store of model files gave no answer within 2 seconds. Try again")
        _until_ready(here)


@contextmanager
def _stopped(store: ObjectStore) -> Iterator[None]:
    assert store.process is not None
    os.kill(store.process.popen.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(store.process.popen.pid, signal.SIGCONT)
