"""A hospital's mapping gives the same tensors and counts however its table is stored, and loses no cell in silence."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from private_learning.records import DataError, Examples, Histories, LazyTable, Table, TableFormat, TableMapping, load
from private_learning.tasks.columns import encode_columns, read_columns
from private_learning.tasks.events import read_events, sequences
from study_protocol.queries.variables import Variable

parquet: Any = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
pyarrow: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

MAPPING = """
[columns]
sex = { from = "gender", map = { M = "male", F = "female", 1 = "male" }, missing = ["-9"] }
glucose = { from = "glu_mmol", multiply = 18.016, missing = ["-9", "unknown"] }
temperature = { from = "temp_f", add = -32, multiply = 0.5555555555555556 }
admitted = { from = "admit", days_from = "index" }
ward = "station"
"""
COLUMNS = read_columns(
    {
        "column.sex": "male|female; missing",
        "column.glucose": "0..500; missing=90",
        "column.temperature": "30..45; missing=37",
        "column.admitted": "-40..40; missing=0",
        "column.ward": "0744|744; missing",
    }
)
GENDERS = {"M": "male", "F": "female", "1": "male", "-9": None, "X": "?", "male": "?", "m": "?"}
Row = tuple[str, float | None, float | None, str | None, str | None, str]
decimals = st.one_of(st.none(), st.just(-9.0), st.integers(-400, 4000).map(lambda tenths: tenths / 10))
days = st.one_of(st.none(), st.dates(datetime.date(2020, 1, 1), datetime.date(2020, 2, 1)).map(str))
ROWS = st.lists(
    st.tuples(st.sampled_from(sorted(GENDERS)), decimals, decimals, days, days, st.sampled_from(["0744", "744"])),
    min_size=1,
    max_size=12,
)


@pytest.fixture
def mapping(tmp_path: Path) -> TableMapping:
    return mapping_of(tmp_path, MAPPING)


def mapping_of(folder: Path, text: str) -> TableMapping:
    path = folder / "columns.toml"
    path.write_text(text, encoding="utf-8")
    return TableMapping.read(path)


def frame_of(rows: list[Row]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["gender", "glu_mmol", "temp_f", "admit", "index", "station"], dtype=object)
    return frame.assign(pat=[f"p{row:03d}" for row in range(len(rows))])


def as_csv(separator: str, mark: str, gap: str = "") -> Callable[[pd.DataFrame, Path], Table]:
    def written(frame: pd.DataFrame, folder: Path) -> Table:
        columns = {name: frame[name].astype(float) for name in ("glu_mmol", "temp_f")}
        path = folder / "a.csv"
        frame.assign(**columns).to_csv(path, index=False, sep=separator, decimal=mark, na_rep=gap)
        separators: dict[str, Any] = {",": "comma", ";": "semicolon", "\t": "tab"}
        declared = TableFormat(separators[separator], decimal="comma" if mark == "," else "point")
        return table_of(load(path, declared, patient_column="pat"))

    return written


def as_parquet(*, lazy: bool, typed: bool, groups: int = 5) -> Callable[[pd.DataFrame, Path], Table]:
    def written(frame: pd.DataFrame, folder: Path) -> Table:
        table = pyarrow.Table.from_pandas(typed_frame(frame) if typed else as_texts(frame), preserve_index=False)
        parquet.write_table(table, folder / "a.parquet", row_group_size=groups)
        return table_of(load(folder / "a.parquet", TableFormat(None, decimal="point"), patient_column="pat", lazy=lazy))

    return written


def typed_frame(frame: pd.DataFrame) -> pd.DataFrame:
    numbers = {name: frame[name].astype(float) for name in ("glu_mmol", "temp_f")}
    return frame.assign(**numbers, **{name: pd.to_datetime(frame[name]) for name in ("admit", "index")})


def as_texts(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.map(lambda cell: None if cell is None else str(cell))


def as_frame(*, typed: bool) -> Callable[[pd.DataFrame, Path], Table]:
    return lambda frame, _: table_of(load(typed_frame(frame) if typed else frame, patient_column="pat"))


def as_histories(frame: pd.DataFrame, folder: Path) -> Table:
    (folder / "h").mkdir(exist_ok=True)
    frame.to_csv(folder / "h" / "patients.csv", index=False)
    (folder / "h" / "visits.csv").write_text("pat,day\np000,3\n")
    return table_of(load(folder / "h", TableFormat(decimal="point"), patient_column="pat"))


def folder(path: Path) -> Path:
    path.mkdir()
    return path


def table_of(records: Any) -> Table:
    assert isinstance(records, Table)
    return records


STORAGES: dict[str, Callable[[pd.DataFrame, Path], Table]] = {
    "comma": as_csv(",", "."),
    "semicolon": as_csv(";", ",", "NA"),
    "tab": as_csv("\t", ","),
    "parquet": as_parquet(lazy=False, typed=True),
    "parquet of texts": as_parquet(lazy=False, typed=False),
    "lazy": as_parquet(lazy=True, typed=True, groups=2),
    "lazy of texts": as_parquet(lazy=True, typed=False, groups=2),
    "frame": as_frame(typed=False),
    "typed frame": as_frame(typed=True),
    "histories": as_histories,
}


def expected(rows: list[Row]) -> tuple[np.ndarray, dict[str, tuple[int, int, int]]]:
    """Return tensors and (mapped, unmapped, missing) by plain Python, in the order of the columns' names."""
    each: dict[str, list[Any]] = {name: [] for name in ("sex", "glucose", "temperature", "admitted", "ward")}
    for gender, glucose, fahrenheit, admit, index, station in rows:
        each["sex"].append(GENDERS[gender])
        each["glucose"].append(None if glucose in (None, -9.0) else glucose * 18.016)
        each["temperature"].append(None if fahrenheit is None else (fahrenheit - 32) * 0.5555555555555556)
        known = admit is not None and index is not None
        each["admitted"].append((pd.Timestamp(admit) - pd.Timestamp(index)).days if known else None)
        each["ward"].append(station)
    encoded = [
        numbers(each["admitted"], -40, 40, 0),
        numbers(each["glucose"], 0, 500, 90),
        indicators(each["sex"], ("male", "female")),
        numbers(each["temperature"], 30, 45, 37),
        indicators(each["ward"], ("0744", "744")),
    ]
    counts = {
        name: (sum(cell not in (None, "?") for cell in cells), cells.count("?"), cells.count(None))
        for name, cells in each.items()
    }
    return np.concatenate(encoded, axis=1), counts


