"""For random tables, formats and encodings: what was written is read, refused, or left in doubt with counts."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from private_learning.records import DataError, Table, TableFormat, propose_format, read_csv
from private_learning.records.table_format import SEPARATORS
from study_protocol.cells import read_numbers
from study_protocol.cells.spelling import cleaned

Rows = list[list[str]]

NUMBERS = st.one_of(
    st.integers(-(10**6), 10**6).map(str),
    st.decimals(-(10**4), 10**4, places=2, allow_nan=False).map(str),
    st.decimals(0, 999, places=3, allow_nan=False).map(str),
)
LETTERS = st.text("abcxyzÄéß ,;|\t\"'\n-.0123456789", max_size=8)
ENCODINGS = st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252"])
FORMATS = st.builds(
    TableFormat,
    st.sampled_from(sorted(SEPARATORS)),
    ENCODINGS,
    st.just(True),
    st.sampled_from(["point", "comma"]),
)


@st.composite
def tables(draw: st.DrawFn, decimal: str) -> Rows:
    """Cells of an identifier, two columns of numbers in the format's spelling, and one of text."""
    rows: Rows = []
    for place in range(draw(st.integers(2, 8))):
        numbers = [draw(NUMBERS).replace(".", "," if decimal == "comma" else ".") for _ in range(2)]
        rows.append([f"p{place}", *numbers, draw(LETTERS)])
    return rows


def written(rows: Rows, format: TableFormat) -> bytes:
    """As the standard library writes it."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=SEPARATORS[format.separator or "comma"], lineterminator="\r\n")
    writer.writerows([["id", "a", "b", "note"], *rows])
    return text.getvalue().encode(format.encoding)


def read(data: bytes, format: TableFormat | None) -> Table:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        path.write_bytes(data)
        return read_csv(path, format)


def cells(table: Table) -> dict[str, list[str | None]]:
    return {name: column.tolist() for name, column in table.columns.items()}


def expected(rows: Rows) -> dict[str, list[str | None]]:
    columns = zip(("id", "a", "b", "note"), zip(*rows, strict=True), strict=True)
    return {name: [cleaned(cell) or None for cell in each] for name, each in columns}


@given(st.data(), FORMATS)
@settings(max_examples=150, deadline=None)
def test_a_declared_format_gives_back_the_cells_and_numbers_that_were_written(
    data: st.DataObject, format: TableFormat
) -> None:
    rows = data.draw(tables(format.decimal or "point"))
    body = written(rows, format)
    # Bytes that are UTF-8 all the same are refused where another encoding is declared.
    assume(format.encoding != "cp1252" or body.isascii() or not _is_utf8(body))
    table = read(body, format)
    assert cells(table) == expected(rows)
    for name, place in (("a", 1), ("b", 2)):
        values = [float(row[place].replace(",", ".")) for row in rows]
        np.testing.assert_array_equal(read_numbers(table.columns[name]).values, values)


@given(st.data(), FORMATS)
@settings(max_examples=150, deadline=None)
def test_a_proposal_reads_what_was_written_or_leaves_a_doubt_with_counts(
    data: st.DataObject, format: TableFormat
) -> None:
    rows = data.draw(tables(format.decimal or "point"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        path.write_bytes(written(rows, format))
        try:
            proposal = propose_format(path)
        except DataError as refused:
            assert any(word in str(refused) for word in ("--separator", "--encoding", "is there a header"))  # noqa: PT017
            return
        assert proposal.format.separator == format.separator
        table = read_csv(path, proposal.format)
    assert cells(table) == expected(rows)
    if proposal.doubts:
        assert "column" in proposal.doubtful
    for name, place in (("a", 1), ("b", 2)):
        values = np.array([float(row[place].replace(",", ".")) for row in rows])
        numbers = read_numbers(table.columns[name])
        np.testing.assert_array_equal(numbers.values[~numbers.wrong], values[~numbers.wrong])


@given(st.data(), FORMATS, FORMATS)
@settings(max_examples=200, deadline=None)
def test_a_wrong_declaration_is_refused_or_its_cells_are_counted_and_never_other_numbers(
    data: st.DataObject, right: TableFormat, wrong: TableFormat
) -> None:
    rows = data.draw(tables(right.decimal or "point"))
    try:
        table = read(written(rows, right), wrong)
    except DataError:
        return
    assume("a" in table.columns)
    truth = {row[0]: row for row in rows}
    for name, place in (("a", 1), ("b", 2)):
        if name not in table.columns:
            continue
        numbers = read_numbers(table.columns[name])
        for row, value in enumerate(numbers.values.tolist()):
            said = truth[str(table.columns["id"][row])][place].replace(",", ".")
            assert numbers.wrong[row] or value == float(said)


@given(st.data(), FORMATS, st.integers(0, 2**16), st.integers(0, 255))
@settings(max_examples=300, deadline=None)
def test_one_byte_of_one_row_changes_no_other_row_or_the_file_is_refused(
    data: st.DataObject, format: TableFormat, place: int, byte: int
) -> None:
    rows = data.draw(tables(format.decimal or "point"))
    one = data.draw(st.integers(0, len(rows) - 1))
    before, own = written(rows[:one], format), written(rows[: one + 1], format)
    whole = written(rows, format)
    start, length = len(before), len(own) - len(before)
    spoiled = bytearray(whole)
    spoiled[start + place % length] = byte
    try:
        kept, changed = read(whole, format), read(bytes(spoiled), format)
    except DataError:
        return
    _require_others_equal(kept, changed, one)


@given(st.data(), FORMATS, st.text('ab1,.;|\t"\n', max_size=12))
@settings(max_examples=300, deadline=None)
def test_one_row_more_changes_no_other_row_or_the_file_is_refused(
    data: st.DataObject, format: TableFormat, added: str
) -> None:
    rows = data.draw(tables(format.decimal or "point"))
    one = data.draw(st.integers(1, len(rows)))
    # A byte order mark stands at the start alone.
    inner = replace(format, encoding={"utf-16": "utf-16-le"}.get(format.encoding, format.encoding))
    head, tail = written(rows[:one], inner), written(rows, inner)[len(written(rows[:one], inner)) :]
    try:
        kept = read(head + tail, inner)
        changed = read(head + (added + "\r\n").encode(inner.encoding) + tail, inner)
    except DataError:
        return
    extra = len(changed) - len(kept)
    assert extra >= 0
    for name, column in kept.columns.items():
        other = changed.columns[name].tolist()
        assert column.tolist() == other[:one] + other[one + extra :]


def test_the_tables_of_these_tests_can_be_spoiled(tmp_path: Path) -> None:
    """Else the properties would hold of readers that never refuse."""
    body = written([["p0", "1.5", "2", "x"], ["p1", "1.5", "2", "y"]], TableFormat())
    with pytest.raises(DataError):
        read(body.replace(b"x\r", b'"\r'), TableFormat())


def _require_others_equal(kept: Table, changed: Table, one: int) -> None:
    others: Sequence[int] = [row for row in range(len(kept)) if row != one]
    extra = len(changed) - len(kept)
    for name, column in kept.columns.items():
        found = changed.columns[name].tolist()
        for row in others:
            assert column.tolist()[row] == found[row if row < one else row + extra]


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
