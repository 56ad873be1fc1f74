"""`wardround data columns`: lines for a study's settings, and which rows of a table they come from."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from client_sdk.errors import ConfigurationError
from tests.factories.record_files import write_records
from wardround.cli.hospital import columns as data_columns
from wardround.cli.hospital.columns import read_table, require_inputs, without_numbers
from wardround.cli.hospital.table_format import FormatOptions
from wardround.cli.main import build

AS_FOUND = FormatOptions(None, None, None, None)


def wardround(*arguments: str | Path) -> Result:
    return CliRunner().invoke(build(), list(map(str, arguments)), env={"COLUMNS": "160"})


@pytest.fixture
def records(tmp_path: Path) -> Path:
    return write_records(tmp_path / "records.csv", 240, 1)


def test_data_columns_writes_lines_for_settings(records: Path, tmp_path: Path) -> None:
    done = wardround("data", "columns", records, "--label", "ill", "--patient", "patient")
    assert done.exit_code == 0, done.output
    entries = tomllib.loads(done.stdout)
    assert "column.age" in entries
    assert "column.ill" not in entries
    assert "no privacy budget covers them" in done.stderr
    written = tmp_path / "columns.toml"
    without_label = wardround("data", "columns", records, "--patient", "patient", "-o", written)
    assert without_label.exit_code == 0
    assert "Name it with --label, or remove its line" in without_label.output
    assert wardround("data", "columns", records, "--patient", "patient", "-o", written).exit_code == 1
    alone = wardround("data", "columns", records, "--patient", "patient", "-o", written, "--force", "--names-only")
    assert alone.exit_code == 0
    assert set(tomllib.loads(written.read_text()).values()) <= {"LOW..HIGH", "CATEGORIES"}


def test_a_large_table_is_drawn_by_patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_columns, "MAX_ROWS", 50)
    rows = [f"p{row // 3},{row}" for row in range(300)]
    (path := tmp_path / "table.csv").write_text("\n".join(["patient,age", *rows]) + "\n")
    table = read_table(path, AS_FOUND, "patient")
    assert 45 <= len(table) <= 50
    assert set(np.unique(table.patients, return_counts=True)[1].tolist()) == {3}


def test_descriptions_without_numbers_keep_types_alone() -> None:
    lines = {"age": "0..100", "bmi": "10..50; missing=25", "sex": "f|m", "ward": "a|b; missing"}
    expected = ["LOW..HIGH", "LOW..HIGH; missing=MIDDLE", "CATEGORIES", "CATEGORIES; missing"]
    assert list(without_numbers(lines).values()) == expected


def test_no_input_and_too_many_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"no column is left.*age: dates"):
        require_inputs({}, {"age": "dates"})
    with pytest.raises(ConfigurationError, match="1,001 columns"):
        require_inputs({str(place): "0..1" for place in range(1001)})
