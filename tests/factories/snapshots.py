"""Snapshots of a hospital without a source: files with their entry."""

from __future__ import annotations

import hashlib
from pathlib import Path

from client_sdk.guard.snapshots import QueryText, Snapshot, SnapshotFile, SnapshotLedger

QUERY = "SELECT patient, age FROM icu"


def frozen(folder: Path, name: str, content: bytes = b"not read here", patients: int = 5) -> Snapshot:
    """Return the entry of one file that is written below `folder`."""
    path = folder / f"{name}.parquet"
    path.write_bytes(content)
    return _entry(folder, name, path, (_file(path, patients),), patients)


def frozen_folder(folder: Path, name: str) -> Snapshot:
    """Return the entry of a folder of two files that is written below `folder`."""
    whole = folder / name
    whole.mkdir()
    paths = [whole / "patients.parquet", whole / "visits.parquet"]
    for path in paths:
        path.write_bytes(path.name.encode())
    return _entry(folder, name, whole, (_file(paths[0], 3), _file(paths[1], 4)), 3)


def recorded(home: Path, snapshot: Snapshot) -> Snapshot:
    """Write the entry into the ledger of the hospital's directory."""
    with SnapshotLedger.wait_for(home) as ledger:
        return ledger.record(snapshot)


def _file(path: Path, rows: int) -> SnapshotFile:
    content = path.read_bytes()
    return SnapshotFile(path.name, hashlib.sha256(content).hexdigest(), len(content), rows)


def _entry(folder: Path, name: str, path: Path, files: tuple[SnapshotFile, ...], patients: int) -> Snapshot:
    query = folder / f"{name}.sql"
    query.write_text(QUERY)
    query_sha256 = hashlib.sha256(QUERY.encode()).hexdigest()
    return Snapshot(
        name=name,
        path=str(path),
        kind="sql",
        source="SQLite database clinic.db",
        description=str(folder / f"{name}.toml"),
        queries=(QueryText(str(query), QUERY, query_sha256),),
        query_sha256=query_sha256,
        patient_column="patient",
        patients=patients,
        files=files,
        sha256=hashlib.sha256("".join(file.sha256 for file in files).encode()).hexdigest(),
        person="ada",
    )
