"""The ledger of objections: keyed digests, one entry for each patient, whole after any end."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from client_sdk.errors import ConfigurationError, LedgerDamaged
from client_sdk.guard.exclusion import ExclusionEntry, ExclusionList
from client_sdk.guard.exclusion_file import identity_of
from client_sdk.guard.objections import OBJECTIONS_LEDGER, ObjectionLedger, objection_of
from client_sdk.guard.people import DecidingPerson
from client_sdk.guard.policy import SitePolicy
from study_protocol.files.private import exposure

ADA = DecidingPerson.acting("Ada Lovelace", "privacy officer", "asked on the phone")


def test_an_entry_has_person_time_and_place_and_no_identifier(tmp_path: Path) -> None:
    with ObjectionLedger.open_in(tmp_path) as ledger:
        (objection,) = ledger.record([identity_of("Patient-4711")], ADA, {"icu": 7})
    assert (objection.number, objection.person, objection.ledgers) == (1, ADA, {"icu": 7})
    assert objection.at.endswith("+00:00")
    listed = ExclusionList((ExclusionEntry("list", 1, "PATIENT-4711"),))
    assert objection_of(tmp_path, "patient-4711", listed) == objection
    # Whoever left the list is read again: no letter says otherwise.
    with pytest.raises(ConfigurationError, match="objection 1: the patient is not on the list any more"):
        objection_of(tmp_path, "patient-4711", ExclusionList(()))
    assert exposure(tmp_path / OBJECTIONS_LEDGER) is None
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    assert b"4711" not in stored


@pytest.mark.parametrize("spelling", ["0042", "42", "42.0", " 42 ", '"42"', "\uff14\uff12"])
def test_spellings_have_one_digest(tmp_path: Path, spelling: str) -> None:
    with ObjectionLedger.open_in(tmp_path) as ledger:
        (first,) = ledger.record(["42"], ADA, {})
        assert ledger.record([identity_of(spelling)], ADA, {}) == []
        assert ledger.find(identity_of(spelling)) == first
        assert ledger.find("43") is None


def test_hospitals_have_different_digests_of_one_patient(tmp_path: Path) -> None:
    digests: set[str] = set()
    for name in ("one", "two"):
        with ObjectionLedger.open_in(tmp_path / name) as ledger:
            digests.add(ledger.record(["42"], ADA, {})[0].digest)
    assert len(digests) == 2


def test_the_list_is_held_against_the_entries(tmp_path: Path) -> None:
    (tmp_path / "objections.txt").write_text("P1\n007\n")
    with ObjectionLedger.open_in(tmp_path) as ledger:
        ledger.record(["p1", "p2"], ADA, {})
        listed = ledger.listed(SitePolicy.in_force(tmp_path).exclusions)
        assert [each.digest in listed for each in ledger.objections()] == [True, False]


def test_an_entry_outlives_the_process_and_keeps_its_key(tmp_path: Path) -> None:
    with ObjectionLedger.open_in(tmp_path) as ledger:
        before = ledger.record(["p1", "p1", "P1", "p2"], ADA, {"icu": None})
    with ObjectionLedger.open_in(tmp_path) as ledger:
        assert ledger.objections() == before
        assert [each.number for each in before] == [1, 2]
        assert ledger.find("p2") == before[1]


def test_who_is_not_recorded_has_no_letter(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no objection of this patient is recorded"):
        objection_of(tmp_path, "p1", ExclusionList((ExclusionEntry("list", 1, "p1"),)))


def test_a_ledger_without_its_key_or_with_a_changed_entry_is_damaged(tmp_path: Path) -> None:
    with ObjectionLedger.open_in(tmp_path) as ledger:
        ledger.record(["p1"], ADA, {})
    path = tmp_path / OBJECTIONS_LEDGER
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM running_sums")
    with ObjectionLedger.open_in(tmp_path) as ledger, pytest.raises(LedgerDamaged, match="lost the key"):
        ledger.find("p1")
    with closing(sqlite3.connect(path)) as connection, connection:
        (body,) = connection.execute("SELECT body FROM entries").fetchone()
        connection.execute("UPDATE entries SET body = ?", (json.dumps(json.loads(body) | {"at": "2020"}),))
    with pytest.raises(LedgerDamaged):
        ObjectionLedger.open_in(tmp_path)
