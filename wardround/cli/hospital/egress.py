"""The command `wardround egress-log`: what left this hospital, one by one or counted by day, study and kind."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from client_sdk.api.config import load as load_settings
from wardround.cli.hospital.hospital import Dataset
from wardround.cli.shared.shared import AsJson, Home, not_here, plain_errors, print_json, say, table

if TYPE_CHECKING:
    from client_sdk.guard.ledger_views import Departure

Summary = Annotated[
    bool, typer.Option("--summary", help="count what left and its bytes for each day (UTC), study and kind, and in all")
]


@dataclasses.dataclass(frozen=True)
class DayOfDepartures:
    """Bytes that left, or may have left, for one study on one day. The total has no day, study and kind.

    count   messages
    bytes   of all of them together
    """

    day: str | None
    study: str | None
    what: str | None
    count: int
    bytes: int


def summarise(departures: Sequence[Departure]) -> list[DayOfDepartures]:
    """Return one row for each day (UTC), study and kind, in this order, then the total."""
    # Times are UTC in ISO 8601, which begins with the day.
    keys = sorted({(departure.ready_at[:10], departure.study, departure.what) for departure in departures})
    rows: list[DayOfDepartures] = []
    for key in keys:
        sizes = [d.bytes for d in departures if (d.ready_at[:10], d.study, d.what) == key]
        rows.append(DayOfDepartures(*key, len(sizes), sum(sizes)))
    total = DayOfDepartures(None, None, None, len(departures), sum(departure.bytes for departure in departures))
    return [*rows, total]


def egress_log(
    dataset: Dataset = "records", home: Home = None, summary: Summary = False, as_json: AsJson = False
) -> None:
    """List all data that left this hospital: its time, its digest, and the charge that paid for it."""
    from client_sdk.guard.ledger import HospitalLedger
    from client_sdk.guard.ledger_file import ledger_path

    with plain_errors():
        directory = home or load_settings().client_home
        with HospitalLedger.open(ledger_path(directory, dataset), read_only=True) as ledger:
            departures = ledger.departures()
    if not departures and (elsewhere := not_here(directory, dataset)):
        say(f"{dataset}: no data of this data set has left the hospital{elsewhere}", err=True)
    listed = summarise(departures) if summary else departures
    if as_json:
        print_json([dataclasses.asdict(row) for row in listed])
    elif summary:
        _show_summary(summarise(departures))
    else:
        _show(departures)


def _show(departures: Sequence[Departure]) -> None:
    rows = [
        [d.study, str(d.round), d.what, str(d.bytes), str(d.charge or "-"), d.ready_at, d.answer or "", d.sha256]
        for d in departures
    ]
    table("Egress log", ["study", "round", "what", "bytes", "charge", "ready (UTC)", "answer", "sha256"], rows)


def _show_summary(days: Sequence[DayOfDepartures]) -> None:
    rows = [[d.day or "in all", d.study or "", d.what or "", f"{d.count:,}", f"{d.bytes:,}"] for d in days]
    table("What left, by day", ["day (UTC)", "study", "what", "messages", "bytes"], rows)
