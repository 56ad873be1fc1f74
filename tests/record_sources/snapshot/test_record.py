"""The record of a snapshot: its queries, its tables, and the digests of its files."""

from __future__ import annotations

import hashlib
from pathlib import Path

from private_learning.records.histories import read_histories
from record_sources.snapshot.preparation import prepare
from record_sources.snapshot.record import digests_of
from record_sources.source_file.description import SourceDescription
from study_protocol.files.private import exposure
from tests.record_sources.snapshot.clinic import QUERIES, of_people


def test_histories_become_a_folder_that_is_read(tmp_path: Path, description: SourceDescription) -> None:
    prepared = prepare(description, None, tmp_path / "icu")
    assert not (tmp_path / "icu").exists()
    path = prepared.publish()
    assert path == tmp_path / "icu"
    assert not (tmp_path / ".icu.part").exists()
    histories = read_histories(path)
    assert histories.patients == ("a", "b", "c")
    assert histories.owners("visits").tolist() == [0, 1, 1, -1]
    record = prepared.record
    assert {name: (table.rows, table.patients) for name, table in record.tables.items()} == {
        "patients": (3, 3),
        "visits": (4, 3),
    }
    assert record.files == digests_of(path)
    assert record.queries["visits"].text == QUERIES["visits"]
    assert record.queries["visits"].sha256 == hashlib.sha256(QUERIES["visits"].encode()).hexdigest()
    assert (record.kind, record.place, record.patient_column) == ("sql", "sqlite clinic.db", "patient")


def test_one_table_becomes_one_private_file_with_one_digest(tmp_path: Path, description: SourceDescription) -> None:
    one = of_people(tmp_path)
    first, second = (prepare(one, None, tmp_path / f"{name}.parquet") for name in ("x", "y"))
    assert first.publish() == tmp_path / "x.parquet"
    assert second.publish() == tmp_path / "y.parquet"
    assert first.record.sha256 == second.record.sha256
    assert first.record.sha256 == hashlib.sha256((tmp_path / "x.parquet").read_bytes()).hexdigest()
    assert exposure(tmp_path / "x.parquet") is None
