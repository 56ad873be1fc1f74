"""What only a store far away has: a cache, and days on which it is not there."""

from __future__ import annotations

import http.server
import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import GenericError

from server.db.blobs import StoreAway, StoreUnusable, models_of, round_folder, sum_of, update_of
from server.db.object_blobs import ObjectBlobs, open_store
from server.telemetry import JsonLines
from tests.harness.object_store import ObjectStore
from wardround.demo.processes import free_port

MODELS, UPDATE = models_of("a"), update_of("a", 1, "h1")
KIB = 1 << 10


@pytest.fixture
def address(object_store: ObjectStore) -> str:
    return object_store.bucket()


def cached(blobs: ObjectBlobs) -> list[str]:
    root = blobs.cache.root
    return sorted(path.name.split(".")[0] for path in root.rglob("*") if path.is_file())


def test_what_a_hospital_sent_lies_only_where_it_is_read(
    object_store: ObjectStore, address: str, tmp_path: Path
) -> None:
    """Whoever takes updates in does not clear the rounds; copies of theirs would stay for good."""
    api, worker = (ObjectBlobs(object_store.store(address), tmp_path / name, 1 << 30) for name in ("api", "worker"))
    kept = api.write(UPDATE, b"update")
    assert cached(api) == []
    with worker.open(UPDATE, kept.sha256) or pytest.fail("gone"):
        assert cached(worker) == ["update"]
    # Another worker clears the round; this one still finds the folder when it tidies up.
    api.clear(round_folder("a", 1))
    assert object_store.keys(address) == []
    assert worker.folders("rounds/a") == ["rounds/a/1"]
    worker.clear(round_folder("a", 1))
    assert cached(worker) == []
    assert worker.folders("rounds/a") == []


def test_a_deleted_cache_is_made_again(object_store: ObjectStore, address: str, tmp_path: Path) -> None:
    """At any time, also while a body is on its way in: nothing fails but what was written into it."""
    blobs = ObjectBlobs(object_store.store(address), tmp_path / "cache", 1 << 30)
    kept = blobs.write(MODELS, b"model")
    for _ in range(2):
        shutil.rmtree(tmp_path / "cache")
        with blobs.open(MODELS, kept.sha256) or pytest.fail("gone") as opened:
            assert opened.read(0, 10) == b"model"
        shutil.rmtree(tmp_path / "cache")
        blobs.check()
        assert blobs.sweep(0.0) == 0
        shutil.rmtree(tmp_path / "cache")
        assert blobs.sweep(0.0) == 0
        update = blobs.write(UPDATE, b"update")
        assert blobs.has(UPDATE, update.sha256)
    with blobs.receive(10) as incoming:
        incoming.write(b"12345")
        shutil.rmtree(tmp_path / "cache")
        with pytest.raises(StoreAway):
            blobs.keep(incoming, MODELS)


def test_the_cache_stays_below_its_limit_and_lets_go_what_was_not_used(
    object_store: ObjectStore, address: str, tmp_path: Path
) -> None:
    blobs = ObjectBlobs(object_store.store(address), tmp_path / "cache", 64 * KIB)
    kept = [blobs.write(MODELS, os.urandom(10 * KIB)).sha256 for _ in range(5)]
    with blobs.open(MODELS, kept[0]) or pytest.fail("gone"):
        pass
    kept += [blobs.write(MODELS, os.urandom(10 * KIB)).sha256 for _ in range(3)]
    there = {path.name.split(".")[1] for path in (tmp_path / "cache" / "models").rglob("model.*")}
    assert len(there) * 10 * KIB <= 64 * KIB
    assert {kept[0], kept[-1]} <= there
    assert kept[1] not in there
    # And it comes back when it is asked for.
    for sha256 in kept:
        with blobs.open(MODELS, sha256) or pytest.fail("gone") as file:
            assert file.bytes == 10 * KIB


def test_a_file_that_is_read_outlives_its_eviction(object_store: ObjectStore, address: str, tmp_path: Path) -> None:
    blobs = ObjectBlobs(object_store.store(address), tmp_path / "cache", 16 * KIB)
    bodies = [os.urandom(12 * KIB) for _ in range(6)]
    kept = [blobs.write(MODELS, body).sha256 for body in bodies]
    files = [blobs.open(MODELS, sha256) for sha256 in kept]
    assert len(cached(blobs)) < 2
    for file, body in zip(files, bodies, strict=True):
        assert file is not None
        with file:
            assert file.read(0, 12 * KIB) == body


