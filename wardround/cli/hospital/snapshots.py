"""Commands `wardround data snapshot` and `data list`: freeze records of a source, and show what was frozen."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from client_sdk.api.config import load as load_settings
from wardround.cli.shared.person_options import As
from wardround.cli.shared.settings_file import read_any_settings
from wardround.cli.shared.shared import AsJson, Home, plain_errors, print_json, say, table

if TYPE_CHECKING:
    from client_sdk.guard.snapshots import Snapshot
    from client_sdk.study.snapshot_taking import TakenSnapshot
    from record_sources.working.workspace import RowProgress
    from study_protocol.study.cohort import Cohort

SourceFile = Annotated[
    Path, typer.Argument(help="source file, TOML: where the records are, and which query reads them")
]
Target = Annotated[
    Path, typer.Option("--output", "-o", help="path of the snapshot, for example icu-2026-11.parquet. It names it")
]
StudyFile = Annotated[
    Path | None, typer.Option("--settings", help="the study's settings, for sources in OMOP or FHIR: their cohort")
]
SnapshotName = Annotated[str | None, typer.Argument(help="name of one snapshot, to see all of its entry")]

_INTERRUPTED, _SECONDS_BETWEEN_LINES, _SHORT = 130, 10.0, 12


def take(
    source: SourceFile,
    target: Target,
    settings: StudyFile = None,
    as_name: As = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Read records from a database, FHIR files or a workbook once, and freeze them under a name.

    The hospital's own ledger keeps time, person, query, counts and SHA-256. They never leave the hospital.
    """
    from client_sdk.guard.people import DecidingPerson
    from client_sdk.study.snapshot_taking import take_snapshot

    with plain_errors(), _stopped_in_words():
        cohort, directory = _cohort(settings), home or load_settings().client_home
        person = str(DecidingPerson.acting(as_name))
        with _progress() as progress:
            snapshot = take_snapshot(directory, source, target, cohort, person, progress)
        _show_taken(snapshot, as_json)


def list_snapshots(name: SnapshotName = None, home: Home = None, as_json: AsJson = False) -> None:
    """List the hospital's snapshots and the studies that used them, or show one with the text of its query."""
    from client_sdk.guard.snapshots import snapshots_in
    from client_sdk.study.snapshot_records import lost_in_words, older_than_query, studies_by_snapshot

    with plain_errors():
        directory = home or load_settings().client_home
        snapshots, studies = snapshots_in(directory), studies_by_snapshot(directory)
        if lost := lost_in_words(directory, snapshots):
            say(f"warning: {lost}", err=True)
        if name is not None:
            snapshots = [_snapshot(snapshots, name)]
        for snapshot in snapshots:
            _finish(snapshot)
            if warning := older_than_query(snapshot):
                say(f"warning: {warning}", err=True)
        if as_json:
            entries = [_entry(snapshot, studies) for snapshot in snapshots]
            print_json(entries if name is None else entries[0])
        elif name is None:
            _show_all(snapshots, studies)
        else:
            _show_one(snapshots[0], studies)


def _snapshot(snapshots: Sequence[Snapshot], name: str) -> Snapshot:
    """Return the snapshot of this name. Raises ConfigurationError: there is none."""
    from client_sdk.errors import ConfigurationError
    from client_sdk.guard.snapshots import snapshot_named

    snapshot = snapshot_named(snapshots, name)
    if snapshot is None:
        names = ", ".join(each.name for each in snapshots) or "none"
        raise ConfigurationError(f"there is no snapshot {name}. Snapshots of this hospital: {names}")
    return snapshot


def _cohort(settings: Path | None) -> Cohort | None:
    return None if settings is None else read_any_settings(settings).cohort


class _Terminated(KeyboardInterrupt):
    """SIGTERM. Drivers of databases clean up after a KeyboardInterrupt, and after no other exception."""


def _terminate(*_: object) -> None:
    raise _Terminated


@contextmanager
def _stopped_in_words() -> Generator[None]:
    """Say after Ctrl-C or SIGTERM that no half snapshot is left."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except KeyboardInterrupt as stopped:
        say("wardround: stopped: no half snapshot is left. The same command takes it anew", err=True)
        raise typer.Exit(1 if isinstance(stopped, _Terminated) else _INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _progress() -> Generator[RowProgress]:
    """Give a progress bar with the expected time on a terminal, and a line now and then elsewhere."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rows]}"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True)) as bars:
        tasks: dict[str, TaskID] = {}

        def show(rows: int, expected: int | None, table: str) -> None:
            if table not in tasks:
                tasks[table] = bars.add_task(table, rows="")
            total = None if expected is None else max(expected, rows)
            bars.update(tasks[table], completed=rows, total=total, rows=f"{rows:,} rows")

        yield show