def numbers(cells: list[Any], low: float, high: float, stand_in: float) -> np.ndarray:
    values = np.array([stand_in if cell is None else cell for cell in cells], float)
    scaled = (np.clip(values, low, high) - (low + high) / 2) / ((high - low) / 2)
    return np.stack([scaled, [float(cell is None) for cell in cells]], axis=1)


def indicators(cells: list[Any], names: tuple[str, ...]) -> np.ndarray:
    return np.array([[*(float(cell == name) for name in names), float(cell not in names)] for cell in cells])


@pytest.mark.slow
@pytest.mark.parametrize("storage", STORAGES.values(), ids=STORAGES.keys())
@settings(max_examples=12, deadline=None)
@given(rows=ROWS)
def test_every_storage_gives_the_same_tensors_and_counts(
    storage: Callable[[pd.DataFrame, Path], Table], rows: list[Row], tmp_path_factory: pytest.TempPathFactory
) -> None:
    here = tmp_path_factory.mktemp("stored")
    mapping = mapping_of(here, MAPPING)
    local = storage(frame_of(rows), here)
    mapped = table_of(mapping.applied(local, "pat"))
    tensors, counts = expected(rows)
    np.testing.assert_allclose(encode_columns(COLUMNS, mapped.columns, strict=False), tensors, rtol=0, atol=1e-12)
    assert {each.column: (each.mapped, each.unmapped, each.missing) for each in mapping.counts(local, "pat")} == counts
    assert set(mapped.columns) == {"sex", "glucose", "temperature", "admitted", "ward", "index"}
    assert isinstance(mapped, LazyTable) == isinstance(local, LazyTable)
    assert mapped.mapping_sha256 == mapping.digest


