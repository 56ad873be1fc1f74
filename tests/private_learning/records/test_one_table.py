"""One table, however it is stored, gives the same tensors, the same cells of every question and the same digest."""

from __future__ import annotations

import datetime
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from private_learning.records import Table, list_table, read_csv
from private_learning.records.table_format import Dates, TableFormat
from private_learning.tasks import load
from study_protocol.cells import Spelling
from study_protocol.queries.kinds import QUESTION
from study_protocol.queries.rows import one_row_each

pyarrow: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
parquet: Any = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

ROWS = 40
_DRAW = np.random.default_rng(8)
# Every type with its traps: decimals that 32 bits round, codes for missing, whole numbers beyond 32 bits, codes with
# leading zeros, Booleans, dates, letters of Western Europe, gaps.
FRAME = pd.DataFrame(
    {
        "who": [f"p{row // 2:03d}" for row in range(ROWS)],
        "temp": [99.9 if row % 9 == 4 else round(float(_DRAW.normal(37, 1)), 1) for row in range(ROWS)],
        "thrombo": [round(1.234 + row, 3) for row in range(ROWS)],
        "count": [-1 if row % 7 == 2 else int(_DRAW.integers(0, 50)) for row in range(ROWS)],
        "ward": [("0744", "744", "NA", "Kölner Straße")[row % 4] for row in range(ROWS)],
        "smoker": [row % 3 == 0 for row in range(ROWS)],
        "admitted": [datetime.date(2020, 1, 1) + datetime.timedelta(days=row * 9) for row in range(ROWS)],
        "died": [("no", "yes")[row % 2] for row in range(ROWS)],
        "gap": [None if row % 5 == 1 else row / 8 for row in range(ROWS)],
    }
)
PARAMETERS = {
    "label": "died",
    "label-values": "no|yes",
    "column.temp": "34..42; missing=37; missing-values=99.9",
    "column.thrombo": "0..50",
    "column.count": "0..40; missing=20; missing-values=-1",
    "column.ward": "0744|744|NA|Kölner Straße",
    "column.smoker": "0|1",
    "column.admitted": "2020-01-01..2020-12-31; missing=2020-06-01",
    "column.gap": "0..5; missing=2",
}
TEMP = {"column": "temp", "low": 34.0, "high": 42.0, "missing_values": ["99.9"]}
COUNT = {"column": "count", "low": 0.0, "high": 40.0, "missing_values": ["-1"]}
WARD = {"column": "ward", "categories": ["744", "0744", "NA"]}
GAP = {"column": "gap", "edges": [1.0, 2.5, 4.0]}
DIED = {"column": "died", "categories": ["yes"]}
QUESTIONS: list[dict[str, Any]] = [
    {"kind": "count", "where": [{"column": "smoker", "categories": ["1"]}, {"column": "temp", "low": 36.6}]},
    {"kind": "table", "variables": [WARD, {"column": "temp", "edges": [36.6, 37.0], "missing_values": ["99.9"]}]},
    {"kind": "tables", "tables": [[WARD], [GAP], [{"column": "gap", "presence": True}]]},
    {"kind": "moments", "numbers": [TEMP, COUNT, DIED]},
    {"kind": "covariance", "numbers": [TEMP, COUNT]},
    {"kind": "linear-regression", "outcome": TEMP, "predictors": [COUNT, DIED]},
    {"kind": "quantiles", "number": TEMP, "by": WARD},
    {"kind": "survival", "time": {"column": "thrombo", "edges": [0.0, 10.0, 20.0, 30.0]}, "event": DIED},
]


def as_csv(separator: str, mark: str, encoding: str, dates: Dates | None = None) -> Callable[[Path], Table]:
    def made(folder: Path) -> Table:
        frame = FRAME.assign(thrombo=[f"{value:.4f}".replace(".", mark) for value in FRAME["thrombo"]])
        if dates == "dmy":
            frame["admitted"] = [f"{day.day}.{day.month}.{day.year}" for day in FRAME["admitted"]]
        frame.to_csv(folder / "a.csv", index=False, sep=separator, decimal=mark, encoding=encoding)
        separators: dict[str, Any] = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
        decimal = "comma" if mark == "," else "point"
        declared = TableFormat(separators[separator], encoding, decimal=decimal, dates=dates)
        return read_csv(folder / "a.csv", declared, patient_column="who")

    return made


