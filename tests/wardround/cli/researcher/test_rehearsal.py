"""What `simulate` and `try` say of synthetic records, and how they read them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.synthesis.test_file import written
from wardround.cli.hospital.table_format import FormatOptions
from wardround.cli.researcher.rehearsal import format_of, say_if_synthetic


@pytest.mark.parametrize(
    ("name", "patients", "said"),
    [("few.csv", 100, "7 to 12 points too high"), ("many.parquet", 6000, "may be too high")],
)
def test_it_says_that_records_are_synthetic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, patients: int, said: str
) -> None:
    say_if_synthetic([written(tmp_path / name, patients=patients)])
    words = " ".join(capsys.readouterr().err.split())
    assert f"{name} holds synthetic records of study registry" in words
    assert said in words
    assert "the order of settings from them and not the level" in words


def test_other_records_are_read_in_silence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pd.DataFrame({"x": [1]}).to_parquet(tmp_path / "other.parquet")
    (tmp_path / "broken.parquet").write_text("no table")
    (tmp_path / "plain.csv").write_text("x\n1\n")
    say_if_synthetic([*tmp_path.iterdir(), tmp_path / "none.csv"])
    assert capsys.readouterr().err == ""


def test_the_format_of_a_synthetic_file_needs_no_option(tmp_path: Path) -> None:
    path, plain = written(tmp_path / "records.csv"), tmp_path / "plain.csv"
    assert format_of([path], FormatOptions()).as_typed[:2] == ("--separator", "comma")
    assert format_of([path], FormatOptions(separator="tab")) == FormatOptions(separator="tab")
    assert format_of([path, plain], FormatOptions()) == FormatOptions()
