"""A snapshot that is stopped at any moment leaves nothing half, and the next run succeeds."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from sqlalchemy import create_engine, text

import client_sdk.study.snapshot_taking  # noqa: F401 (it registers a failpoint)
import record_sources.snapshot.preparation  # noqa: F401 (likewise)
from client_sdk.guard.snapshots import snapshots_in
from study_protocol.wire.failpoints import EXIT_CODE, names
from tests.conftest import Postgres
from tests.factories.clinics import QUERY, clinic, rows_of_clinic, source_file, start_snapshot

pytestmark = pytest.mark.slow

# The source waits before each row, so that a signal comes in the middle of reading.
SLOW = """
import time, record_sources.working.workspace as w
chunks = w._chunks
def slow(rows, size):
    for place, chunk in enumerate(chunks(rows, 5)):
        print("reading", flush=True)
        time.sleep(0.5)
        yield chunk
w._chunks = slow
"""


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, errors = process.communicate(timeout=120)
    return process.returncode, output + errors


def require_one_sentence(process: subprocess.Popen[str], code: int = 1) -> str:
    """It ends with this code and one line on what went wrong, which is returned."""
    found, said = ended(process)
    assert (found, said.count("\n")) == (code, 1), said
    assert said.startswith("wardround: ")
    return said


def require_nothing(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir() if path.name not in ("home", "clinic.db")) == [
        "cohort.sql",
        "source.toml",
    ]
    assert snapshots_in(folder / "home") == []


def require_one(folder: Path) -> None:
    """The next run succeeds, and there are exactly one snapshot and one entry."""
    code, said = ended(start_snapshot(folder))
    assert code == 0, said
    (snapshot,) = snapshots_in(folder / "home")
    snapshot.require_unchanged()
    assert [path.name for path in folder.glob("*.parquet")] == ["icu-1.parquet"]
    assert list(folder.glob(".*")) == []
    columns = pq.read_table(snapshot.path).to_pydict()
    assert sorted(zip(columns["patient"], columns["age"], columns["died"], strict=True)) == sorted(rows_of_clinic(50))


@pytest.mark.parametrize("failpoint", names("snapshot."))
def test_a_process_killed_at_every_step(failpoint: str, tmp_path: Path) -> None:
    clinic(tmp_path)
    assert ended(start_snapshot(tmp_path, failpoint=failpoint))[0] == EXIT_CODE
    require_one(tmp_path)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 1)])
def test_a_signal_while_the_source_is_read(number: signal.Signals, code: int, tmp_path: Path) -> None:
    clinic(tmp_path)
    process = start_snapshot(tmp_path, before=SLOW)
    assert process.stdout is not None
    assert process.stdout.readline() == "reading\n"
    process.send_signal(number)
    found, said = ended(process)
    assert (found, said.replace("reading\n", "")) == (
        code,
        "wardround: stopped: no half snapshot is left. The same command takes it anew\n",
    )
    require_nothing(tmp_path)
    require_one(tmp_path)


def test_a_full_disk(tmp_path: Path) -> None:
    clinic(tmp_path, 20_000)
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))"
    require_one_sentence(start_snapshot(tmp_path, before=limit))
    require_nothing(tmp_path)
    clinic(tmp_path)
    require_one(tmp_path)


def test_two_processes_with_one_name(tmp_path: Path) -> None:
    clinic(tmp_path)
    results = [ended(process) for process in [start_snapshot(tmp_path, before=SLOW) for _ in range(2)]]
    assert sorted(code for code, _ in results) == [0, 1]
    assert any("another process takes the snapshot icu-1" in said for _, said in results)
    assert len(snapshots_in(tmp_path / "home")) == 1


@pytest.fixture
def on_postgres(postgres: Postgres, tmp_path: Path) -> Iterator[tuple[Postgres, str, Path]]:
    """The clinic in a database of its own, with the folder of its source."""
    name = postgres.create()
    clinic(tmp_path)
    engine = create_engine(postgres.url(name))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE icu (patient TEXT, age DOUBLE PRECISION, died TEXT)"))
        rows: list[dict[str, Any]] = [dict(zip(("p", "a", "d"), row, strict=True)) for row in rows_of_clinic(50)]
        connection.execute(text("INSERT INTO icu VALUES (:p, :a, :d)"), rows)
    engine.dispose()
    yield postgres, name, tmp_path
    postgres.drop(name)


def address(server: Postgres, name: str) -> str:
    return f"postgresql+psycopg://postgres@/{name}?host={server.socket}"


def until_reading(server: Postgres, name: str, process: subprocess.Popen[str], term: str) -> None:
    """Wait until the database computes rows, and evaluate a term over the process of the server that does it."""
    engine = create_engine(server.url("postgres"))
    with engine.connect() as connection:
        found = f"SELECT {term} FROM pg_stat_activity WHERE datname = '{name}' AND wait_event = 'PgSleep'"
        while not connection.execute(text(found)).scalar():
            connection.rollback()
            assert process.poll() is None, ended(process)
    engine.dispose()


def test_a_connection_that_is_lost(on_postgres: tuple[Postgres, str, Path]) -> None:
    server, name, folder = on_postgres
    (folder / "cohort.sql").write_text(f"{QUERY}, pg_sleep(0.1)")
    source_file(folder, address(server, name))
    process = start_snapshot(folder)
    until_reading(server, name, process, "count(pg_terminate_backend(pid))")
    require_one_sentence(process)
    require_nothing(folder)
    (folder / "cohort.sql").write_text(QUERY)
    require_one(folder)


def test_a_statement_that_takes_too_long(on_postgres: tuple[Postgres, str, Path]) -> None:
    server, name, folder = on_postgres
    (folder / "cohort.sql").write_text(f"{QUERY}, pg_sleep(1)")
    source_file(folder, address(server, name), "timeout = 1")
    assert "timeout" in require_one_sentence(start_snapshot(folder))
    require_nothing(folder)
    (folder / "cohort.sql").write_text(QUERY)
    require_one(folder)


def test_a_signal_while_the_database_answers(on_postgres: tuple[Postgres, str, Path]) -> None:
    """The process waits for the network then, and not for Python."""
    server, name, folder = on_postgres
    (folder / "cohort.sql").write_text(f"{QUERY}, pg_sleep(1)")
    source_file(folder, address(server, name))
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 1)):
        process = start_snapshot(folder)
        until_reading(server, name, process, "count(pid)")
        process.send_signal(number)
        assert "stopped" in require_one_sentence(process, code)
        require_nothing(folder)
