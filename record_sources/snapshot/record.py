"""The record of a snapshot in the hospital's ledger. Reading it needs no package of a source."""

from __future__ import annotations

import hashlib
from pathlib import Path

from study_protocol.study.cohort import PATIENTS, Cohort
from study_protocol.wire.signing import canonical_json
from study_protocol.wire.values import Message, Sha256


class QueryRecord(Message):
    """The query of one table."""

    text: str
    sha256: Sha256


class TableRecord(Message):
    """One table of a snapshot."""

    rows: int
    patients: int
    columns: tuple[str, ...]


class SnapshotRecord(Message):
    """A snapshot: its source, its queries and its tables. It never leaves the hospital."""

    name: str
    kind: str
    place: str
    queries: dict[str, QueryRecord]
    cohort_sha256: Sha256 | None = None
    patient_column: str
    tables: dict[str, TableRecord]
    files: dict[str, Sha256]
    sha256: Sha256

    @property
    def query_sha256(self) -> str:
        """SHA-256 of the query, of several queries together, or of the cohort. Empty: the source has none."""
        digests = {table: query.sha256 for table, query in self.queries.items()}
        if len(digests) > 1:
            return hashlib.sha256(canonical_json(digests)).hexdigest()
        # One query has the digest of its file, which a person can compute with sha256sum.
        return next(iter(digests.values()), self.cohort_sha256 or "")

    @property
    def patients(self) -> int:
        """Number of patients. Of several tables, those of the table of patients."""
        return self.tables.get(PATIENTS, next(iter(self.tables.values()))).patients

    @property
    def rows(self) -> int:
        """Number of rows of all tables."""
        return sum(table.rows for table in self.tables.values())


def cohort_json(cohort: Cohort) -> str:
    """Return the canonical JSON of a cohort. `SnapshotRecord.cohort_sha256` is its SHA-256."""
    return canonical_json(cohort.model_dump(mode="json")).decode()


def digests_of(snapshot: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a snapshot, by its name. A snapshot that is not there has none."""
    paths = sorted(snapshot.iterdir()) if snapshot.is_dir() else [snapshot] if snapshot.is_file() else []
    return {path.name: _sha256(path) for path in paths}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
