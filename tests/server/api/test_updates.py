"""Updates over the wire: once, whole, as signed; whatever is wrong with a body is said and leaves nothing behind."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import socket
from pathlib import Path

import httpx
import numpy as np
import pytest

from server.db.object_blobs import ObjectBlobs, open_store
from study_protocol.wire.tensors import UPDATE, encode
from tests.factories.hospital_double import MODEL, Hospital, update
from tests.factories.live_coordinator import Live
from wardround.demo.processes import free_port, until


def _code(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["code"]


def _state(here: Live, study: str, name: str, round: int = 1) -> str:
    clients = here.operator("GET", f"/v1/studies/{study}/rounds/{round}").json()["clients"]
    return next(client["state"] for client in clients if client["client"] == name)


def _files(here: Live) -> list[Path]:
    blobs = here.home / "blobs"
    return [
        path for path in blobs.rglob("*") if path.is_file() and ("rounds" in path.parts or ".incoming" in path.parts)
    ]


def test_an_update_is_recorded_once(here: Live, study: str) -> None:
    north, _ = here.running(study, "north", "south")
    body = update()
    first = here.put_update(north, 1, body)
    assert first.status_code == 201
    assert first.json() == {
        "study": study,
        "round": 1,
        "client": "north",
        "sha256": hashlib.sha256(body).hexdigest(),
        "bytes": len(body),
    }
    again = here.put_update(north, 1, body)
    assert (again.status_code, again.json()) == (200, first.json())
    assert _code(here.put_update(north, 1, update(0.02))) == (409, "different-update")
    assert _state(here, study, "north") == "received"


def _with(**tensors: np.ndarray) -> bytes:
    return encode({UPDATE + name: array for name, array in ({**MODEL, **tensors}).items()})


def _not_finite() -> bytes:
    return update(1.5).replace(np.float32(1.5).tobytes(), np.float32(np.nan).tobytes())


@pytest.mark.quick("tensor missing", "zeros")
@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 422, "malformed-tensors"),
        (b"\x00" * 64, 422, "malformed-tensors"),
        (update()[:-1], 422, "malformed-tensors"),
        (_with(extra=np.zeros(1, np.float32)), 422, "wrong-names"),
        (encode({UPDATE + "weight": MODEL["weight"]}), 422, "wrong-names"),
        (_with(bias=np.zeros(3, np.float32)), 422, "wrong-shape"),
        (_with(bias=np.zeros(2, np.float64)), 422, "wrong-dtype"),
        (_not_finite(), 422, "not-finite"),
        (b"\x00" * 100_000, 413, "body-too-large"),
    ],
    ids=[
        "empty",
        "zeros",
        "cut short",
        "another tensor",
        "tensor missing",
        "longer",
        "float64",
        "NaN",
        "too large",
    ],
)
def test_a_bad_body_is_refused_and_leaves_nothing(here: Live, study: str, body: bytes, status: int, code: str) -> None:
    north, _ = here.running(study, "north", "south")
    before = _files(here)
    assert _code(here.put_update(north, 1, body)) == (status, code)
    assert _state(here, study, "north") == "sampled"
    assert _files(here) == before
    assert here.put_update(north, 1, update()).status_code == 201


def test_another_body_than_the_signed_one_is_refused(here: Live, study: str) -> None:
    north, _ = here.running(study, "north", "south")
    before = _files(here)
    other = hashlib.sha256(update(0.5)).hexdigest()
    assert _code(here.put_update(north, 1, update(), body_sha256=other)) == (400, "digest-mismatch")
    assert _state(here, study, "north") == "sampled"
    assert _files(here) == before


def _head(here: Live, who: Hospital, body: bytes, *lines: str) -> bytes:
    path = f"/v1/studies/{who.study}/rounds/1/updates/{who.name}"
    token = here.token(who, "PUT", path, body)
    head = [f"PUT {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", *lines, "", ""]
    return "\r\n".join(head).encode()


def _answer(line: socket.socket) -> bytes:
    return line.makefile("rb").read()


def test_an_announced_excess_is_refused_before_it_is_read(here: Live, study: str) -> None:
    north, _ = here.running(study, "north", "south")
    with here.connect() as line:
        line.sendall(_head(here, north, update(), "Content-Length: 10000000000"))
        answer = _answer(line)
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_chunked_body_is_counted(here: Live, study: str) -> None:
    north, _ = here.running(study, "north", "south")
    path = f"/v1/studies/{study}/rounds/1/updates/north"
    token = here.token(north, "PUT", path, update())
    fits = here.send("PUT", path, token, content=iter([update()[:50], update()[50:]]))
    assert fits.status_code == 201
    with here.connect() as line:
        south = here.hospital(study, "south")
        line.sendall(_head(here, north, update(0.3), "Transfer-Encoding: chunked"))
        assert b"different-update" in _answer(line), south


def test_an_endless_chunked_body_is_cut_off(here: Live, study: str) -> None:
    _, south = here.running(study, "north", "south")
    with here.connect() as line:
        line.sendall(_head(here, south, update(), "Transfer-Encoding: chunked"))
        # On a busy machine the coordinator may close before everything is sent.
        with contextlib.suppress(BrokenPipeError):
            for _ in range(3):
                line.sendall(b"8000\r\n" + b"x" * 0x8000 + b"\r\n")
        assert _answer(line).startswith(b"HTTP/1.1 413 ")


@pytest.mark.slow
def test_a_slow_body_is_cut_off(here: Live, study: str) -> None:
    north, _ = here.running(study, "north", "south")
    body = update()
    with here.connect() as line:
        line.sendall(_head(here, north, body, f"Content-Length: {len(body)}") + body[:10])
        answer = _answer(line)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"body-too-slow"' in answer
    assert _state(here, study, "north") == "sampled"


def test_a_truncated_upload_is_never_taken_for_whole(here: Live, study: str) -> None:
    north, _ = here.running(study, "north", "south")
    before, body = _files(here), update()
    with here.connect() as line:
        line.sendall(_head(here, north, body, f"Content-Length: {len(body)}") + body[:-1])
        line.shutdown(socket.SHUT_WR)
        assert not _answer(line).startswith(b"HTTP/1.1 2")
    assert _state(here, study, "north") == "sampled"
    # What came of it is removed when the coordinator has noticed the end, which nobody waits for.
    assert until(lambda: sorted(_files(here)) == sorted(before), seconds=10, check=lambda: None)
    assert here.put_update(north, 1, body).status_code == 201


def test_a_full_disk_is_said_and_passes(here: Live, study: str, monkeypatch: pytest.MonkeyPatch) -> None:
    north, _ = here.running(study, "north", "south")
    before = _files(here)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as disk:
        disk.setattr("server.db.file_blobs.os.fsync", full)
        answer = here.put_update(north, 1, update())
    assert _code(answer) == (503, "unavailable")
    assert answer.headers["retry-after"] == "2"
    assert "disk is full" in answer.json()["detail"]
    assert _state(here, study, "north") == "sampled"
    assert _files(here) == before
    assert here.put_update(north, 1, update()).status_code == 201


def test_rounds_that_are_not_open_take_nothing(here: Live, study: str) -> None:
    north, south = here.running(study, "north", "south")
    assert _code(here.put_update(north, 2, update())) == (404, "round-unknown")
    for who in (north, south):
        assert here.put_update(who, 1, update()).status_code == 201
    here.work()
    assert _code(here.put_update(north, 1, update(0.2))) == (409, "different-update")
    here.operator("POST", f"/v1/studies/{study}/stop")
    assert _code(here.put_update(south, 2, update())) == (410, "round-closed")


def test_a_store_that_is_away_is_said_and_passes(here: Live, study: str, tmp_path: Path) -> None:
    north, _ = here.running(study, "north", "south")
    there = here.coordinator.blobs
    store = open_store(
        "s3://bucket", endpoint=f"http://127.0.0.1:{free_port()}", key_id="k", secret="s", patience_seconds=0.1
    )
    away = ObjectBlobs(store, tmp_path / "cache", 1 << 30)
    object.__setattr__(here.coordinator, "blobs", away)
    try:
        answer = here.put_update(north, 1, update())
        assert _code(answer) == (503, "unavailable")
        assert answer.headers["retry-after"] == "2"
        assert _code(here.send("GET", "/readyz")) == (503, "unavailable")
        assert _state(here, study, "north") == "sampled"
    finally:
        object.__setattr__(here.coordinator, "blobs", there)
    assert here.put_update(north, 1, update()).status_code == 201
