"""Studies on snapshots of a database: equal to those on a file of the same rows, silent about how they were made."""

from __future__ import annotations

import csv
import hashlib
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import torch
from safetensors.numpy import load as load_weights
from typer.testing import CliRunner

from client_sdk.errors import RecordsChanged
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.snapshots import Snapshot, snapshots_in
from client_sdk.study.hospital import Hospital
from client_sdk.study.participation import Outcome
from client_sdk.study.snapshot_records import find_records
from client_sdk.study.snapshot_taking import take_snapshot
from private_learning.records import Table, TableFormat, TableMapping, load
from study_protocol.randomness.source import SeededRandomness
from study_protocol.study.settings import StudySettings
from tests.factories.clinics import source_file
from tests.factories.commands import run_offline
from tests.factories.coordinator_in_process import Coordinator
from tests.factories.hospitals import coordinator, hospital, plain_policy
from tests.factories.settings import settings
from wardround.cli.main import build

COUNT = 60
COLUMNS = ("patient", "age", "rate", "sex", "ill")
QUERY = f"SELECT {', '.join(COLUMNS)} FROM stays_of_the_clinic"
TASK = {
    "task": "logistic-regression",
    "task_parameters": {
        "label": "ill",
        "label-values": "no|yes",
        "column.age": "18..90",
        "column.rate": "40..180; missing=70.5",
        "column.sex": "m|f; missing",
    },
}


def rows(count: int = COUNT) -> list[tuple[Any, ...]]:
    """Whole numbers, fractions, texts, cells without a value, and a patient that is a number with leading zeros."""
    return [
        (
            *(f"{row:04d}", 18 + row * 7 % 70, None if row % 9 == 4 else 40.1 + row / 3),
            *(None if row % 7 == 3 else "mf"[row % 2], "no" if row % 3 else "yes"),
        )
        for row in range(count)
    ]


def database(folder: Path, count: int = COUNT) -> Path:
    with sqlite3.connect(folder / "clinic.db") as connection:
        connection.execute("DROP TABLE IF EXISTS stays_of_the_clinic")
        connection.execute("CREATE TABLE stays_of_the_clinic (patient TEXT, age INT, rate REAL, sex TEXT, ill TEXT)")
        connection.executemany("INSERT INTO stays_of_the_clinic VALUES (?, ?, ?, ?, ?)", rows(count)[::-1])
    connection.close()
    (folder / "cohort.sql").write_text(QUERY)
    return source_file(folder, "sqlite:///clinic.db")


def taken(folder: Path, name: str = "icu-1") -> Snapshot:
    source, target = folder / "source.toml", folder / f"{name}.parquet"
    return take_snapshot(folder / "mercy", source, target, None, "ada", lambda *_: None).snapshot


def text_table(path: Path) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows()])
    return path


def study(**options: Any) -> StudySettings:
    chosen = {"expected_batch_size": 20.0, "sampling_rate": 0.5, "noise_multiplier": 1.0, "max_steps": 2} | options
    return settings(training=TASK, **chosen)


def join(
    here: Hospital, folder: Path, place: str, columns: str = "", study: str = "sepsis", **options: Any
) -> tuple[Outcome, Table]:
    """Take part as the command does: with the records of a path or a snapshot's name, and a mapping if it is given."""
    found = find_records(folder / "mercy", Path(place), "patient")
    written = None if found.snapshot else TableFormat("comma", "utf-8", header=True, decimal="point", dates=None)
    local = load(found.path, patient_column=found.patient_column, table_format=written)
    if columns:
        local = TableMapping.read(folder / columns).applied(local, found.patient_column)
    assert isinstance(local, Table)
    torch.manual_seed(2)
    chosen: dict[str, Any] = {"policy": plain_policy(), "dataset": "icu", "origin": found.origin(local.mapping_sha256)}
    coins = SeededRandomness(3, allow_insecure=True)
    return here.join(study, None, local, randomness=coins, **(chosen | options)), local


def released(folder: Path, place: str) -> tuple[Coordinator, Outcome]:
    other = coordinator(study(bayesian=True))
    return other, join(hospital(other, folder / "mercy"), folder, place)[0]


