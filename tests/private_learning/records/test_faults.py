"""Data that cannot be used as it is: one line that says what to do, before anything is charged."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from client_sdk.errors import ConfigurationError
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from private_learning.records import Table
from tests.factories.hospitals import coordinator, hospital, plain_policy, records


def _entries(directory: Path) -> int:
    with HospitalLedger.open(ledger_path(directory, "icu"), read_only=True) as ledger:
        return len(ledger.charges())


def test_an_exclusion_list_needs_records_that_name_their_patients(tmp_path: Path) -> None:
    other, table = coordinator(), records()
    bare = Table(table.columns, tuple(f"row-{i}" for i in range(len(table))), named=False)
    here = hospital(other, tmp_path)
    with pytest.raises(ConfigurationError, match="name none: say which column"):
        here.join("sepsis", None, bare, policy=plain_policy(excluded_patients=["p1"]), dataset="icu")
    assert (_entries(tmp_path), other.updates) == (0, {})


def test_what_the_records_name_and_who_is_left_out_is_told_at_the_hospital(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="client_sdk.study")
    listed = plain_policy(excluded_patients=["p1", "p2", "nobody"])
    hospital(coordinator(), tmp_path / "a").join("sepsis", None, records(), policy=listed, dataset="icu")
    assert "2 patients are left out, the exclusion list has 3 entries" in caplog.text
    assert "1 of 3 entries of the exclusion list match no patient of these records" in caplog.text
    assert "(entries 3 of excluded_patients)" in caplog.text
    table = records()
    bare = Table(table.columns, table.patients, named=False)
    hospital(coordinator(), tmp_path / "b").join("sepsis", None, bare, policy=plain_policy(), dataset="icu")
    assert "every row counts as a patient of its own" in caplog.text


@pytest.mark.parametrize(
    "device", ["foo", "cuda:99" if torch.cuda.is_available() else "cuda"], ids=["no kind of device", "no such device"]
)
def test_a_device_that_is_not_there_is_named_before_anything_is_charged(tmp_path: Path, device: str) -> None:
    other = coordinator()
    here = hospital(other, tmp_path)
    with pytest.raises(ConfigurationError, match=f"device '{device}' cannot be used here"):
        here.join("sepsis", None, records(), device=device, policy=plain_policy(), dataset="icu")
    assert other.updates == {}
    assert not ledger_path(tmp_path, "icu").exists()
