"""A snapshot that is stopped at any moment leaves nothing half, and the next run succeeds."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import client_sdk.study.snapshot_taking  # noqa: F401 (it registers a failpoint)
import record_sources.snapshot  # noqa: F401 (likewise)
from client_sdk.guard.snapshots import snapshots_in
from study_protocol.wire.failpoints import EXIT_CODE, names
from tests.factories.clinics import clinic, rows_of_clinic, start_snapshot

pytestmark = pytest.mark.slow

# The source waits before each row, so that a signal comes in the middle of reading.
SLOW = """
import time, record_sources.workspace as w
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


def require_nothing(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir() if path.name not in ("home", "clinic.db")) == [
        "cohort.sql",
        "source.toml",
    ]
    assert snapshots_in(folder / "home") == []


def require_one(folder: Path) -> None:
    """The next run succeeds, and there are exactly one snapshot and one entry."""
    code, text = ended(start_snapshot(folder))
    assert code == 0, text
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
    found, text = ended(process)
    assert (found, text.replace("reading\n", "")) == (
        code,
        "wardround: stopped: no half snapshot is left. The same command takes it anew\n",
    )
    require_nothing(tmp_path)
    require_one(tmp_path)


def test_a_full_disk(tmp_path: Path) -> None:
    clinic(tmp_path, 20_000)
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))"
    code, text = ended(start_snapshot(tmp_path, before=limit))
    assert (code, text.count("\n")) == (1, 1), text
    assert text.startswith("wardround: the ")
    require_nothing(tmp_path)
    clinic(tmp_path)
    require_one(tmp_path)


def test_two_processes_with_one_name(tmp_path: Path) -> None:
    clinic(tmp_path)
    results = [ended(process) for process in [start_snapshot(tmp_path, before=SLOW) for _ in range(2)]]
    assert sorted(code for code, _ in results) == [0, 1]
    assert any("another process takes the snapshot icu-1" in text for _, text in results)
    assert len(snapshots_in(tmp_path / "home")) == 1
