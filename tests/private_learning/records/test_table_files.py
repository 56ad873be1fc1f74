"""Loaders: what is in a file comes out of it, and a broken file is refused."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from private_learning.records import DataError, Table, load
from private_learning.records.table_files import read_csv, read_heart_disease
from wardround.demo.scenarios import data_folder


def test_csv_gives_numbers_text_and_missing_cells(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("who,age,sex\r\n17,50,f\r\n18,?,\r\n")
    table = load(path, patient_column="who")
    assert isinstance(table, Table)
    assert table.patients == ("17", "18")
    np.testing.assert_array_equal(table.columns["age"], [50, np.nan])
    assert table.columns["sex"].tolist() == ["f", None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n \n", "not even a header"),
        ("a,b\n", "there are no records"),
        ("a,b\n1,2\n3\n", "1 of 2 rows"),
        ("a,a\n1,2\n", "twice"),
        ("a,who\n1,\n", "no patient identifier"),
        ("a,b\n1,2\n", "no patient column 'who'"),
    ],
    ids=["empty", "header only", "short row", "column twice", "no identifier", "no patient column"],
)
def test_a_broken_csv_is_refused(tmp_path: Path, text: str, message: str):
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        load(path, patient_column="who")


def test_a_file_without_header_takes_names(tmp_path: Path):
    path = tmp_path / "a.data"
    path.write_text("63.0,?\n28,132\n")
    table = read_csv(path, names=["age", "chol"])
    np.testing.assert_array_equal(table.columns["chol"], [np.nan, 132])


def test_parquet_reads_like_the_table_that_was_written(tmp_path: Path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    import pyarrow

    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"who": ["a", "b"], "x": [1.5, None], "n": [1, None]}), path)
    table = load(path, patient_column="who")
    assert isinstance(table, Table)
    np.testing.assert_array_equal(table.columns["x"], [1.5, np.nan])
    np.testing.assert_array_equal(table.columns["n"], [1, np.nan])


def test_heart_disease_files_need_no_header(tmp_path: Path) -> None:
    path = tmp_path / "processed.cleveland.data"
    path.write_text("63.0,1.0,1.0,145.0,0,1.0,2.0,150.0,0.0,2.3,3.0,0.0,6.0,0\n67,1,4,0,286,0,2,108,1,1.5,2,?,3,2\n")
    table = load(path)
    assert isinstance(table, Table)
    assert table.patients == ("cleveland-0", "cleveland-1")
    assert table.columns["disease"].tolist() == [0.0, 1.0]
    np.testing.assert_array_equal(table.columns["chol"], [np.nan, 286])
    np.testing.assert_array_equal(table.columns["trestbps"], [145, np.nan])
    np.testing.assert_array_equal(table.columns["ca"], [0, np.nan])
    path.write_text("1,2,3\n")
    with pytest.raises(DataError, match="14 cells"):
        load(path)


@pytest.mark.parametrize(("site", "rows"), [("cleveland", 303), ("hungarian", 294), ("switzerland", 123), ("va", 200)])
def test_the_four_hospitals_have_their_patients(site: str, rows: int) -> None:
    path = data_folder() / "heart_disease_4_hospitals" / f"processed.{site}.data"
    if not path.exists():
        pytest.skip("WARDROUND_DATA holds no heart_disease_4_hospitals")
    table = read_heart_disease(path)
    assert len(table) == rows
    assert not np.isnan(table.columns["disease"]).any()


def test_a_gzipped_table_reads_like_the_table(tmp_path: Path) -> None:
    text = b"who,x\n7,1.5\n8,?\n"
    (tmp_path / "a.csv").write_bytes(text)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text))
    plain, packed = (load(tmp_path / name, patient_column="who") for name in ("a.csv", "a.csv.gz"))
    assert isinstance(plain, Table)
    assert isinstance(packed, Table)
    assert plain.patients == packed.patients == ("7", "8")
    np.testing.assert_array_equal(plain.columns["x"], packed.columns["x"])