def test_a_damaged_copy_is_fetched_anew(object_store: ObjectStore, address: str, tmp_path: Path) -> None:
    blobs = ObjectBlobs(object_store.store(address), tmp_path / "cache", 1 << 30)
    body = os.urandom(5000)
    kept = blobs.write(MODELS, body)
    (copy,) = (tmp_path / "cache" / "models").rglob("model.*")
    copy.write_bytes(body[:-1])
    with blobs.open(MODELS, kept.sha256) or pytest.fail("gone") as file:
        assert file.read(0, 5000) == body


def test_threads_that_ask_for_the_same_all_get_it(object_store: ObjectStore, address: str, tmp_path: Path) -> None:
    store = object_store.store(address)
    body = os.urandom(3 << 20)
    kept = ObjectBlobs(store, tmp_path / "other", 1 << 30).write(MODELS, body)
    blobs, found = ObjectBlobs(store, tmp_path / "cache", 1 << 20), list[bool]()

    def ask() -> None:
        with blobs.open(MODELS, kept.sha256) or pytest.fail("gone") as file:
            found.append(file.read(0, file.bytes) == body)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 8


def test_a_store_that_is_away_is_said_and_nothing_is_lost(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path / "log", None, port=free_port())  # type: ignore[arg-type]
    blobs = ObjectBlobs(store.store("s3://bucket/x", patience_seconds=0.1), tmp_path / "cache", 1 << 30)
    with blobs.receive(6) as incoming:
        incoming.write(b"update")
        with pytest.raises(StoreAway):
            blobs.keep(incoming, UPDATE)
        # The body is here still, for another try.
        with incoming.opened() as file:
            assert file.read(0, 6) == b"update"
    for ask in (blobs.check, lambda: blobs.open(UPDATE, "0" * 64), lambda: blobs.has(UPDATE, "0" * 64)):
        with pytest.raises(StoreAway):
            ask()
    for ask in (lambda: blobs.hashes(UPDATE), lambda: blobs.clear("rounds/a/1"), lambda: blobs.folders("rounds")):
        with pytest.raises(StoreAway):
            ask()
    with pytest.raises(StoreAway):
        blobs.remove(UPDATE, "0" * 64)


@pytest.mark.quick("a name")
@pytest.mark.parametrize(
    "said",
    [b"", b"update.h1.0a of h1 is locked", b"\x1b[2J\xe2\x80\xae gone"],
    ids=["nothing", "a name", "what a terminal obeys"],
)
def test_why_a_store_is_away_is_in_the_log_without_names(
    liar: tuple[type[Liar], str], tmp_path: Path, said: bytes
) -> None:
    liar[0].status, liar[0].refusal = 500, said
    with pytest.raises(StoreAway) as failed:
        at(liar[1], tmp_path).write(UPDATE, b"update")
    record = logging.LogRecord("x", logging.ERROR, "", 0, "step failed", None, (StoreAway, failed.value, None))
    reason = json.loads(JsonLines().format(record))["reason"]
    assert "500 Internal Server Error" in reason
    assert not [word for word in ("h1", "rounds/", "127.0.0.1") if word in reason]
    assert reason.isprintable()


