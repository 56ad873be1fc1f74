"""One identity of a patient: whatever holds it, and whatever a person cannot see."""

from __future__ import annotations

import csv
import datetime
import sys
import unicodedata
import uuid
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from private_learning.records import DataError, Examples, Table, load, records_of
from study_protocol.cells.identity import IdentifierError, identity_or_blank, objection_key, patient_identity

pandas: Any = pytest.importorskip("pandas", reason="pandas is not installed")
pyarrow: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
parquet: Any = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

UMLAUT = "Mu\N{COMBINING DIAERESIS}ller"
INVISIBLE = "\ufeff\u200b\u200d\u2060\u00ad\u202a\u202e\u2066\u0000\u0007\u034f\u3164\ufe0f"
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
CODES = st.text("ABCxyz0123456789-/.", min_size=1, max_size=10)


@pytest.mark.parametrize(
    ("value", "identity"),
    [
        ("1001", "1001"),
        ("0744", "0744"),
        (b"1001", "1001"),
        (bytearray(b"p 1"), "p 1"),
        (np.bytes_(b"1001"), "1001"),
        (np.str_("1001"), "1001"),
        ("  p\N{NO-BREAK SPACE}\t 1 \n", "p 1"),
        (UMLAUT, "Müller"),
        ("\N{FULLWIDTH DIGIT ONE}\N{FULLWIDTH DIGIT SEVEN}", "17"),
        ("\N{ARABIC-INDIC DIGIT ONE}\N{ARABIC-INDIC DIGIT SEVEN}", "17"),
        ("12\N{NON-BREAKING HYPHEN}13", "12-13"),
        ("12\N{EN DASH}13", "12-13"),
        (f"{INVISIBLE}1{INVISIBLE}7{INVISIBLE}", "17"),
        (17, "17"),
        (17.0, "17"),
        ("17.0", "17"),
        ("017.00", "017"),
        (17.5, "17.5"),
        (-3.0, "-3"),
        (np.int8(17), "17"),
        (np.uint64(2**64 - 1), "18446744073709551615"),
        (np.float16(17), "17"),
        (np.float32(17), "17"),
        (np.array(17.0), "17"),
        (torch.tensor(17), "17"),
        (torch.tensor(17.0), "17"),
        (2**53 + 1, "9007199254740993"),
        (2.0**53 - 1, "9007199254740991"),
        (Decimal("17.00"), "17"),
        (Decimal("9007199254740993"), "9007199254740993"),
        (Decimal("1.50"), "1.5"),
        (True, "True"),
        (np.bool_(False), "False"),
        (datetime.date(2020, 1, 2), "2020-01-02"),
        (datetime.datetime.fromisoformat("2020-01-02"), "2020-01-02"),
        (datetime.datetime.fromisoformat("2020-01-02T03:04:05.500"), "2020-01-02T03:04:05.5"),
        (np.datetime64("2020-01-02T03:04:05.500000000"), "2020-01-02T03:04:05.5"),
        (np.datetime64("2020-01-02T00:00:00.000000000"), "2020-01-02"),
        (pandas.Timestamp("2020-01-02"), "2020-01-02"),
        (uuid.UUID(int=255), "00000000-0000-0000-0000-0000000000ff"),
        ("00000000-0000-0000-0000-0000000000FF", "00000000-0000-0000-0000-0000000000ff"),
        # Codes, and no scientific notation: 1E1 is a ward.
        ("1E1", "1E1"),
        ("12E5", "12E5"),
        ("1234567890123456789", "1234567890123456789"),
        *((nothing, "") for nothing in (None, float("nan"), np.float32("nan"), pandas.NA, pandas.NaT, Decimal("NaN"))),
        *((nothing, "") for nothing in (np.datetime64("NaT"), "", "  ", "\ufeff", b"", "nan", "None", "NaT", "<NA>")),
    ],
    ids=map(str, count()),
)
def test_what_a_cell_holds_is_one_identity(value: Any, identity: str) -> None:
    assert patient_identity(value) == identity