def as_arrow(suffix: str, **types: Any) -> Callable[[Path], Table]:
    def made(folder: Path) -> Table:
        table = pyarrow.Table.from_pandas(FRAME, preserve_index=False)
        for name, kind in types.items():
            place = table.column_names.index(name)
            column = table[name].dictionary_encode() if kind == "dictionary" else table[name].cast(kind)
            table = table.set_column(place, name, column)
        path = folder / f"a.{suffix}"
        if suffix == "parquet":
            parquet.write_table(table, path, row_group_size=7)
        elif suffix == "feather":
            pytest.importorskip("pyarrow.feather").write_feather(table, str(path), chunksize=9)
        else:
            with pyarrow.ipc.new_file(path, table.schema) as file:
                file.write_table(table, max_chunksize=11)
        return list_table(path, patient_column="who", spelling=Spelling(decimal="point"))

    return made


def as_frame(convert: Callable[[pd.DataFrame], Any]) -> Callable[[Path], Table]:
    return lambda _: Table.of(convert(FRAME), patient_column="who")


def as_texts(frame: pd.DataFrame) -> pd.DataFrame:
    text = frame.astype(object).where(frame.notna(), None).map(lambda cell: cell if cell is None else str(cell))
    # Three digits behind a point may mean thousands.
    return text.assign(**{name: frame[name].map("{:.4f}".format, na_action="ignore") for name in ("thrombo", "gap")})


def from_database(folder: Path) -> Table:
    with sqlite3.connect(folder / "a.db") as base:
        FRAME.assign(admitted=FRAME["admitted"].astype(str)).to_sql("records", base, index=False)
        found = pd.read_sql("select * from records", base)
    # SQLite has no Booleans: 0 and 1 stand there, which are other cells, though the study reads them alike.
    return Table.of(found.assign(smoker=found["smoker"].astype(bool)), patient_column="who")


STORED: dict[str, Callable[[Path], Table]] = {
    "commas": as_csv(",", ".", "utf-8"),
    "semicolons": as_csv(";", ",", "utf-8-sig"),
    "tabs": as_csv("\t", ",", "utf-16"),
    "bars": as_csv("|", ".", "cp1252"),
    "German dates": as_csv(";", ",", "cp1252", "dmy"),
    "parquet": as_arrow("parquet"),
    "32 bits": as_arrow("parquet", temp="float32", thrombo="float32", count="int16", gap="float32"),
    "texts in parquet": as_arrow("parquet", count="string", admitted="string", smoker="string"),
    "dictionaries": as_arrow("parquet", ward="dictionary", died="dictionary", count="dictionary", temp="dictionary"),
    "bytes": as_arrow("parquet", ward="binary", died="large_binary"),
    "decimals": as_arrow("parquet", count=pyarrow.decimal128(25, 3), admitted=pyarrow.timestamp("ns")),
    "arrow": as_arrow("arrow", count="float64"),
    "feather": as_arrow("feather"),
    "frame": as_frame(lambda frame: frame),
    "objects": as_frame(lambda frame: frame.astype(object)),
    "texts": as_frame(as_texts),
    "nullable": as_frame(lambda frame: frame.convert_dtypes()),
    "categorical": as_frame(lambda frame: frame.astype(dict.fromkeys(["ward", "died", "count", "temp"], "category"))),
    "pyarrow": as_frame(lambda frame: frame.convert_dtypes(dtype_backend="pyarrow")),
    "lists": as_frame(lambda frame: {name: frame[name].tolist() for name in frame}),
    "database": from_database,
}


def said(table: Table) -> tuple[bytes, bytes, list[bytes], tuple[str, ...], str]:
    task = load("logistic-regression", PARAMETERS)
    dataset = task.dataset(table)
    assert isinstance(dataset.inputs, torch.Tensor)
    totals: list[bytes] = []
    for asked in QUESTIONS:
        for rule in ("first", "any"):
            question = QUESTION.validate_python({"noise_multiplier": 4.0, "rows": rule} | asked)
            rows = one_row_each(question, table.columns, table.patients)
            totals.append(question.total(rows, question.grid().spacing).tobytes())
    return dataset.inputs.numpy().tobytes(), dataset.targets.numpy().tobytes(), totals, table.patients, table.digest()


@pytest.mark.parametrize("kind", STORED)
def test_a_table_says_the_same_however_it_is_stored(tmp_path: Path, kind: str) -> None:
    table = STORED[kind](tmp_path)
    assert said(table) == said(Table.of(FRAME, patient_column="who"))
