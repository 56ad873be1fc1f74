"""What left a hospital: one by one with its charge, and counted by day, study and kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from client_sdk.guard.charges import Charge
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.ledger_views import BodyKind, Departure
from wardround.cli.hospital.egress import DayOfDepartures, egress_log, summarise


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The directory of a hospital that sent one update and may have sent one refusal."""
    with HospitalLedger.open(ledger_path(tmp_path, "icu")) as ledger:
        ledger.open_study("sepsis", {})
        ledger.charge("sepsis", 1, Charge("instance", 1.0, 0.5, 2), (), "a" * 64)
        ledger.finish_update("sepsis", 1, sha256="d" * 64, size=10, sums=None)
        ledger.ready_refusal("sepsis", 2, sha256="e" * 64, size=3)
        ledger.mark_answered("sepsis", 1, "d" * 64, "accepted")
    return tmp_path


def test_what_left_is_listed_with_the_charge_that_paid_for_it(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    egress_log("icu", home, as_json=True)
    listed = json.loads(capsys.readouterr().out)
    assert [(row["what"], row["round"], row["bytes"], row["charge"], row["answer"]) for row in listed] == [
        ("update", 1, 10, 2, "accepted"),
        ("refusal", 2, 3, None, None),
    ]
    egress_log("icu", home)
    displayed = capsys.readouterr().out
    assert "d" * 64 in displayed
    assert "Egress log" in displayed


def test_a_summary_counts_what_left(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    egress_log("icu", home, summary=True, as_json=True)
    *rows, total = json.loads(capsys.readouterr().out)
    assert [(row["study"], row["what"], row["count"], row["bytes"]) for row in rows] == [
        ("sepsis", "refusal", 1, 3),
        ("sepsis", "update", 1, 10),
    ]
    assert (total["day"], total["count"], total["bytes"]) == (None, 2, 13)
    egress_log("icu", home, summary=True)
    displayed = capsys.readouterr().out
    assert "d" * 64 not in displayed
    assert "13" in displayed.split("in all")[1]


def _departure(day: int, study: str, what: BodyKind, size: int) -> Departure:
    return Departure(study, 1, what, "a" * 64, size, 1, f"2026-11-{day:02}T23:59:59Z")


def test_days_studies_and_kinds_are_counted_apart() -> None:
    departures = [
        _departure(2, "stroke", "update", 1_000),
        _departure(1, "sepsis", "update", 10),
        _departure(1, "sepsis", "update", 20),
        _departure(1, "sepsis", "refusal", 3),
        _departure(2, "sepsis", "update", 40),
    ]
    assert summarise(departures) == [
        DayOfDepartures("2026-11-01", "sepsis", "refusal", 1, 3),
        DayOfDepartures("2026-11-01", "sepsis", "update", 2, 30),
        DayOfDepartures("2026-11-02", "sepsis", "update", 1, 40),
        DayOfDepartures("2026-11-02", "stroke", "update", 1, 1_000),
        DayOfDepartures(None, None, None, 5, 1_073),
    ]
    assert summarise([]) == [DayOfDepartures(None, None, None, 0, 0)]
