"""A statement is computed again from its entries, and says so where it cannot be."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import dp_accounting
import pytest

from client_sdk.errors import ConfigurationError, LedgerDamaged
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from wardround.flower.run_ledger import RunLedger
from wardround.flower.run_limit import charge_of
from wardround.flower.statement import checked_statement, read_statement


def statement(folder: Path) -> dict[str, Any]:
    with RunLedger(folder / "runs.db", epsilon=2.0, delta=1e-5) as ledger:
        ledger.settle(ledger.reserve(charge_of("client", 8.0), "first"))
        ledger.reserve(charge_of("client", 8.0, steps=2), "second")
    return read_statement(folder / "runs.db")


def test_a_statement_says_what_each_run_spent(tmp_path: Path) -> None:
    stated = statement(tmp_path)
    assert stated["epsilon"] == pytest.approx(dp_accounting.get_epsilon_gaussian(8 / math.sqrt(3), 1e-5), abs=1e-9)
    assert stated["runs"] == {
        "first": {"releases": 1, "steps": 1, "settled": 1},
        "second": {"releases": 1, "steps": 2, "settled": 0},
    }
    # As JSON and back it is the same, and checks.
    assert checked_statement(json.loads(json.dumps(stated))) == stated
    (tmp_path / "statement.json").write_text(json.dumps(stated))
    assert read_statement(tmp_path / "statement.json") == stated


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("epsilon",), 0.1),
        (("epsilon",), "small"),
        (("steps",), 1),
        (("runs", "first", "steps"), 0),
        (("unit",), "nobody"),
        (("head", "sequence"), 3),
        (("limit", "epsilon"), 1.0),
        (("entries", 1, "body", "noise_multiplier"), 80.0),
        (("entries", 1, "kind"), "cancelled"),
        (("entries",), []),
        (("entries",), None),
        (("format",), "another"),
    ],
)
def test_a_changed_statement_is_found(tmp_path: Path, path: tuple[Any, ...], value: Any) -> None:
    changed = copy.deepcopy(statement(tmp_path))
    place: Any = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(LedgerDamaged):
        checked_statement(changed)


def test_a_statement_without_its_last_entries_has_another_head(tmp_path: Path) -> None:
    stated = statement(tmp_path)
    shorter = {**stated, "entries": stated["entries"][:-1]}
    with pytest.raises(LedgerDamaged, match="says ε"):
        checked_statement(shorter)


def test_other_files_are_no_statements(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_statement(tmp_path / "missing.db")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(LedgerDamaged, match="no JSON"):
        read_statement(tmp_path / "broken.json")
    path = ledger_path(tmp_path, "records")
    with HospitalLedger.open(path) as ledger:
        ledger.open_study("sepsis", {})
    with pytest.raises(LedgerDamaged, match="not a ledger of runs"):
        read_statement(path)