@pytest.mark.parametrize(
    "error", [TimeoutError(), ConnectionResetError(), GenericError("\n")], ids=["timeout", "reset", "blank"]
)
def test_a_store_that_is_away_without_a_word_is_away(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(obstore, "head", fail)
    with pytest.raises(StoreAway, match=f"as it should: {type(error).__name__}$"):
        at("http://127.0.0.1:1", tmp_path).has(UPDATE, "0" * 64)


def test_a_model_that_is_cached_needs_no_store(object_store: ObjectStore, address: str, tmp_path: Path) -> None:
    kept = ObjectBlobs(object_store.store(address), tmp_path / "cache", 1 << 30).write(MODELS, b"model")
    away = ObjectStore(tmp_path / "log", None, port=free_port())  # type: ignore[arg-type]
    blobs = ObjectBlobs(away.store(address, patience_seconds=0.1), tmp_path / "cache", 1 << 30)
    with blobs.open(MODELS, kept.sha256) or pytest.fail("gone") as file:
        assert file.read(0, 5) == b"model"


class Liar(http.server.BaseHTTPRequestHandler):
    """Takes everything, and gives back something else; or refuses everything."""

    status, given, refusal = 200, b"something else", b""

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self._answer(self.refusal)

    def do_GET(self) -> None:
        self._answer(self.given)

    def _answer(self, body: bytes) -> None:
        self.send_response(self.status)
        self.send_header("ETag", '"x"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def liar() -> Iterator[tuple[type[Liar], str]]:
    kind = type("OneLiar", (Liar,), {})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield kind, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def at(endpoint: str, folder: Path) -> ObjectBlobs:
    store = open_store(
        "s3://bucket", endpoint=endpoint, region="us-east-1", key_id="k", secret="s", patience_seconds=0.1
    )
    return ObjectBlobs(store, folder, 1 << 30)


@pytest.mark.quick("updatf")
@pytest.mark.parametrize("given", [b"something else", b"updat", b"updatf", b""])
def test_an_upload_that_does_not_come_back_is_not_acknowledged(
    liar: tuple[type[Liar], str], tmp_path: Path, given: bytes
) -> None:
    liar[0].given = given
    with pytest.raises(StoreAway):
        at(liar[1], tmp_path).write(UPDATE, b"update")
    assert cached(at(liar[1], tmp_path)) == []


@pytest.mark.quick("403-credentials")
@pytest.mark.parametrize(("status", "what"), [(403, "credentials"), (401, "credentials")])
def test_wrong_credentials_are_said_at_the_start(
    liar: tuple[type[Liar], str], tmp_path: Path, status: int, what: str
) -> None:
    liar[0].status = status
    with pytest.raises(StoreUnusable, match=what):
        at(liar[1], tmp_path).check()


def test_a_bucket_that_is_not_there_is_said_at_the_start(object_store: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="no bucket"):
        ObjectBlobs(object_store.store("s3://nobody-made-it/x"), tmp_path, 1 << 30).check()


def test_sums_are_cached_where_they_are_made(object_store: ObjectStore, address: str, tmp_path: Path) -> None:
    blobs = ObjectBlobs(object_store.store(address), tmp_path / "cache", 1 << 30)
    blobs.write(sum_of("a", 1, "update"), b"sum")
    assert cached(blobs) == ["sum"]


def test_checks_leave_nothing_in_the_bucket_whatever_became_of_them(
    object_store: ObjectStore, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = ObjectBlobs(object_store.store(address), tmp_path / "cache", 1 << 30)
    for _ in range(3):
        blobs.check()
    assert object_store.keys(address) == cached(blobs) == []

    def damaged(*_: object) -> bool:
        raise StoreAway("cut off")

    monkeypatch.setattr(blobs, "_fetched", damaged)
    # The store answers, but not with what it was sent.
    with pytest.raises(StoreAway, match="cut off"):
        blobs.check()
    monkeypatch.undo()
    monkeypatch.setattr("server.db.object_blobs._pages", lambda *_: [])
    with pytest.raises(StoreAway, match="list"):
        blobs.check()
    assert object_store.keys(address) == cached(blobs) == []


@pytest.mark.slow
def test_a_check_takes_away_what_a_killed_process_left_long_ago(
    object_store: ObjectStore, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = ObjectBlobs(object_store.store(address), tmp_path / "cache", 1 << 30)
    object_store.put(address, ".probe/0123456789abcdef.left", b"\0")
    blobs.check()
    assert object_store.keys(address) == [".probe/0123456789abcdef.left"], "another process may be reading it now"
    monkeypatch.setattr("server.db.object_blobs._PROBE_LEFT", timedelta(seconds=1))
    time.sleep(2.1)  # The store's clock has whole seconds.
    blobs.check()
    assert object_store.keys(address) == []


def test_checks_of_many_processes_at_once_do_not_disturb_each_other(
    object_store: ObjectStore, address: str, tmp_path: Path
) -> None:
    stores = [ObjectBlobs(object_store.store(address), tmp_path / str(n), 1 << 30) for n in range(4)]
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(blobs.check) for blobs in stores * 3]:
            done.result()
    assert object_store.keys(address) == []
