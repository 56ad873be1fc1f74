"""One type for each column, without a loss of a cell's meaning."""

from __future__ import annotations

import datetime
import math
import random
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
import pytest

from record_sources.errors import SourceError
from record_sources.working.column_types import TypedColumn
from tests.record_sources.working.filled import DAY, NOON, ZONED, column, filled


def test_each_cell_keeps_its_meaning(tmp_path: Path) -> None:
    assert column(tmp_path / "a", 1, 2.5, None, Decimal("0.1")) == [1.0, 2.5, None, 0.1]
    assert column(tmp_path / "b", 2**53 + 1, -(2**62)) == [2**53 + 1, -(2**62)]
    assert column(tmp_path / "c", DAY, NOON) == [datetime.datetime(2020, 2, 29), NOON]  # noqa: DTZ001
    assert column(tmp_path / "d", math.nan, math.inf, Decimal("NaN")) == [None, math.inf, None]
    assert column(tmp_path / "e", UUID(int=1), datetime.time(8, 30), "é") == [str(UUID(int=1)), "08:30:00", "é"]
    assert column(tmp_path / "f", "", None, 3) == [None, None, 3]
    assert math.copysign(1, column(tmp_path / "g", -0.0)[0]) == -1
    assert column(tmp_path / "h", Decimal("5.00"), Decimal("7E+2")) == [5, 700]


def test_decimals_are_rounded_once_as_their_text(tmp_path: Path) -> None:
    exact = [Decimal(random.Random(n).randrange(10**20)).scaleb(-(n % 15) - 5) for n in range(200)]
    cells = dict(zip(map(str, range(200)), exact, strict=True))
    table = pq.read_table(filled(tmp_path, ["patient", "x"], list(cells.items())))
    stored = dict(zip(table["patient"].to_pylist(), table["x"].to_pylist(), strict=True))
    assert stored == {name: float(str(number)) for name, number in cells.items()}


@pytest.mark.parametrize("chunk", [1, 100_000])
@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ((1, "secret", 2.5), "2 cells are numbers and 1 cells are texts. Make them of one type"),
        ((True, 1), "1 cells are Booleans and 1 cells are numbers"),
        ((DAY, "2020-01-01"), "1 cells are dates and 1 cells are texts"),
        ((ZONED, None, ZONED), "2 of 2 cells are times with a time zone"),
        ((b"secret", 1), "1 of 2 cells are of a type that no table holds (bytes)"),
        (([1], {"secret": 1}), "2 of 2 cells are of a type that no table holds (dict, list)"),
        ((2**53 + 1, 0.5), "1 of 2 whole numbers are too large"),
        ((0.5, 2**53 + 1), "1 of 2 whole numbers are too large"),
        ((2**63, 1), "1 of 2 whole numbers are too large"),
        ((Decimal("1E+999999"),), "1 of 1 whole numbers are too large"),
    ],
)
def test_cells_that_do_not_go_together_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, cells: tuple[Any, ...], words: str
) -> None:
    monkeypatch.setattr("record_sources.working.workspace._LARGEST_CHUNK", chunk)
    with pytest.raises(SourceError) as error:
        column(tmp_path, *cells)
    assert words in str(error.value)
    assert "table t: column x" in str(error.value)
    assert "secret" not in str(error.value)


def test_the_kind_widens_from_chunk_to_chunk() -> None:
    typed = TypedColumn()
    kinds: list[str] = []
    for cells in ([None, ""], [1, 2], [None, 0.5]):
        typed.take(cells)
        kinds.append(typed.kind)
    assert (kinds, typed.fault("x")) == (["none", "whole", "number"], "")
