"""Alive is not ready: readiness asks the database and the blob folder, every time."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import httpx
import pytest

from tests.factories.live_coordinator import Live, live


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
