"""`wardround data snapshot` and `data list`, and how other commands use a snapshot by its name."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.ledger_views import RecordsMark, RecordsOrigin
from client_sdk.guard.snapshots import LEDGER_FILE, snapshots_in
from tests.factories.clinics import QUERY, clinic, rows_of_clinic
from tests.factories.commands import write_settings
from tests.factories.settings import settings_json
from tests.record_sources.omop.example import REMARKS, cohort, sqlite
from wardround.cli.hospital.snapshots import _Lines
from wardround.cli.main import build

TASK = {"label": "died", "label-values": "no|yes", "column.age": "0..100; missing=50"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WARDROUND_CLIENT_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    clinic(tmp_path)
    return tmp_path


def data(*arguments: str | Path, code: int = 0) -> Result:
    result = CliRunner().invoke(build(), ["data", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def taken(here: Path, name: str = "icu-1", code: int = 0) -> Result:
    return data("snapshot", here / "source.toml", "-o", here / f"{name}.parquet", "--as", "ada", code=code)


def test_a_snapshot_holds_the_rows_of_the_query_and_its_entry_names_it(here: Path) -> None:
    said = taken(here).stdout
    path = here / "icu-1.parquet"
    columns = pq.read_table(path).to_pydict()
    assert sorted(zip(columns["patient"], columns["age"], columns["died"], strict=True)) == sorted(rows_of_clinic(50))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert digest in said
    entry = json.loads(data("list", "icu-1", "--json").stdout)
    assert (entry["sha256"], entry["state"], entry["studies"]) == (digest, "there", [])
    assert entry["person"].startswith("ada (account ")
    assert entry["queries"]["records"] == {"text": QUERY, "sha256": hashlib.sha256(QUERY.encode()).hexdigest()}
    assert entry["tables"]["records"]["rows"] == 50
    assert (entry["description"], entry["path"]) == (str(here / "source.toml"), str(path))
    assert json.loads(data("list", "--json").stdout) == [entry]


def test_the_list_shows_state_and_studies(here: Path) -> None:
    assert "no snapshot yet" in data("list").stdout
    for name in ("icu-1", "icu-2", "icu-3"):
        taken(here, name)
    (here / "icu-2.parquet").unlink()
    (here / "icu-3.parquet").write_bytes(b"short")
    with HospitalLedger.open(ledger_path(here / "home", "records")) as ledger:
        ledger.declare_records("sepsis", RecordsMark("c", "p", 1, 1, origin=RecordsOrigin("icu-1")))
    lines = data("list").stdout.splitlines()
    for words in (("icu-1", "ada", "there", "sepsis"), ("icu-2", "missing"), ("icu-3", "changed size")):
        assert any(all(word in line for word in words) for line in lines)
    assert QUERY in data("list", "icu-1").stdout
    assert "Snapshots of this hospital: icu-1, icu-2, icu-3" in data("list", "other", code=1).stderr


def test_a_name_is_taken_once(here: Path) -> None:
    taken(here)
    before = (here / "icu-1.parquet").read_bytes()
    assert "still gives the same records: use it" in taken(here, code=1).stderr
    clinic(here, 60)
    assert "other records (50 → 60 patients, 50 → 60 rows): take another name" in taken(here, code=1).stderr
    assert (here / "icu-1.parquet").read_bytes() == before
    assert len(snapshots_in(here / "home")) == 1
    assert list(here.glob(".*")) == []


def test_a_file_that_is_gone_is_made_again_if_it_is_the_same(here: Path) -> None:
    taken(here)
    (here / "icu-1.parquet").unlink()
    assert "with the same SHA-256" in taken(here).stdout
    snapshots_in(here / "home")[0].require_unchanged()
    (here / "icu-1.parquet").unlink()
    clinic(here, 60)
    assert "take another name" in taken(here, code=1).stderr
    assert not (here / "icu-1.parquet").exists()


def test_a_file_of_somebody_else_is_never_replaced(here: Path) -> None:
    (here / "icu-1.parquet").write_bytes(b"other")
    assert "icu-1.parquet exists" in taken(here, code=1).stderr
    assert (here / "icu-1.parquet").read_bytes() == b"other"
    assert snapshots_in(here / "home") == []


def test_the_records_of_a_name_are_checked_and_its_column_counts(here: Path) -> None:
    taken(here)
    settings = write_settings(here / "study.json", training={"task_parameters": TASK, "rows_per_patient": 2})
    report = json.loads(data("check", "icu-1", "--settings", settings, "--json").stdout)
    assert (report["patients"], report["labels"]) == (50, {"no": 17, "yes": 33})
    assert "Leave the option out" in data("check", "icu-1", "--patient-column", "age", code=1).stderr
    with sqlite3.connect(here / "clinic.db") as connection:
        connection.execute("UPDATE icu SET age = 1")
    (here / "cohort.sql").write_text(QUERY + " WHERE age > 0")
    assert "older than its query: cohort.sql has changed" in data("check", "icu-1").stderr
    path = here / "icu-1.parquet"
    path.write_bytes(path.read_bytes() + b"?")
    for name in ("icu-1", path):
        assert hashlib.sha256(path.read_bytes()).hexdigest() in data("check", name, code=3).stderr


def test_a_ledger_that_was_written_over_is_refused(here: Path) -> None:
    taken(here)
    with sqlite3.connect(here / "home" / LEDGER_FILE) as connection:
        connection.execute("UPDATE entries SET body = replace(body, 'ada', 'eve')")
    assert "not what was written" in data("list", code=1).stderr


def test_progress_is_a_line_now_and_then_without_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 5.0, 20.0, 21.0, 40.0])
    monkeypatch.setattr("wardround.cli.hospital.snapshots.time.monotonic", lambda: next(clock))
    lines = _Lines()
    for rows, expected in ((1_000, 8_000), (4_000, 8_000), (4_100, 8_000), (9_000, None)):
        lines(rows, expected, "visits")
    assert capsys.readouterr().err.splitlines() == [
        "visits: 4,000 rows read of about 8,000, 15 s left",
        "visits: 9,000 rows read",
    ]


def test_what_is_left_out_stands_in_json_too(here: Path) -> None:
    omop = sqlite(here / "omop.db")
    (here / "omop.toml").write_text(f'[source]\nkind = "omop"\nurl = "{omop.url}"\n')
    study = settings_json(training={"task_parameters": TASK, "rows_per_patient": 1})
    settings = here / "study.json"
    settings.write_text(json.dumps(study | {"cohort": cohort().model_dump(mode="json")}))
    taken = data("snapshot", here / "omop.toml", "--settings", settings, "-o", here / "omop", "--json")
    assert json.loads(taken.stdout)["remarks"] == REMARKS
    assert all(remark in taken.stderr for remark in REMARKS)
