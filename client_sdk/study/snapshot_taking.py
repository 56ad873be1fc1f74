"""How a snapshot is taken: read, written beside its place, entered in the hospital's ledger, and put in its place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from client_sdk.errors import ConfigurationError
from client_sdk.guard.snapshots import Snapshot, SnapshotLedger, finish, named, snapshots_in, taken
from study_protocol.study.cohort import Cohort
from study_protocol.wire.failpoints import failpoint, register

if TYPE_CHECKING:
    from record_sources.snapshot import Prepared
    from record_sources.workspace import Progress

register("snapshot.after-entry")