class _Lines:
    """A line on standard error every ten seconds, with the rows so far and the time that is left."""

    def __init__(self) -> None:
        self._table, self._begun, self._last = "", 0.0, time.monotonic()

    def __call__(self, rows: int, expected: int | None, table: str) -> None:
        now = time.monotonic()
        if table != self._table:
            self._table, self._begun = table, now
        if now - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = now
            say(f"{table}: {rows:,} rows read{_remaining(rows, expected, now - self._begun)}", err=True)


def _remaining(rows: int, expected: int | None, seconds: float) -> str:
    if not expected or not rows or expected < rows:
        return ""
    return f" of about {expected:,}, {seconds * (expected - rows) / rows:.0f} s left"


def _finish(snapshot: Snapshot) -> None:
    """Finish what a killed process left, unless a process is still at it."""
    from client_sdk.study.snapshot_taking import finish
    from record_sources.errors import SourceError

    try:
        finish(snapshot)
    except SourceError as error:
        say(f"warning: {error}", err=True)


def _show_taken(taken_snapshot: TakenSnapshot, as_json: bool) -> None:
    snapshot, record = taken_snapshot.snapshot, taken_snapshot.snapshot.record
    for remark in taken_snapshot.remarks:
        say(remark, err=as_json)
    if as_json:
        print_json(_entry(snapshot, {}) | {"new": taken_snapshot.is_new, "remarks": list(taken_snapshot.remarks)})
        return
    if not taken_snapshot.is_new:
        say(f"snapshot {snapshot.name} of {snapshot.at[:10]} has its files again, with the same SHA-256")
    rows = [[name, f"{each.rows:,}", f"{each.patients:,}"] for name, each in record.tables.items()]
    table(f"Snapshot {snapshot.name}", ["table", "rows", "patients"], rows)
    say(f"{snapshot.path}, SHA-256 {record.sha256}. No data was sent")
    say(f"check it by its name: wardround data check {snapshot.name}")
    say(f"take part with it: wardround join STUDY --data {snapshot.name}")


def _entry(snapshot: Snapshot, studies: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    used_by = list(studies.get(snapshot.name, ()))
    body = snapshot.to_dict()
    return body.pop("record") | body | {"state": snapshot.state(), "studies": used_by}


def _show_all(snapshots: Sequence[Snapshot], studies: Mapping[str, Sequence[str]]) -> None:
    if not snapshots:
        say("no snapshot yet: `wardround data snapshot source.toml -o NAME.parquet` takes one")
        return
    rows = [
        [
            snapshot.name,
            snapshot.at[:16].replace("T", " "),
            snapshot.person,
            f"{snapshot.record.kind}: {snapshot.record.place}",
            f"{snapshot.record.rows:,}",
            f"{snapshot.record.patients:,}",
            snapshot.record.sha256[:_SHORT],
            snapshot.state(),
            ", ".join(studies.get(snapshot.name, ())),
        ]
        for snapshot in snapshots
    ]
    heads = ["name", "taken (UTC)", "person", "source", "rows", "patients", "sha256", "files", "studies"]
    table("Snapshots", heads, rows)


def _show_one(snapshot: Snapshot, studies: Mapping[str, Sequence[str]]) -> None:
    record = snapshot.record
    rows = [
        ["taken (UTC)", f"{snapshot.at}, by {snapshot.person}"],
        ["source", f"{record.kind}: {record.place} ({snapshot.description})"],
        ["path", f"{snapshot.path}: {snapshot.state()}"],
        ["column of patients", record.patient_column],
        *([f"table {name}", f"{each.rows:,} rows, {each.patients:,} patients"] for name, each in record.tables.items()),
        *([f"SHA-256 of {name}", sha256] for name, sha256 in record.files.items()),
        ["SHA-256 of the snapshot", record.sha256],
        ["SHA-256 of the query", record.query_sha256 or "-"],
        ["studies", ", ".join(studies.get(snapshot.name, ())) or "-"],
    ]
    table(f"Snapshot {snapshot.name}", ["", ""], rows)
    for name, query in record.queries.items():
        say(f"\nquery of table {name}:\n{query.text}")
    if snapshot.cohort:
        say(f"\ncohort:\n{snapshot.cohort}")