@pytest.mark.parametrize(
    "value",
    [
        *("1,23457E+12", "1.23E+05", "1E+12", "1e+22", "1.23457E12", "-1,5e-3", " 1,23457E+12 ", b"1.23E+05"),
        *(2.0**53, -(2.0**53), 1e300, float("inf"), np.float32(2**24), np.float16(2**11), "9007199254740992.0"),
        *(b"\xff\xfe", b"M\xfcller", "\ud800", [1], (1,), {}, np.array(["a"]), 1j, datetime.timedelta(1), object()),
        *(10**5000, Decimal("1e99999")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_tell_one_patient_from_another_is_refused_without_its_words(value: Any) -> None:
    with pytest.raises(IdentifierError) as caught:
        patient_identity(value)
    assert "23457" not in str(caught.value)
    assert identity_or_blank(value) == ""


@pytest.mark.slow
def test_the_identity_of_an_identity_is_itself_for_every_character() -> None:
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code)) == "Cs":
            continue
        identity = patient_identity(f"{chr(code)}e{chr(code)}\N{COMBINING ACUTE ACCENT}{chr(code)}")
        assert patient_identity(identity) == identity, hex(code)


@given(TEXTS)
def test_the_identity_of_an_identity_is_itself(text: str) -> None:
    identity = identity_or_blank(text)
    assert identity_or_blank(identity) == identity
    assert objection_key(objection_key(identity)) == objection_key(identity)


@given(CODES, CODES)
def test_two_codes_are_two_patients(one: str, other: str) -> None:
    """But for what is documented: a whole number that was written as a fraction, and capitals of a UUID."""

    def plain(code: str) -> str:
        whole, point, zeros = code.rpartition(".")
        digits = whole.removeprefix("-").isdigit()
        return whole if point and zeros and not zeros.strip("0") and digits else code

    assert (identity_or_blank(one) == identity_or_blank(other)) == (plain(one) == plain(other))


@given(TEXTS, st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]), st.sampled_from(INVISIBLE), st.integers(0, 12))
def test_what_no_person_sees_makes_nobody_else(text: str, form: Any, mark: str, place: int) -> None:
    # A mark between a letter and its accent holds them apart, in every text.
    written = unicodedata.normalize(form, text)
    assert identity_or_blank(written) == identity_or_blank(text)
    assert identity_or_blank(f"{mark}{text}{mark}") == identity_or_blank(text)
    assert identity_or_blank(f"\N{IDEOGRAPHIC SPACE}{text} ") == identity_or_blank(text)
    ascii_text = text.encode("ascii", "ignore").decode()
    assert identity_or_blank(ascii_text[:place] + mark + ascii_text[place:]) == identity_or_blank(ascii_text)


@given(st.integers(0, 2**53 - 1))
def test_a_number_is_its_digits_in_every_type(number: int) -> None:
    same = [number, float(number), np.float64(number), np.int64(number), Decimal(number), str(number), f"{number}.0"]
    assert {patient_identity(value) for value in [*same, str(number).encode(), f" {number}\ufeff"]} == {str(number)}


