"""A format that a program registers is read as the built-in ones are, and every format has a description."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from private_learning.records import DataError, Examples, LazyExamples, load
from private_learning.records.formats import FORMATS, ReadOptions, RecordFormat
from research.quality.extension_points import Undescribed, tables


class Lines:
    """A reader of one number a line."""

    def __init__(self, numbers: np.ndarray) -> None:
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def read(self, rows: np.ndarray) -> np.ndarray:
        return self.numbers[rows][:, None]


def read_lines(path: Path, _: ReadOptions) -> LazyExamples:
    """Read one number a line."""
    numbers = np.loadtxt(path if path.is_file() else path / "a.lines")
    return LazyExamples.of(Lines(numbers), numbers > 0)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> RecordFormat:
    entry = RecordFormat(
        (".lines",),
        read_lines,
        holds=lambda path: path.is_file() and path.suffix == ".lines",
        is_record=lambda path: path.suffix == ".lines",
    )
    monkeypatch.setitem(FORMATS, "lines", entry)
    return entry


@pytest.mark.usefixtures("lines")
def test_a_registered_format_is_read_from_a_file_and_from_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.lines").write_text("1\n-2\n3\n")
    for path in (tmp_path, tmp_path / "a.lines"):
        whole, on_demand = load(path), load(path, lazy=True)
        assert isinstance(whole, Examples)
        assert isinstance(on_demand, LazyExamples)
        assert whole.inputs.tolist() == on_demand.in_memory().inputs.tolist() == [[1], [-2], [3]]


@pytest.mark.usefixtures("lines")
def test_the_checks_of_built_in_formats_hold_for_a_registered_one(tmp_path: Path) -> None:
    (tmp_path / "a.lines").write_text("1\n")
    with pytest.raises(DataError, match="patient_column belongs to tables"):
        load(tmp_path / "a.lines", patient_column="who")
    (tmp_path / "a.png").touch()
    with pytest.raises(DataError, match=r"several kinds \(images: 1, lines: 1\)"):
        load(tmp_path)
    (tmp_path / "a.doc").write_text("1")
    with pytest.raises(DataError, match=r"\.tar, images-idx or \.lines file"):
        load(tmp_path / "a.doc")


def test_a_format_without_a_description_is_refused(lines: RecordFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    (formats,) = (table for table in tables() if table.kind == "Record formats")
    assert [entry.name for entry in formats.entries] == list(FORMATS)
    monkeypatch.setitem(FORMATS, "lines", replace(lines, read=lambda path, _: read_lines(path, _)))
    with pytest.raises(Undescribed, match="lines has no description"):
        list(tables())
