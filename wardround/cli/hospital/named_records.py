"""Records of a command line: a path, or the name of a snapshot, with what a person should know of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from client_sdk.api.config import load as load_settings
from wardround.cli.shared.shared import say

if TYPE_CHECKING:
    from client_sdk.study.snapshot_records import FoundRecords


def named_records(place: Path, patient_column: str | None, home: Path | None = None) -> FoundRecords:
    """Return where the records are. A snapshot is verified, and a warning says if it is older than its query.

    Raises:
        ConfigurationError, RecordsChanged: as `find_records`.
    """
    from client_sdk.study.snapshot_records import find_records, older_than_query

    records = find_records(home or load_settings().client_home, place, patient_column)
    if records.snapshot is not None and (warning := older_than_query(records.snapshot)):
        say(f"warning: {warning}", err=True)
    return records