def _written(folder: Path, ids: list[str]) -> dict[str, Any]:
    """The same identifiers as every kind of table that is read."""
    other = list(range(len(ids)))
    with (folder / "text.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=";").writerows([("id", "x"), *zip(ids, other, strict=True)])
    found: dict[str, Any] = {"csv": load(folder / "text.csv", patient_column="id")}
    columns = {
        "string": pyarrow.array(ids),
        "binary": pyarrow.array([one.encode() for one in ids]),
        "dictionary": pyarrow.array(ids).dictionary_encode(),
    }
    if all(one.isdigit() and str(int(one)) == one for one in ids):
        numbers = list(map(int, ids))
        columns |= {"int": pyarrow.array(numbers), "decimal": pyarrow.array(map(Decimal, ids), pyarrow.decimal128(20))}
        columns |= {"float": pyarrow.array(list(map(float, numbers)))}
    for name, column in columns.items():
        table = pyarrow.table({"id": column, "x": other})
        parquet.write_table(table, folder / f"{name}.parquet")
        found[f"parquet {name}"] = load(folder / f"{name}.parquet", patient_column="id", lazy=True)
        with pyarrow.ipc.new_file(folder / f"{name}.arrow", table.schema) as file:
            file.write_table(table)
        found[f"arrow {name}"] = load(folder / f"{name}.arrow", patient_column="id")
        frames = [("numpy", table.to_pandas()), ("pyarrow", table.to_pandas(types_mapper=pandas.ArrowDtype))]
        frames.append(("category", frames[0][1].astype({"id": "category"})))
        frames.append(("nullable", frames[0][1].convert_dtypes()))
        found |= {f"frame {name} {kind}": records_of(frame, patient_column="id") for kind, frame in frames}
    found["frame object"] = records_of(pandas.DataFrame({"id": ids, "x": other}, dtype=object), patient_column="id")
    found["mapping"] = records_of({"id": ids, "x": other}, patient_column="id")
    found["arrays"] = Examples.of(np.zeros((len(ids), 2)), other, np.array(ids))
    return found


@settings(max_examples=25, deadline=None)
@given(
    st.one_of(
        st.lists(st.integers(0, 2**53 - 1).map(str), min_size=1, max_size=4),
        st.lists(st.text("aZ0éß-_/ü", min_size=1, max_size=8).map(lambda text: f"p{text}"), min_size=1, max_size=4),
        st.lists(st.from_regex("0{0,3}[0-9]{1,12}", fullmatch=True), min_size=1, max_size=4),
    )
)
def test_a_table_of_every_kind_names_the_same_patients(
    tmp_path_factory: pytest.TempPathFactory, ids: list[str]
) -> None:
    tables = _written(tmp_path_factory.mktemp("tables"), ids)
    assert {name: records.patients for name, records in tables.items()} == dict.fromkeys(tables, tuple(ids))


def test_a_spreadsheet_s_notation_is_refused_by_its_line(tmp_path: Path) -> None:
    """1,23457E+12 stands for three patients: each would have had a share of one noise."""
    path = tmp_path / "visits.csv"
    path.write_text("id;x\n1234567890;1\n1,23457E+12;2\n1,23457E+12;3\n")
    with pytest.raises(DataError, match=r"2 of 3 records hold a number .* the first in line 3\. .*save the iden") as at:
        load(path, patient_column="id")
    assert "23457" not in str(at.value)


@pytest.mark.parametrize(("kind", "largest"), [("float64", 2**53), ("float32", 2**24), ("float16", 2**11)])
@pytest.mark.parametrize("how", ["frame", "parquet", "arrays"])
def test_fractions_that_are_not_exact_are_refused_at_their_own_precision(
    tmp_path: Path, kind: str, largest: int, how: str
) -> None:
    def read(ids: list[int]) -> tuple[str, ...]:
        column = np.array(ids, dtype=kind)
        if how == "arrays":
            return Examples.of(np.zeros((2, 1)), [0, 1], column).patients
        if how == "frame":
            return Table.of(pandas.DataFrame({"id": column, "x": [1, 2]}), patient_column="id").patients
        parquet.write_table(pyarrow.table({"id": column, "x": [1, 2]}), tmp_path / "a.parquet")
        return load(tmp_path / "a.parquet", patient_column="id").patients

    assert read([1, largest - 1]) == ("1", str(largest - 1))
    with pytest.raises(DataError, match=r"1 of 2 records hold a number .* lost.*the first in row 2"):
        read([1, largest])


def test_a_data_set_s_tensors_and_its_own_list_name_one_patient() -> None:
    class Stays:
        targets = torch.tensor([0, 1])
        patients = ("17", "18")

        def __len__(self) -> int:
            return 2

        def __getitem__(self, row: int) -> tuple[torch.Tensor, int, torch.Tensor]:
            return torch.zeros(3), row, torch.tensor(17.0 + row)

    for lazy in (True, False):
        assert records_of(Stays(), lazy=lazy).patients == ("17", "18")


def test_the_key_of_an_objection_forgets_capitals_and_leading_zeros_of_numbers() -> None:
    assert objection_key("0017") == objection_key("17") == "17"
    assert objection_key("000") == objection_key("0") == "0"
    assert objection_key("P17") == objection_key("p17") != objection_key("p017")
    assert objection_key("STRASSE") == objection_key("straße")
