"""What the option --columns prints and logs: counts of cells, and no cell."""

from __future__ import annotations

import logging
from pathlib import Path

import pandas as pd
import pytest

from private_learning.records import DataError, Table, load
from wardround.cli.hospital.columns import read_table
from wardround.cli.hospital.mapping import (
    apply_mapping,
    log_mapping,
    mapping_digest,
    mapping_words,
    report_mapping,
    require_mapped,
)
from wardround.cli.hospital.table_format import FormatOptions

FRAME = pd.DataFrame({"id": ["a", "b", "c"], "gender": ["Mx", "Fx", "secret"]})


def written(folder: Path, text: str) -> Path:
    (folder / "columns.toml").write_text(text)
    return folder / "columns.toml"


def test_what_was_mapped_is_logged_in_counts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = written(tmp_path, '[columns]\nsex = { from = "gender", map = { Mx = "m", Fx = "f" } }')
    records, counts = apply_mapping(load(FRAME, patient_column="id"), file, "id")
    with caplog.at_level(logging.INFO):
        log_mapping(records, counts)
    assert "sex from gender (renamed, 2 codes): 3 cells, 2 mapped, 1 unmapped, 0 missing" in caplog.text
    assert "column sex: 1 of 3 cells have a code that the mapping does not know" in caplog.text
    assert f"SHA-256 {mapping_digest(records)}" in caplog.text
    assert mapping_words(records, counts) == (mapping_digest(records), "1 columns mapped, 1 of 3 cells unmapped")
    with pytest.raises(DataError, match="1 of 3 cells have a code") as caught:
        require_mapped(counts)
    for cell in ("Mx", "secret"):
        assert cell not in caplog.text + str(caught.value) + repr(report_mapping(records, counts))


def test_without_a_file_records_are_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    local = load(FRAME, patient_column="id")
    records, counts = apply_mapping(local, None, "id")
    log_mapping(records, counts)
    assert records is local
    assert (counts, caplog.text, mapping_words(records, counts), report_mapping(records, counts)) == ((), "", None, {})


def test_settings_are_guessed_from_mapped_columns_alone(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "a.csv", index=False)
    options = FormatOptions("comma", None, "point")
    file = written(tmp_path, '[columns]\nsex = { from = "gender", map = { Mx = "m", Fx = "f", secret = "f" } }')
    table = read_table(tmp_path / "a.csv", options, "id", (), file)
    assert isinstance(table, Table)
    assert table.columns["sex"].tolist() == ["m", "f", "f"]
    file = written(tmp_path, '[columns]\nsex = { from = "gender", map = { Mx = "m", Fx = "f" } }')
    with pytest.raises(DataError, match=r"column sex: 1 of 3 cells .* Add the codes to `map`, or to `missing`"):
        read_table(tmp_path / "a.csv", options, "id", (), file)