def test_storages_give_the_same_bytes_and_digest(mapping: TableMapping, tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    rows: list[Row] = [
        (["M", "F", "X"][k % 3], float(k) / 7, 90.1 + k / 9, "2020-01-05", f"2020-01-{1 + k % 28:02d}", "0744")
        for k in draw.permutation(60).tolist()
    ]
    tables = {
        name: table_of(mapping.applied(storage(frame_of(rows), folder(tmp_path / name)), "pat"))
        for name, storage in STORAGES.items()
    }
    bytes_of = {encode_columns(COLUMNS, table.columns, strict=False).tobytes() for table in tables.values()}
    assert len(bytes_of) == 1
    assert len({table.digest() for name, table in tables.items() if name != "histories"}) == 1


def test_an_unmapped_code_is_refused_even_if_it_is_the_study_s_own_word(mapping: TableMapping) -> None:
    frame = frame_of([("male", 1.0, 99.0, "2020-01-01", "2020-01-01", "744")] * 3)
    mapped = table_of(mapping.applied(table_of(load(frame, patient_column="pat")), "pat"))
    with pytest.raises(
        DataError, match="column sex: 3 of 3 values have a code that the mapping does not know, the first"
    ):
        encode_columns(COLUMNS, mapped.columns, mapped.first)
    with pytest.raises(DataError, match="3 of 3 cells, the first in row 1, are none of the categories"):
        mapped.categories("sex", ("male", "unmapped", "\u2063unmapped"))


def test_an_unmapped_code_is_missing_in_a_question(mapping: TableMapping) -> None:
    frame = frame_of([(code, 1.0, 99.0, "2020-01-01", "2020-01-01", "744") for code in ("M", "X", "F", "-9")])
    columns = table_of(mapping.applied(table_of(load(frame, patient_column="pat")), "pat")).columns
    of_missing = Variable(column="sex", categories=("male",)).places(columns)
    of_empty = Variable(column="sex", categories=("male",)).places({"sex": ["male", None, "female", None]})
    assert of_missing.tolist() == of_empty.tolist()


def test_a_cell_without_a_number_or_date_stays_wrong(tmp_path: Path) -> None:
    mapping = mapping_of(tmp_path, '[columns]\nx = {multiply = 2}\ny = {from = "day", days_from = "start"}')
    frame = pd.DataFrame({"x": ["1", "high", "3"], "day": ["2020-01-02", "44000", None], "start": ["2020-01-01"] * 3})
    local = table_of(load(frame))
    mapped = table_of(mapping.applied(local))
    assert [astuple(each)[-3:] for each in mapping.counts(local)] == [(2, 1, 0), (1, 1, 1)]
    for name, words in (("x", "1 of 3 cells, the first in row 2, are no numbers"), ("y", "row 2.*found no date")):
        with pytest.raises(DataError, match=words):
            mapped.numbers(name)
    with pytest.raises(DataError, match="2 of 3 values are no dates") as caught:
        encode_columns(read_columns({"column.y": "2020-01-01..2020-12-31; missing=2020-02-01"}), mapped.columns)
    assert "44000" not in str(caught.value)


DATES = ["1900-01-01", "1900-01-01 00:00:00", "1900/01/01", "2020-01-05", "2020-01-05"]
INDEX_DATES = ["2020-01-01"] * 4 + ["1900-01-01 00:00"]


@pytest.mark.parametrize("storage", sorted(STORAGES))
def test_a_code_for_missing_counts_in_every_form_of_a_date_or_number(storage: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"admit": DATES, "index": INDEX_DATES, "glu_mmol": [-9, -9.0, "-09", "-9e0", 2]}, dtype=object)
    frame = frame.assign(gender="M", temp_f=1.0, station="a", pat=[f"p{row}" for row in range(5)])
    if "typed" in storage or storage in ("parquet", "lazy"):
        frame = frame.map(
            lambda cell: cell if cell is None else str(pd.to_datetime(cell)) if "/" in str(cell) else cell
        )
        frame = frame.assign(**{name: pd.to_datetime(frame[name], format="mixed") for name in ("admit", "index")})
    text = """
    [columns]
    days = { from = "admit", days_from = "index", missing = ["1900-01-01"] }
    glucose = { from = "glu_mmol", multiply = 2, missing = ["-9"] }
    """
    local = STORAGES[storage](frame, tmp_path)
    mapping = mapping_of(tmp_path, text)
    mapped = table_of(mapping.applied(local)).columns
    np.testing.assert_array_equal(np.asarray(mapped["days"]), [math.nan, math.nan, math.nan, 4, math.nan])
    np.testing.assert_array_equal(np.asarray(mapped["glucose"]), [math.nan] * 4 + [4])
    assert [(each.column, each.missing) for each in mapping.counts(local)] == [("days", 4), ("glucose", 4)]


def test_a_stored_name_with_spaces_around_it_can_be_mapped(tmp_path: Path) -> None:
    local = table_of(load(pd.DataFrame({"age ": [61.0]})))
    mapped = table_of(mapping_of(tmp_path, '[columns]\nage = "age "').applied(local))
    assert (list(mapped.columns), np.asarray(mapped.columns["age"]).tolist()) == (["age"], [61.0])


