"""Loaders: what is in a file comes out of it, and a broken file is refused."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from client_sdk.data import DataError, Examples, Table, load, one_per_patient, read_csv, read_idx


def idx(array: np.ndarray, code: int = 8) -> bytes:
    return struct.pack(f">2xBB{array.ndim}I", code, array.ndim, *array.shape) + array.tobytes()


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
        ("", "not even a header"),
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


def test_a_data_frame_is_a_table():
    frame = pd.DataFrame({"who": ["a", "b"], "x": [1, 2], "t": ["u", None], "flag": [True, False]})
    table = Table.of(frame, patient_column="who")
    assert table.patients == ("a", "b")
    assert table.columns["t"].tolist() == ["u", None]
    assert table.columns["flag"].tolist() == [1.0, 0.0]


def test_parquet_reads_like_the_table_that_was_written(tmp_path: Path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    import pyarrow

    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"who": ["a", "b"], "x": [1.5, None], "n": [1, None]}), path)
    table = load(path, patient_column="who")
    assert isinstance(table, Table)
    np.testing.assert_array_equal(table.columns["x"], [1.5, np.nan])
    np.testing.assert_array_equal(table.columns["n"], [1, np.nan])


def test_npz_gives_examples_and_never_unpickles(tmp_path: Path):
    good, pickled, lacking = tmp_path / "g.npz", tmp_path / "p.npz", tmp_path / "l.npz"
    np.savez(good, inputs=np.ones((2, 3)), labels=[0, 1], patients=["a", "b"])
    np.savez(pickled, inputs=np.array([[object()]], dtype=object), labels=[0])
    np.savez(lacking, inputs=np.ones((2, 3)))
    assert load(good).patients == ("a", "b")
    with pytest.raises(ValueError, match="allow_pickle"):
        load(pickled)
    with pytest.raises(DataError, match="labels"):
        load(lacking)


@pytest.mark.parametrize("pack", [lambda b: b, gzip.compress], ids=["as it is", "compressed"])
def test_idx_images_find_their_labels(tmp_path: Path, pack):
    suffix = ".gz" if pack is gzip.compress else ""
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    (tmp_path / f"t-images-idx3-ubyte{suffix}").write_bytes(pack(idx(pixels)))
    (tmp_path / f"t-labels-idx1-ubyte{suffix}").write_bytes(pack(idx(np.array([7, 3], dtype=np.uint8))))
    examples = load(tmp_path / f"t-images-idx3-ubyte{suffix}")
    assert isinstance(examples, Examples)
    np.testing.assert_array_equal(examples.inputs, pixels)
    assert examples.labels.tolist() == [7, 3]


def test_idx_numbers_are_big_endian(tmp_path: Path):
    path = tmp_path / "x"
    path.write_bytes(idx(np.array([1.5, -2.0], dtype=">f4"), code=0x0D))
    assert read_idx(path).tolist() == [1.5, -2.0]


@pytest.mark.parametrize(
    "data",
    [b"", b"\0\0", b"PK\x03\x04xxxx", idx(np.zeros(4, np.uint8))[:-1], idx(np.zeros(4, np.uint8)) + b"x"],
    ids=["empty", "half a header", "a zip file", "cut short", "one byte more"],
)
def test_a_broken_idx_is_refused(tmp_path: Path, data: bytes):
    path = tmp_path / "x"
    path.write_bytes(data)
    with pytest.raises(DataError):
        read_idx(path)


def test_an_unknown_kind_of_file_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match="expected"):
        load(tmp_path / "records.xlsx")
    with pytest.raises(DataError, match="belongs to tables"):
        load(tmp_path / "a.npz", patient_column="who")
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "a.csv")


def test_one_record_per_patient_keeps_the_first():
    table = Table.of({"who": [7.0, 8.0, 7.0], "x": [1, 2, 3]}, patient_column="who")
    kept = one_per_patient(table)
    assert kept.patients == ("7", "8")
    assert kept.columns["x"].tolist() == [1.0, 2.0]
    examples = one_per_patient(Examples.of(np.eye(3), [0, 1, 2], ["a", "a", "b"]))
    assert examples.labels.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("inputs", "labels", "patients", "message"),
    [
        (np.ones(3), [0, 1, 2], None, "further axis"),
        (np.ones((0, 3)), [], None, "at least one"),
        (np.array([["a"]]), [0], None, "numbers"),
        (np.ones((2, 3)), [0], None, "one label per example"),
        (np.ones((2, 3)), [0, 1], ["a"], "1 identifiers for 2"),
        (np.ones((2, 3)), [0, 1], ["a", ""], "no patient identifier"),
    ],
)
def test_bad_examples_are_refused(inputs, labels, patients, message: str):
    with pytest.raises(DataError, match=message):
        Examples.of(inputs, labels, patients)


def test_a_table_needs_columns_of_one_length():
    for columns in ({}, {"a": []}, {"a": [1], "b": [1, 2]}, {"a": [[1, 2]]}):
        with pytest.raises(DataError):
            Table.of(columns)
