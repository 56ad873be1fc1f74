"""Snapshots of a hospital without a source: files with their entry."""

from __future__ import annotations

import hashlib
from pathlib import Path

from client_sdk.guard.snapshots import Snapshot, SnapshotLedger, sizes_of
from record_sources.snapshot.record import QueryRecord, SnapshotRecord, TableRecord, digests_of

QUERY = "SELECT patient, age FROM icu"


def frozen(folder: Path, name: str, content: bytes = b"not read here", patients: int = 5) -> Snapshot:
    """Return the entry of one file that is written below `folder`."""
    path = folder / f"{name}.parquet"
    path.write_bytes(content)
    return _entry(folder, name, path, {"records": patients})


def frozen_folder(folder: Path, name: str) -> Snapshot:
    """Return the entry of a folder of two files that is written below `folder`."""
    whole = folder / name
    whole.mkdir()
    paths = [whole / "patients.parquet", whole / "visits.parquet"]
    for path in paths:
        path.write_bytes(path.name.encode())
    return _entry(folder, name, whole, {"patients": 3, "visits": 4})


def recorded(home: Path, snapshot: Snapshot) -> Snapshot:
    """Write the entry into the ledger of the hospital's directory."""
    with SnapshotLedger.open_in(home) as ledger:
        return ledger.record(snapshot)


def _entry(folder: Path, name: str, path: Path, tables: dict[str, int]) -> Snapshot:
    query = folder / f"{name}.sql"
    query.write_text(QUERY)
    query_sha256 = hashlib.sha256(QUERY.encode()).hexdigest()
    files = digests_of(path)
    record = SnapshotRecord(
        name=name,
        kind="sql",
        place="SQLite database clinic.db",
        queries={"records": QueryRecord(text=QUERY, sha256=query_sha256)},
        patient_column="patient",
        tables={table: TableRecord(rows=rows, patients=rows, columns=("patient",)) for table, rows in tables.items()},
        files=files,
        sha256=hashlib.sha256("".join(files.values()).encode()).hexdigest(),
    )
    return Snapshot(record, path, sizes_of(path), folder / f"{name}.toml", {str(query): query_sha256}, "", "ada")
