"""A patient objects while a hospital takes part: which rounds read the patient, and which the letter names."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from client_sdk.errors import ConfigurationError
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.people import DecidingPerson
from client_sdk.guard.policy import SitePolicy
from client_sdk.study.equipment import Equipment
from client_sdk.study.objecting import take_objections
from client_sdk.study.objection_facts import letter_of
from private_learning.records import DataError
from private_learning.training import LocalTraining
from tests.factories.hospitals import coordinator, hospital, lax_toml, records
from tests.factories.participations import ledger_of
from tests.factories.settings import settings

PATIENT = "P007"
# As the records write it.
WRITTEN = "p7"
MOMENTS = ["before the list is read", "before the charge", "after the charge", "while it is computed"]


def object_now(home: Path) -> None:
    take_objections(home, SitePolicy.in_force(home), [PATIENT.replace("00", "")], DecidingPerson.acting("Ada"))


def rounds_of_letter(home: Path) -> set[int]:
    from client_sdk.guard.objections import objection_of

    letter = letter_of(
        home,
        objection_of(home, "p7", SitePolicy.in_force(home).exclusions),
        SitePolicy.in_force(home),
        (),
        "",
        datetime.now(UTC),
    )
    return {each.number for study in letter.studies for each in study.rounds}


def watched(monkeypatch: pytest.MonkeyPatch, at: str, number: int, act: Callable[[], None]) -> dict[int, set[str]]:
    """Call `act` at one moment of a round. Return the patients whom each round reads, filled in later."""
    read: dict[int, set[str]] = {}
    heed, charge, compute = Equipment.heed_objections, HospitalLedger.charge, LocalTraining.contribution
    done: list[int] = []

    def once(moment: str, round_number: int) -> None:
        if (moment, round_number) == (at, number) and not done:
            done.append(1)
            act()

    def heeding(self: Equipment, round_number: int) -> None:
        once(MOMENTS[0], round_number)
        heed(self, round_number)

    def charging(self: HospitalLedger, study: str, round_number: int, *given: Any) -> None:
        once(MOMENTS[1], round_number)
        charge(self, study, round_number, *given)
        once(MOMENTS[2], round_number)

    def computing(self: LocalTraining, *given: Any, round_number: int, **options: Any) -> Any:
        read[round_number] = set(self.dataset.patients)
        once(MOMENTS[3], round_number)
        return compute(self, *given, round_number=round_number, **options)

    monkeypatch.setattr(Equipment, "heed_objections", heeding)
    monkeypatch.setattr(HospitalLedger, "charge", charging)
    monkeypatch.setattr(LocalTraining, "contribution", computing)
    return read


def join(home: Path, other: Any) -> Any:
    return hospital(other, home).join("sepsis", None, records(), dataset="icu")


@pytest.mark.parametrize("study", [{}, {"bayesian": True}], ids=["classical", "bayesian"])
@pytest.mark.parametrize(("at", "first_without"), list(zip(MOMENTS, [2, 2, 2, 3], strict=True)), ids=MOMENTS)
def test_no_round_after_the_objection_reads_the_patient(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, first_without: int, study: dict[str, Any]
) -> None:
    other = coordinator(settings(**study))
    (tmp_path / "policy.toml").write_text(lax_toml())
    read = watched(monkeypatch, at, 2, lambda: object_now(tmp_path))
    outcome = join(tmp_path, other)
    assert (outcome.reason, outcome.rounds_sent) == ("max-steps-reached", 3)
    assert [WRITTEN in read[number] for number in (1, 2, 3)] == [number < first_without for number in (1, 2, 3)]
    # No other patient goes, and every round is charged once.
    assert read[1] - read[3] == {WRITTEN}
    with ledger_of(tmp_path) as ledger:
        assert len(ledger.charges()) == 3
    # The letter leaves out no round that has read the patient, and names one more at most.
    named = rounds_of_letter(tmp_path)
    assert {number for number, patients in read.items() if WRITTEN in patients} <= named
    assert named == ({1} if at in MOMENTS[:2] else {1, 2})


def test_a_list_with_a_wrong_line_ends_the_run_and_the_next_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = coordinator()
    (tmp_path / "policy.toml").write_text(lax_toml())
    read = watched(monkeypatch, MOMENTS[0], 2, lambda: _write(tmp_path, "p1;p2\n"))
    with pytest.raises(ConfigurationError, match="line 1 holds a comma"):
        join(tmp_path, other)
    assert sorted(read) == [1]
    _write(tmp_path, "p1\n")
    assert join(tmp_path, other).rounds_sent == 2
    assert "p1" not in read[2]


def test_an_objection_of_every_patient_ends_the_run_before_anything_is_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = coordinator()
    (tmp_path / "policy.toml").write_text(lax_toml())
    everybody = "\n".join(sorted(set(records().patients)))
    watched(monkeypatch, MOMENTS[0], 2, lambda: _write(tmp_path, everybody))
    with pytest.raises(DataError, match="every patient"):
        join(tmp_path, other)
    with ledger_of(tmp_path) as ledger:
        assert len(ledger.charges()) == 1


def test_a_policy_of_a_program_is_not_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.factories.hospitals import plain_policy

    other = coordinator()
    read = watched(monkeypatch, MOMENTS[0], 2, lambda: _write(tmp_path, "p7\n"))
    hospital(other, tmp_path).join("sepsis", None, records(), dataset="icu", policy=plain_policy())
    assert WRITTEN in read[3]


def _write(home: Path, text: str) -> None:
    (home / "objections.txt").write_text(text)
