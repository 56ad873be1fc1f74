"""The coordinator's commands against a real home folder; the server as a process of its own."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from server.db.schema import head
from tests.conftest import Postgres
from tests.harness.object_store import ObjectStore
from wardround.cli.main import build


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name in [name for name in os.environ if name.startswith("WARDROUND_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WARDROUND_HOME", str(tmp_path / "home"))
    # A command sends the log to its own standard error; the tests keep theirs.
    monkeypatch.setattr(logging.getLogger(), "handlers", list(logging.getLogger().handlers))
    return dict(os.environ)


def _run(*words: str) -> tuple[int, str, str]:
    app = build()
    result = CliRunner().invoke(app, words)
    return result.exit_code, result.stdout, result.stderr


def test_migrate_is_repeatable_and_keeps_the_key(environment: dict[str, str], tmp_path: Path) -> None:
    assert _run("migrate") == (0, f"the database went from no tables to revision {head()}\n", "")
    keys = [path for path in (tmp_path / "home").iterdir() if stat.S_IMODE(path.stat().st_mode) == 0o600]
    before = {path.name: path.read_bytes() for path in keys}
    assert before
    assert _run("migrate") == (0, f"the database is at revision {head()} and needs no change\n", "")
    assert {path.name: path.read_bytes() for path in keys} == before


def test_a_home_that_cannot_be_made_is_one_line(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    code, _, complaint = _run("migrate")
    assert code == 1
    assert complaint.startswith("wardround: ")
    assert str(tmp_path / "home") in complaint


@pytest.mark.slow
def test_a_port_in_use_is_told_and_ends_with_1(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    _run("migrate")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("WARDROUND_PORT", str(taken.getsockname()[1]))
        code, _, complaint = _run("serve")
    assert code == 1
    assert "the API cannot listen on 127.0.0.1" in complaint
    assert "--port or WARDROUND_PORT" in complaint


BEFORE = [("key", "create", "--name", "Ada"), ("key", "list"), ("worker", "--check"), ("serve",)]


@pytest.mark.parametrize("words", BEFORE)
def test_before_the_migration_a_command_says_so(environment: dict[str, str], words: tuple[str, ...]) -> None:
    code, _, complaint = _run(*words)
    assert code == 1
    assert complaint.startswith("wardround: ")
    assert "there is no database at" in complaint
    assert "run `wardround migrate`" in complaint
    assert "Traceback" not in complaint


@pytest.mark.slow
def test_a_check_of_what_hangs_ends_and_says_so(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, postgres: Postgres
) -> None:
    name = postgres.create()
    monkeypatch.setenv("WARDROUND_DATABASE_URL", postgres.url(name).render_as_string(hide_password=False))
    assert _run("migrate")[0] == 0
    assert _run("worker", "--check") == (0, "", "")
    monkeypatch.setattr("server.services.readiness.COMMAND_SECONDS", 1.0)
    with postgres.frozen(name):
        code, _, complaint = _run("worker", "--check")
    assert (code, complaint) == (
        1,
        "wardround: the database or the store of model files gave no answer within 1 seconds\n",
    )
    monkeypatch.undo()
    postgres.drop(name)


def test_a_mistyped_setting_stops_the_start(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARDROUND_DATABSE_URL", "sqlite:///x")
    code, _, complaint = _run("serve")
    assert code == 1
    assert "did you mean WARDROUND_DATABASE_URL?" in complaint


def test_worker_check(environment: dict[str, str]) -> None:
    _run("migrate")
    assert _run("worker", "--check") == (0, "", "")


@pytest.mark.slow
def test_an_object_store_that_is_away_is_one_line(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _run("migrate")
    monkeypatch.setenv("WARDROUND_BLOBS", "s3://bucket/x")
    monkeypatch.setenv("WARDROUND_BLOBS_ENDPOINT", f"http://127.0.0.1:{_free_port()}")
    monkeypatch.setenv("WARDROUND_BLOBS_REGION", "us-east-1")
    monkeypatch.setenv("WARDROUND_BLOBS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("WARDROUND_BLOBS_SECRET_ACCESS_KEY", "s")
    code, _, complaint = _run("worker", "--check")
    assert code == 1
    assert re.fullmatch(r"wardround: the object store does not answer as it should: .+\n", complaint)
    # Keys are made in the database: that works without the store, and says no more than a line.
    assert _run("key", "list")[0] == 0
    assert "Traceback" not in caplog.text


@pytest.mark.slow
def test_a_bucket_that_is_not_there_is_one_line(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, object_store: ObjectStore
) -> None:
    _run("migrate")
    for name, value in object_store.settings("s3://nobody-made-it/x").items():
        monkeypatch.setenv(f"WARDROUND_{name.upper()}", value)
    assert _run("key", "list") == (1, "", "wardround: the object store has no bucket of this name\n")


@contextmanager
def _process(*words: str, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    program = "from wardround.cli.main import build; build()()"
    command = [sys.executable, "-c", program, *words]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert process.poll() is None, process.communicate()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
                assert answer.status == 200
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the coordinator did not become ready")


@pytest.mark.quick("2")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_answers_and_ends_cleanly(environment: dict[str, str], number: signal.Signals) -> None:
    _run("migrate")
    port = _free_port()
    with _process("serve", "--port", str(port), environment=environment) as process:
        _wait_until_ready(port, process)
        process.send_signal(number)
        _, log = process.communicate(timeout=60)
    assert process.returncode in (0, -signal.SIGTERM)
    assert b"Traceback" not in log
    assert all(line.startswith(b"{") for line in log.splitlines())


@pytest.mark.slow
def test_worker_ends_cleanly(environment: dict[str, str]) -> None:
    _run("migrate")
    with _process("worker", environment=environment) as process:
        assert process.stderr is not None
        assert b'"working"' in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
    assert process.returncode == 0, log


@pytest.mark.slow
def test_the_worker_s_process_answers_prometheus(environment: dict[str, str]) -> None:
    _run("migrate")
    port = _free_port()
    with _process("worker", environment=environment | {"WARDROUND_METRICS_PORT": str(port)}) as process:
        looked = re.compile(r"^wardround_worker_look_timestamp_seconds [1-9]", re.MULTILINE)
        while not looked.search(_metrics(port)):
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
    assert process.returncode == 0, log


def _metrics(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""
