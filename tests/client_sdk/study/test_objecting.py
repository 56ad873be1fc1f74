"""Objections at a hospital without a network: on the list first, in the ledger once, whatever ends the process."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from client_sdk.errors import ConfigurationError
from client_sdk.guard.charges import Charge
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.objections import ObjectionLedger
from client_sdk.guard.people import DecidingPerson
from client_sdk.guard.policy import SitePolicy
from client_sdk.study.objecting import last_entries, take_objections
from client_sdk.study.objection_facts import letter_of
from study_protocol.wire import failpoints
from tests.factories.hospitals import plain_policy

ADA = DecidingPerson.acting("Ada")


def listed(home: Path) -> list[str]:
    return [entry.identity for entry in SitePolicy.in_force(home).exclusions.entries]


def recorded(home: Path) -> int:
    with ObjectionLedger.open_in(home) as ledger:
        return len(ledger.objections())


def test_a_patient_who_objects_twice_is_listed_and_recorded_once(tmp_path: Path) -> None:
    (first,) = take_objections(tmp_path, SitePolicy.in_force(tmp_path), ["42"], ADA)
    assert (first.is_new, first.was_listed) == (True, False)
    (again,) = take_objections(tmp_path, SitePolicy.in_force(tmp_path), ["0042"], ADA)
    assert (again.is_new, again.was_listed, again.objection) == (False, True, first.objection)
    assert listed(tmp_path) == ["42"]


def test_who_stood_on_the_list_by_hand_is_recorded_and_who_left_it_is_put_back(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text('excluded_patients = ["p0"]\nexcluded_patients_file = "left-out.txt"\n')
    (tmp_path / "left-out.txt").write_text("p1\r\n")
    taken = take_objections(tmp_path, SitePolicy.in_force(tmp_path), ["p0", "p1", "p2", "P2"], ADA)
    assert [(each.is_new, each.was_listed) for each in taken] == [(True, True), (True, True), (True, False)]
    # Whoever is in the policy itself needs no line.
    assert (tmp_path / "left-out.txt").read_bytes() == b"p1\r\np2\r\n"
    assert not (tmp_path / "objections.txt").exists()
    (tmp_path / "left-out.txt").write_bytes(b"p1\r\n")
    (again,) = take_objections(tmp_path, SitePolicy.in_force(tmp_path), ["p2"], ADA)
    assert (again.is_new, again.was_listed) == (False, False)
    assert (tmp_path / "left-out.txt").read_bytes() == b"p1\r\np2\r\n"


def test_who_left_the_list_objects_anew_with_the_rounds_until_then(tmp_path: Path) -> None:
    """A round while the patient was off the list may have read the records."""
    (first,) = take_objections(tmp_path, SitePolicy.in_force(tmp_path), ["p1"], ADA)
    (tmp_path / "objections.txt").write_text("")
    with HospitalLedger.open(ledger_path(tmp_path, "icu")) as ledger:
        ledger.open_study("sepsis", {})
        ledger.charge("sepsis", 1, Charge("instance", 4.0, 1.0, 1), (), "ab" * 32)
    (again,) = take_objections(tmp_path, SitePolicy.in_force(tmp_path), ["P1"], ADA)
    assert (again.is_new, again.was_listed) == (False, False)
    assert (first.objection.ledgers, again.objection.ledgers) == ({}, {"icu": 2})
    assert again.objection.number > first.objection.number
    assert (again.objection.since, again.objection.renewed) == (first.objection.at, True)
    assert recorded(tmp_path) == 1
    with ObjectionLedger.open_in(tmp_path) as ledger:
        (newest,) = ledger.objections()
    letter = letter_of(tmp_path, newest, SitePolicy.in_force(tmp_path), (), "", datetime.now(UTC))
    assert [each.number for each in letter.studies[0].rounds] == [1]
    assert "Later the list did not name the patient any more" in letter.document().to_markdown()


@pytest.mark.parametrize("point", ["objection.before-list", "objection.after-list"])
def test_a_process_that_ends_while_it_lists_a_patient_again_leaves_no_round_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    take_objections(tmp_path, SitePolicy.in_force(tmp_path), ["p1"], ADA)
    HospitalLedger.open(ledger_path(tmp_path, "icu")).close()
    (tmp_path / "objections.txt").write_text("")

    def come(name: str) -> None:
        if name == point:
            raise KeyboardInterrupt

    monkeypatch.setattr("client_sdk.study.objecting.failpoint", come)
    with pytest.raises(KeyboardInterrupt):
        take_objections(tmp_path, SitePolicy.in_force(tmp_path), ["p1"], ADA)
    with ObjectionLedger.open_in(tmp_path) as ledger:
        # None: all rounds are named, also later ones.
        assert ledger.objections()[0].ledgers == {"icu": None}
    monkeypatch.undo()
    (again,) = take_objections(tmp_path, SitePolicy.in_force(tmp_path), ["p1"], ADA)
    assert listed(tmp_path) == ["p1"]
    assert again.objection.ledgers == {"icu": None if again.was_listed else 0}


def test_rules_of_the_policy_hold(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="was not read from a file"):
        take_objections(tmp_path, plain_policy(), ["p1"], ADA)
    (tmp_path / "policy.toml").write_text("[approval]\nneeds_reason = true\n")
    with pytest.raises(ConfigurationError, match="needs_reason"):
        take_objections(tmp_path, SitePolicy.in_force(tmp_path), ["p1"], ADA)
    assert listed(tmp_path) == []
    asked = DecidingPerson.acting("Ada", reason="a letter")
    assert take_objections(tmp_path, SitePolicy.in_force(tmp_path), ["p1"], asked)[0].is_new


def test_a_damaged_ledger_of_a_data_set_does_not_hold_an_objection_up(tmp_path: Path) -> None:
    HospitalLedger.open(ledger_path(tmp_path, "icu")).close()
    ledger_path(tmp_path, "ward").write_bytes(b"no ledger at all" * 100)
    assert last_entries(tmp_path) == {"icu": 0, "ward": None}
    (taken,) = take_objections(tmp_path, SitePolicy.in_force(tmp_path), ["p1"], ADA)
    assert taken.objection.ledgers == {"icu": 0, "ward": None}


def test_many_at_once_lose_none(tmp_path: Path) -> None:
    names = [f"p{number % 12}" for number in range(24)]

    def take(name: str) -> bool:
        return take_objections(tmp_path, SitePolicy.in_force(tmp_path), [name], ADA)[0].is_new

    with ThreadPoolExecutor(6) as threads:
        new = list(threads.map(take, names))
    assert sum(new) == 12
    assert sorted(listed(tmp_path)) == sorted(set(names))
    assert recorded(tmp_path) == 12


@pytest.mark.slow
@pytest.mark.parametrize("name", failpoints.names("objection."))
def test_a_process_killed_at_every_step(tmp_path: Path, name: str) -> None:
    """The list and the ledger are whole, and the same command again makes up for what lacks."""
    (tmp_path / "objections.txt").write_bytes(b"p1\r\np2")
    command = [sys.executable, "-m", "wardround.cli.main", "objection", "add", "p9", "--home", str(tmp_path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    killed = subprocess.run(command, env=environment | {"WARDROUND_FAILPOINT": name}, check=False)
    assert killed.returncode == failpoints.EXIT_CODE
    is_listed, is_recorded = name != "objection.before-list", name == "objection.after-entry"
    assert (tmp_path / "objections.txt").read_bytes() == b"p1\r\np2" + (b"\r\np9\r\n" if is_listed else b"")
    assert recorded(tmp_path) == is_recorded
    again = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert listed(tmp_path) == ["p1", "p2", "p9"]
    assert recorded(tmp_path) == 1
    assert (tmp_path / "letters" / "objection-1.md").exists()
    # Not even a lock or a half of a file is left beside the list.
    assert list(tmp_path.glob(".objections.txt*")) == []