def test_a_study_on_a_snapshot_releases_the_bytes_of_one_on_the_text_table(tmp_path: Path) -> None:
    """The database holds the rows in another order."""
    found = list[tuple[Any, ...]]()
    for kind in ("snapshot", "text"):
        folder = tmp_path / kind
        folder.mkdir()
        database(folder)
        place = taken(folder).name if kind == "snapshot" else str(text_table(folder / "rows.csv"))
        other, outcome = released(folder, place)
        with HospitalLedger.open(ledger_path(folder / "mercy", "icu"), read_only=True) as ledger:
            origin = ledger.records_marks("sepsis")[0].origin
            assert origin is not None
            assert origin.snapshot == ("icu-1" if kind == "snapshot" else "")
            charges = ledger.charges()
        assert outcome.rounds_sent > 0
        # Their headers name the ledger, which has times.
        weights = [
            {name: cells.tobytes() for name, cells in load_weights(model).items()} for model in other.models.values()
        ]
        found.append((other.updates, weights, charges))
    assert len(found[0][1]) > 1
    assert found[0][2]
    assert found[0] == found[1]


@pytest.mark.slow
def test_a_simulation_on_a_snapshot_finds_what_it_finds_on_the_text_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARDROUND_CLIENT_HOME", str(tmp_path / "mercy"))
    database(tmp_path)
    (tmp_path / "study.json").write_text(json.dumps(study().as_json()))
    places = (taken(tmp_path).path, text_table(tmp_path / "rows.csv"))
    command = ["simulate", tmp_path / "study.json", "--clients", "2", "--patient-column", "patient", "--json"]
    found = [run_offline(*command, "--data", place) for place in places]
    seeds = [[without_times(seed) for seed in each["seeds"]] for each in found]
    assert seeds[0]
    assert seeds[0] == seeds[1]


def without_times(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {name: cell for name, cell in entries.items() if "seconds" not in name}


@pytest.mark.slow
def test_another_query_is_said_refused_and_accepted_once(tmp_path: Path) -> None:
    database(tmp_path)
    here = hospital(coordinator(study()), tmp_path / "mercy")
    (tmp_path / "columns.toml").write_text("[columns]\nage = { add = 0 }")
    first = taken(tmp_path)
    join(here, tmp_path, first.name, "columns.toml")
    database(tmp_path, COUNT + 21)
    (tmp_path / "cohort.sql").write_text(f"{QUERY} WHERE age >= 18")
    second = taken(tmp_path, "icu-2")
    said = f"{COUNT} → {COUNT + 21} patients; another query; the same mapping"
    with pytest.raises(RecordsChanged, match=f"{said}.*--accept-changed-records"):
        join(here, tmp_path, second.name, "columns.toml")
    asked = list[str]()
    for _ in range(2):
        join(here, tmp_path, second.name, "columns.toml", accepts_records=lambda words: asked.append(words) or True)
    assert len(asked) == 1
    assert said in asked[0]
    join(here, tmp_path, second.name, "columns.toml")
    with HospitalLedger.open(ledger_path(tmp_path / "mercy", "icu"), read_only=True) as ledger:
        mark = ledger.records_marks("sepsis")[0]
    assert mark.accepted
    assert mark.origin is not None
    assert (mark.origin.snapshot, mark.origin.sha256) == ("icu-2", second.record.sha256)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[columns]\nsex = { missing = ["none"] }', "patients, rows and values; the same query; another mapping"),
        ("[columns]\nage = { add = 1 }", "with other values, columns or files; the same query; another mapping"),
        ("", "patients, rows and values; the same query; no mapping, where there was one"),
    ],
)
def test_another_mapping_of_a_snapshot_is_said_refused_and_accepted_once(text: str, said: str, tmp_path: Path) -> None:
    database(tmp_path)
    here, snapshot = hospital(coordinator(study()), tmp_path / "mercy"), taken(tmp_path)
    (tmp_path / "columns.toml").write_text("[columns]\nage = { add = 0 }")
    (tmp_path / "other.toml").write_text(text)
    join(here, tmp_path, snapshot.name, "columns.toml")
    columns = "other.toml" if text else ""
    with pytest.raises(RecordsChanged, match=said):
        join(here, tmp_path, snapshot.name, columns)
    asked = list[str]()
    for _ in range(2):
        join(here, tmp_path, snapshot.name, columns, accepts_records=lambda words: asked.append(words) or True)
    assert len(asked) == 1
    join(here, tmp_path, snapshot.name, columns)


