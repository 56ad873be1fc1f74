"""The digest of a table, against a slow implementation of its own."""

from __future__ import annotations

import datetime
import decimal
import hashlib
import json
import re
import unicodedata
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from private_learning.records import Table
from study_protocol.cells import Spelling, column_of
from study_protocol.cells.digest import TableDigest, cell_forms

CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**25), 10**25),
    st.floats(allow_infinity=False),
    st.dates(datetime.date(1800, 1, 1), datetime.date(2200, 1, 1)),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    st.sampled_from(["0744", "744", "36.60", "1e-05", "1E1", "True", "2020-01-05", "NA", "+1", "1.", ".5", "-0.0"]),
)
TABLES = st.integers(1, 4).flatmap(
    lambda rows: st.dictionaries(
        st.text(st.characters(categories=["L"]), min_size=1, max_size=3).map(lambda name: f"c{name.lower()}"),
        st.lists(CELLS, min_size=rows, max_size=rows),
        min_size=1,
        max_size=3,
    )
)
POINT = Spelling(decimal="point")


def slow_form(cell: Any) -> str:
    """One cell, by fractions of ten and the standard library alone."""
    if cell is None or cell != cell:
        return "-"
    if isinstance(cell, bool):
        return f"b{int(cell)}"
    if isinstance(cell, datetime.date):
        return f"d{(cell - datetime.date(1970, 1, 1)).days * 86_400 * 10**6}"
    if isinstance(cell, int | float):
        return slow_number(decimal.Decimal(repr(cell)))
    text = unicodedata.normalize("NFC", "".join(c for c in cell if not is_unseen(c))).strip()
    if not text:
        return "-"
    if text.lower() in ("true", "false"):
        return f"b{int(text.lower() == 'true')}"
    if re.fullmatch(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?", text):
        return slow_number(decimal.Decimal(text))
    if re.fullmatch(r"-?[0-9.]+e[+-][0-9]{2,}", text) and repr(float(text)) == text:
        return slow_number(decimal.Decimal(text))
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return slow_form(datetime.date.fromisoformat(text))
    return f"t{text}"


# Default_Ignorable_Code_Point of Unicode 16 without format characters, which `is_unseen` knows by their category.
UNSEEN = [(0x34F, 0x34F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2065, 0x2065), (0x3164, 0x3164)]
UNSEEN += [(0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0xE0000, 0xE0FFF)]


def is_unseen(sign: str) -> bool:
    """Is it drawn as nothing? U+2800 is blank Braille."""
    code = ord(sign)
    return unicodedata.category(sign) == "Cf" or code == 0x2800 or any(low <= code <= high for low, high in UNSEEN)


def slow_number(number: decimal.Decimal) -> str:
    if number == number.to_integral_value():
        # Beyond 2⁵³ a float is whole, and exact as itself.
        return f"n{int(number)}"
    near = float(number)
    return f"n{int(near)}" if near.is_integer() else f"n{near!r}"


def slow_digest(columns: dict[str, list[Any]], patients: list[str] | None) -> str:
    names = sorted(columns)
    head = {"columns": names, "format": "wardround table 1", "patients": patients is not None}
    rows = []
    for place in range(len(columns[names[0]])):
        cells = [slow_form(columns[name][place]).encode("utf-8", "surrogatepass") for name in names]
        cells.append(b"" if patients is None else b"p" + patients[place].encode())
        rows.append(hashlib.sha256(b"\xff".join(cells)).digest())
    return hashlib.sha256(json.dumps(head).encode() + b"\n" + b"".join(sorted(rows))).hexdigest()


def digest(columns: dict[str, Any], **options: Any) -> str:
    return Table.of(columns, spelling=options.pop("spelling", POINT), **options).digest()


def is_plain(cell: Any) -> bool:
    """Is it written in a way that `slow_form` knows? Of floats beyond 2⁵³ it knows the shortest digits only."""
    if isinstance(cell, float):
        return cell != cell or abs(cell) < 2**53
    return not (isinstance(cell, str) and re.search(r"[0-9]{4}\D|:", cell) and "-" not in cell)


@example({"a": ["\U000e0080", "x\u115fy", "\u2800", "\u200b"]}, False)
@given(TABLES, st.booleans())
def test_the_digest_is_that_of_a_slow_implementation(columns: dict[str, list[Any]], named: bool) -> None:
    assume(all(is_plain(cell) for cells in columns.values() for cell in cells))
    columns = {name: columns[name] for name in columns}
    rows = len(next(iter(columns.values())))
    patients = [f"p{row}" for row in range(rows)] if named else None
    whose = {"who": patients} if patients else {}
    found = digest(columns | whose, **({"patient_column": "who"} if patients else {}))
    composed = {unicodedata.normalize("NFC", name): cells for name, cells in columns.items()}
    assume(len(composed) == len(columns))
    assert found == slow_digest(composed, patients)


@given(TABLES, st.randoms(use_true_random=False))
def test_the_order_does_not_matter_and_a_change_does(columns: dict[str, list[Any]], draw: Any) -> None:
    rows = len(next(iter(columns.values())))
    order, names = list(range(rows)), list(columns)
    whole = digest(columns)
    draw.shuffle(order)
    draw.shuffle(names)
    assert digest({name: [columns[name][row] for row in order] for name in names}) == whole
    name, row = draw.choice(names), draw.randrange(rows)
    changed = {**columns, name: [*columns[name][:row], "another word", *columns[name][row + 1 :]]}
    assert digest(changed) != whole
    longer = {name: [*cells, cells[row]] for name, cells in columns.items()}
    assert digest(longer) != whole
    renamed = {f"{name}x" if one == name else one: cells for one, cells in columns.items()}
    assert len(renamed) < len(columns) or digest(renamed) != whole


NUMBERS: dict[str, tuple[Any, Spelling]] = {
    "float64": (np.array([36.6, 1e-05, np.nan, 2.0]), POINT),
    "float32": (np.array([36.6, 1e-05, np.nan, 2.0], np.float32), POINT),
    "text": (["36.60", "1e-05", "", "2"], POINT),
    "comma": (["36,60", "0,00001", None, "2,0"], Spelling(decimal="comma")),
    "objects": ([36.6, 1e-05, None, 2], POINT),
    "decimals": ([decimal.Decimal("36.600"), decimal.Decimal("0.00001"), None, decimal.Decimal(2)], POINT),
    "pandas": (pd.Series([36.6, 1e-05, None, 2.0], dtype="Float64"), POINT),
    "arrow": (pd.Series([36.6, 1e-05, None, 2.0], dtype="double[pyarrow]"), POINT),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_a_number_is_the_same_in_every_stored_type(kind: str) -> None:
    values, spelling = NUMBERS[kind]
    assert digest({"x": values}, spelling=spelling) == digest({"x": NUMBERS["text"][0]})


def test_what_is_the_same_and_what_is_not() -> None:
    assert digest({"x": ["0744"]}) != digest({"x": ["744"]}) == digest({"x": [744]})
    assert digest({"x": ["900000000000207008"]}) == digest({"x": np.array([900000000000207008])})
    assert digest({"x": ["900000000000207008"]}) != digest({"x": ["900000000000207009"]})
    assert digest({"x": ["True"]}) == digest({"x": ["true"]}) == digest({"x": [True]}) != digest({"x": [1]})
    assert digest({"x": ["5.1.2020"]}, spelling=Spelling(dates="dmy")) == digest({"x": [datetime.date(2020, 1, 5)]})
    assert digest({"x": ["5.1.2020"]}) != digest({"x": [datetime.date(2020, 1, 5)]})
    assert digest({"x": ["NA"]}) != digest({"x": [None]}) == digest({"x": [""]})
    assert digest({"gr\u00f6\u00dfe": [1]}) == digest({"gro\u0308\u00dfe": [1]})
    assert digest({"x": ["a\u0308"]}) == digest({"x": ["\u00e4"]})
    assert digest({"x": ["1E1"]}) != digest({"x": [10.0]})
    named = {"x": [1, 2], "who": ["a", "b"]}
    swapped = {"x": [1, 2], "who": ["b", "a"]}
    assert digest(named, patient_column="who") != digest(swapped, patient_column="who") != digest({"x": [1, 2]})


def test_a_cell_of_several_lines_moves_no_other_cell() -> None:
    one, other = {"x": ["1\n2", "5", "6"], "y": [1, 2, 3]}, {"x": ["1\n2", "5", "7"], "y": [1, 2, 3]}
    assert digest(one) == digest({"x": ["6", "5", "1\n2"], "y": [3, 2, 1]}) != digest(other)


@pytest.mark.parametrize(
    ("cells", "forms"),
    [
        (
            ["0744", "744", "7.50", "1e-05", "TRUE", "", "\u00e4"],
            [b"t0744", b"n744", b"n7.5", b"n1e-05", b"b1", b"-", b"t\xc3\xa4"],
        ),
        (np.array([36.6, 2.0, np.nan], np.float32), [b"n36.6", b"n2", b"-"]),
        ([True, False], [b"b1", b"b0"]),
        ([datetime.date(1970, 1, 2), None], [b"d86400000000", b"-"]),
        ([10**20, "x"], [b"n100000000000000000000", b"tx"]),
    ],
    ids=["texts", "floats", "truths", "dates", "large"],
)
def test_every_cell_has_the_form_of_its_value(cells: Any, forms: list[bytes]) -> None:
    assert cell_forms(column_of(cells, spelling=POINT)) == forms


def test_a_table_in_parts_has_the_digest_of_the_whole() -> None:
    names, patients = ["y", "x"], ["a", "b", "c"]
    columns = {"x": column_of(["1", "2", "3"], spelling=POINT), "y": column_of([True, False, None])}
    whole, parts = (TableDigest(names, with_patients=True) for _ in range(2))
    whole.add(columns, patients)
    for rows in ([2], [0, 1]):
        parts.add({name: column.take(rows) for name, column in columns.items()}, [patients[row] for row in rows])
    assert parts.hexdigest() == whole.hexdigest() == slow_digest({"x": [1, 2, 3], "y": [True, False, None]}, patients)
    assert TableDigest(names, with_patients=False).hexdigest() != TableDigest(names, with_patients=True).hexdigest()
