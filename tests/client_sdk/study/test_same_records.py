"""Records that were replaced are noticed, and what is only written otherwise is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.errors import RecordsChanged
from client_sdk.study.same_records import mark_of
from private_learning.records import Examples, Table, load
from tests.factories.hospitals import coordinator, hospital, plain_policy
from tests.factories.hospitals import records as made_up
from tests.factories.participations import join, ledger_of

KEY = bytes(32)


def table(ages: list[Any], who: list[str] | None = None) -> Table:
    patients = who or [f"p{number}" for number in range(len(ages))]
    return Table.of({"age": ages, "patient": patients}, patient_column="patient")


def test_order_and_spelling_are_no_change(tmp_path: Path) -> None:
    before = mark_of(table([1.5, 2, 3]), KEY)
    assert mark_of(table([1.5, 2, 3]).take([2, 0, 1]), KEY) == before
    path = tmp_path / "records.csv"
    path.write_text("patient,age\np2,3.0\np0,1.50\np1,2\n")
    assert mark_of(load(path, patient_column="patient"), KEY) == before


def test_a_digest_cannot_be_guessed_without_the_key() -> None:
    assert mark_of(table([1]), KEY).content != mark_of(table([1]), bytes(31) + b"1").content
    assert mark_of(table([1]), KEY).people != mark_of(table([1]), bytes(31) + b"1").people


@pytest.mark.parametrize("labels", [[0, 1, 0], [[0.5], [1.0], [0.0]], ["a", "b", "a"]])
def test_arrays_have_a_mark_of_their_rows(labels: list[Any]) -> None:
    inputs = np.arange(12.0).reshape(3, 4)
    examples = Examples.of(inputs, labels, ["a", "b", "c"])
    assert mark_of(examples.take([1, 2, 0]), KEY) == mark_of(examples, KEY)
    assert mark_of(Examples.of(inputs + 1, labels, ["a", "b", "c"]), KEY).content != mark_of(examples, KEY).content


CHANGES = [
    (made_up(30), "40 → 30 patients"),
    (made_up(40, seed=1), "the same 40 patients and 40 rows, with other values or columns"),
    (made_up(41).take(range(1, 41)), "40 patients as before, and not the same ones"),
    (made_up(40).take([*range(40), 0]), "the same 40 patients, 40 → 41 rows"),
]


@pytest.mark.parametrize(("other", "said"), CHANGES)
def test_other_records_stop_an_unattended_hospital(other: Table, said: str, tmp_path: Path) -> None:
    here = hospital(coordinator(), tmp_path)
    join(here)
    charged = ledger_of(tmp_path).entries
    with pytest.raises(RecordsChanged, match=said):
        here.join("sepsis", None, other, policy=plain_policy(), dataset="icu")
    assert ledger_of(tmp_path).entries == charged


def test_the_same_records_are_no_further_entry(tmp_path: Path) -> None:
    here = hospital(coordinator(), tmp_path)
    join(here)
    entries = ledger_of(tmp_path).entries
    here.join("sepsis", None, made_up().take(range(39, -1, -1)), policy=plain_policy(), dataset="icu")
    assert ledger_of(tmp_path).entries == entries


def test_an_accepted_change_is_written_down_once(tmp_path: Path) -> None:
    here, asked = hospital(coordinator(), tmp_path), list[str]()
    join(here)
    other = made_up(30)

    def accepts(difference: str) -> bool:
        asked.append(difference)
        return True

    for _ in range(2):
        here.join("sepsis", None, other, policy=plain_policy(), dataset="icu", accepts_records=accepts)
    (difference,) = asked
    assert difference.endswith("40 → 30 patients")
    marks = [entry.body for entry in ledger_of(tmp_path).entries if entry.body["study"] == "/records"]
    assert [(mark["accepted"], mark["patients"]) for mark in marks] == [(False, 40), (True, 30)]
    assert all(mark["at"] for mark in marks)


def test_a_policy_accepts_growing_records(tmp_path: Path) -> None:
    here = hospital(coordinator(), tmp_path)
    join(here)
    here.join("sepsis", None, made_up(50), policy=plain_policy(changed_records="accept"), dataset="icu")


def test_a_folder_of_an_earlier_version_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = hospital(coordinator(), tmp_path)
    with monkeypatch.context() as earlier:
        earlier.setattr("client_sdk.guard.ledger.HospitalLedger.declare_records", lambda *_, **__: None)
        join(here)
    assert ledger_of(tmp_path).records_mark is None
    here.join("sepsis", None, made_up(30), policy=plain_policy(), dataset="icu")
    mark = ledger_of(tmp_path).records_mark
    assert mark is not None
    assert mark.patients == 30


def test_nothing_of_the_digest_is_in_a_request(tmp_path: Path) -> None:
    other = coordinator()
    join(hospital(other, tmp_path))
    mark = ledger_of(tmp_path).records_mark
    assert mark is not None
    sent = repr(other.requests) + repr(other.updates) + repr(other.entries)
    assert mark.content not in sent
    assert mark.people not in sent