def test_no_request_says_how_the_records_were_made(tmp_path: Path) -> None:
    """Of a hospital that enrols, joins, and joins again with changed records and without them."""
    database(tmp_path)
    other, sent = coordinator(study()), list[bytes]()

    def keep(request: httpx.Request) -> None:
        sent.append(b"\n".join([request.method.encode(), str(request.url).encode(), request.read()]))
        sent.extend(name + b": " + text for name, text in request.headers.raw)

    other.meddle = keep
    here, snapshot = hospital(other, tmp_path / "mercy"), taken(tmp_path)
    (tmp_path / "columns.toml").write_text("[columns]\nage = { add = 0 }")
    (tmp_path / "other.toml").write_text("[columns]\nage = { add = 1 }")
    _, local = join(here, tmp_path, snapshot.name, "columns.toml")
    with pytest.raises(RecordsChanged):
        join(here, tmp_path, snapshot.name, "other.toml")
    _, changed = join(here, tmp_path, snapshot.name, "other.toml", accepts_records=lambda _: True)
    with HospitalLedger.open(ledger_path(tmp_path / "mercy", "icu"), read_only=True) as ledger:
        marks = ledger.records_marks()
    secrets = {
        *(snapshot.name, snapshot.record.sha256, *snapshot.record.files.values(), snapshot.record.query_sha256),
        *(QUERY, "stays_of_the_clinic", str(tmp_path), snapshot.path.name, "clinic.db", "source.toml", "cohort.sql"),
        *(local.mapping_sha256, changed.mapping_sha256, "columns.toml", "other.toml"),
        *(text for mark in marks for text in (mark.content, mark.people)),
        *(hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in ("columns.toml", "other.toml")),
        *(text for mark in marks if mark.origin is not None for text in astuple(mark.origin)),
    }
    assert "" not in secrets
    whole = b"\n".join(sent)
    assert b"/update" in whole
    for secret in secrets:
        forms = [secret.encode(), json.dumps(secret)[1:-1].encode(), quote(secret).encode()]
        forms += [bytes.fromhex(secret)] if len(secret) == 64 else []
        assert not any(form in whole for form in forms), secret


@pytest.mark.slow
def test_a_changed_file_is_refused_at_the_next_join_with_both_digests(tmp_path: Path) -> None:
    database(tmp_path)
    here, snapshot = hospital(coordinator(study()), tmp_path / "mercy"), taken(tmp_path)
    join(here, tmp_path, snapshot.name)
    snapshot.path.write_bytes(snapshot.path.read_bytes()[:-1] + b"?")
    with pytest.raises(RecordsChanged) as refused:
        join(here, tmp_path, snapshot.name, accepts_records=lambda _: True)
    for digest in (snapshot.record.sha256, hashlib.sha256(snapshot.path.read_bytes()).hexdigest()):
        assert digest in str(refused.value)


@pytest.mark.slow
def test_a_snapshot_is_taken_while_a_study_runs_on_another(tmp_path: Path) -> None:
    """By the command, from the middle of a round's work: the ledger of the data set is locked."""
    source = database(tmp_path)
    here, app = hospital(coordinator(study()), tmp_path / "mercy"), build()
    first, done = taken(tmp_path), list[int]()

    def take(_: object) -> None:
        name = f"icu-{2 + len(done)}"
        command = ["data", "snapshot", source, "-o", tmp_path / f"{name}.parquet", "--home", tmp_path / "mercy"]
        result = CliRunner().invoke(app, [*map(str, command), "--as", "ada"])
        assert result.exit_code == 0, result.output
        done.append(result.exit_code)

    outcome, _ = join(here, tmp_path, first.name, on_round=take)
    assert len(done) >= outcome.rounds_sent > 0
    names = [snapshot.name for snapshot in snapshots_in(tmp_path / "mercy")]
    assert names == [f"icu-{place + 1}" for place in range(len(done) + 1)]
    join(here, tmp_path, "icu-2")