def test_events_are_mapped_and_days_count_from_a_date_of_the_patient(tmp_path: Path) -> None:
    here = folder(tmp_path / "h")
    (here / "patients.csv").write_text("patient,start,gender\na,2020-03-01,M\nb,2020-03-10,F\n")
    (here / "diagnoses.csv").write_text(
        "patient,icd,at\na,I10.0,2020-02-28\na,E11,2020-03-02\nb,I10.0,2020-03-10 23:00\nz,E11,2020-01-01\n"
    )
    text = """
    [columns]
    sex = { from = "gender", map = { M = "male", F = "female" } }
    [events.diagnoses]
    code = { from = "icd", map = { "I10.0" = "I10" } }
    day = { from = "at", days_from = "start" }
    """
    mapping = mapping_of(tmp_path, text)
    records = load(here, mapping=mapping)
    assert isinstance(records, Histories)
    events = records.events["diagnoses"]
    assert set(events.columns) == {"code", "day"}
    assert events.numbers("day").tolist() == [-2, 1, 0]
    assert events.mapping_sha256 == records.mapping_sha256 == mapping.digest
    tables = read_events({"events.diagnoses": "code=code; time=day; codes=I10|E11"})
    # A code that the mapping does not know is one of the other codes.
    assert sequences(tables, records, 3).tolist() == [[1, 3, 0], [1, 0, 0]]
    assert [astuple(each) for each in mapping.counts(load(here))] == [
        ("", "sex", "gender", "renamed, 2 codes", 2, 2, 0, 0),
        ("diagnoses", "code", "icd", "renamed, 1 code", 3, 2, 1, 0),
        ("diagnoses", "day", "at", "renamed, days from start", 3, 3, 0, 0),
    ]


def test_columns_may_swap_their_names(tmp_path: Path) -> None:
    mapped = load(pd.DataFrame({"a": [1, 2], "b": [3, 4]}), mapping=mapping_of(tmp_path, '[columns]\na = "b"\nb = "a"'))
    assert {name: column.tolist() for name, column in table_of(mapped).columns.items()} == {"a": [3, 4], "b": [1, 2]}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[columns]\nsex = "gendre"', r"\[columns\] sex: the table has no column 'gendre'. Did you mean 'gender'\?"),
        ('[columns]\nindex = "gender"', r"\[columns\] index: the table has a column of this name, too"),
        ('[columns]\nwho = "pat"', r"\[columns\] who: the column of patients 'pat' cannot be mapped"),
        ('[columns]\npat = "gender"', "the column of patients 'pat' cannot be mapped"),
        ('[columns]\nx = {from = "admit", days_from = "idnex"}', "no column 'idnex'. Did you mean 'index'"),
        ('[events.d]\nx = "y"', r"\[events.d\]: the records have no table of events 'd'"),
    ],
)
def test_a_mapping_that_does_not_fit_is_refused(text: str, words: str, tmp_path: Path) -> None:
    frame = frame_of([("M", 1.0, 99.0, "2020-01-01", "2020-01-01", "744")])
    with pytest.raises(DataError, match=words):
        load(frame, patient_column="pat", mapping=mapping_of(tmp_path, text))


def test_records_that_are_no_table_or_already_mapped_are_refused(tmp_path: Path) -> None:
    mapping = mapping_of(tmp_path, '[columns]\na = "b"')
    with pytest.raises(DataError, match="these records are none"):
        mapping.applied(Examples.of(np.zeros((2, 3)), [0, 1]))
    mapped = mapping.applied(table_of(load({"b": [1]})))
    with pytest.raises(DataError, match="already applied"):
        mapping.applied(mapped)


def test_the_digest_is_of_the_entries_and_stays_with_the_rows(mapping: TableMapping, tmp_path: Path) -> None:
    lines = MAPPING.strip().splitlines()
    again = mapping_of(tmp_path, "\n".join([lines[0], "# a remark", *reversed(lines[1:])]).replace("1 =", '"1" = '))
    assert again.digest == mapping.digest
    assert mapping_of(tmp_path, MAPPING.replace("18.016", "18.0160")).digest == mapping.digest
    assert mapping_of(tmp_path, MAPPING.replace("18.016", "18.02")).digest != mapping.digest
    assert mapping_of(tmp_path, MAPPING.replace("female", "woman")).digest != mapping.digest
    frame = frame_of([("M", math.pi, 99.0, "2020-01-01", "2020-01-01", "744")] * 2)
    mapped = table_of(load(frame, patient_column="pat", mapping=mapping))
    for derived in (mapped.take([1]), mapped.without_columns({"ward"}), replace(mapped)):
        assert derived.mapping_sha256 == mapping.digest
