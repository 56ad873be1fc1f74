"""Text tables as programs write them: read as declared or as they propose, otherwise refused by line and column."""

from __future__ import annotations

import csv
import gzip
import io
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from private_learning.records import DataError, Table, TableFormat, load, read_csv
from private_learning.records.delimited import is_number, read_sheet, remarks_on, split
from private_learning.tasks.columns import encode_columns, read_columns
from study_protocol.cells import read_numbers
from wardround.demo.scenarios import data_folder

# Stands in a cell of every broken file; no message may repeat it.
SECRET = "3.14159"


def written(folder: Path, body: str | bytes, name: str = "a.csv") -> Path:
    path = folder / name
    path.write_bytes(body.encode() if isinstance(body, str) else body)
    return path


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["unix", "windows", "old mac"])
@pytest.mark.parametrize("mark", [",", ";", "\t", "|"], ids=["commas", "semicolons", "tabs", "bars"])
def test_separators_line_ends_and_unicode_are_found(tmp_path: Path, mark: str, end: str, encoding: str) -> None:
    rows = [["id", "größe", "ort"], ["7", "1.5", f'"a{mark}b"'], ["8", "?", "Köln"]]
    text = end.join(mark.join(row) for row in rows) + end
    table = load(written(tmp_path, text.encode(encoding)), patient_column="id")
    assert isinstance(table, Table)
    np.testing.assert_array_equal(table.numbers("größe"), [1.5, np.nan])
    assert table.columns["ort"].tolist() == [f"a{mark}b", "Köln"]
    assert table.patients == ("7", "8")


def test_a_windows_encoding_is_read_where_it_is_named_and_otherwise_refused_by_its_place(tmp_path: Path) -> None:
    path = written(tmp_path, f"id,ort\n7,{SECRET}\n8,Köln\n".encode("cp1252"))
    with pytest.raises(
        DataError, match=r"1 of 3 lines are not written in UTF-8, the first is line 3, column 2.*--enc"
    ) as no:
        load(path)
    assert SECRET not in str(no.value)
    for table in (load(path, encoding="cp1252"), load(path, TableFormat(encoding="cp1252"))):
        assert isinstance(table, Table)
        assert table.columns["ort"].tolist() == [SECRET, "Köln"]
    with pytest.raises(DataError, match="not the name of an encoding"):
        load(path, encoding="klingon")


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("a;b\n1,5;2\n;3\n", [1.5, np.nan]),
        ('a,b\n"1,5",2\n"-,25",3\n', [1.5, -0.25]),
        ("a;b\n1,234;0,5\n2;3\n", [1.234, 2]),
    ],
    ids=["semicolons", "quoted", "like thousands, but another is not"],
)
def test_decimal_commas_are_proposed_where_no_doubt_is_left(tmp_path: Path, text: str, numbers: list[float]) -> None:
    table = read_csv(written(tmp_path, text))
    np.testing.assert_array_equal(table.numbers("a"), numbers)
    assert table.format is not None
    assert (table.format.decimal, table.declared) == ("comma", False)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("a;b\n1,234;1\n2,345;1\n", 2),
        ("a;b\n1,5;1.5\n2,5;2\n", 2),
        ("a;b\n250.000;1\n95.000;1\n7;1\n", 2),
    ],
    ids=["thousands?", "points and commas", "points as thousands?"],
)
def test_marks_that_may_mean_two_things_are_no_numbers_until_somebody_declares_them(
    tmp_path: Path, text: str, wrong: int
) -> None:
    path = written(tmp_path, text)
    assert int(read_numbers(read_csv(path).columns["a"]).wrong.sum()) == wrong
    marks = "point" if "." in text.split(";")[1].split("\n")[1] else "comma"
    declared = read_csv(path, TableFormat("semicolon", decimal=marks))
    assert not read_numbers(declared.columns["a"]).wrong.any()
    assert (declared.format, declared.declared) == (TableFormat("semicolon", decimal=marks), True)


def test_one_cell_decides_about_no_other_cell(tmp_path: Path) -> None:
    """trust-2, row 1: `<0,1`, or a decimal point in another column, turned all decimal commas into missing values."""
    declared = TableFormat("semicolon", decimal="comma")
    plain = read_csv(written(tmp_path, "a;b\n1,5;2\n2,5;3\n"), declared).numbers("a")
    for strange in ("<0,1;2", "3.5;2", "x;1.5"):
        numbers = read_numbers(read_csv(written(tmp_path, f"a;b\n1,5;2\n2,5;3\n{strange}\n"), declared).columns["a"])
        np.testing.assert_array_equal(numbers.values[:2], plain)
        assert numbers.wrong.tolist() == [False, False, True]


def test_a_quotation_mark_more_swallows_no_row(tmp_path: Path) -> None:
    """`csv` would read one row of three cells where three rows stand, as the mark ends in another row's cell."""
    body = 'id,a,note\np1,7,t\np2,8,u\np3,5,",x"\n'
    assert len(read_csv(written(tmp_path, body), TableFormat())) == 3
    assert len(list(csv.reader(io.StringIO(body.replace("7", '"')), strict=True))) == 2
    with pytest.raises(DataError, match="the quotation marks of the row that begins in line 4 do not pair"):
        read_csv(written(tmp_path, body.replace("7", '"')), TableFormat())


def test_a_file_with_decimal_commas_holds_the_numbers_that_were_written(tmp_path: Path) -> None:
    values = [round(value, 2) for value in np.random.default_rng(5).normal(0, 1000, 500).tolist()]
    text = "x;y\n" + "".join(f"{value:.2f};1\n".replace(".", ",") for value in values)
    assert read_csv(written(tmp_path, text)).numbers("x").tolist() == values


def test_what_a_spreadsheet_could_not_show_is_no_number_and_no_code(tmp_path: Path) -> None:
    table = read_csv(written(tmp_path, "id;x\n1;###\n2;#REF!\n3;1,23E+05\n4;1,5\n"))
    assert read_numbers(table.columns["x"], ("-1",)).wrong.tolist() == [True, True, True, False]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "a,b\n1,2\n3,4\n",
            "read by semicolons it is one column, and 1 commas stand in its name: declare --separator c",
        ),
        ("a;b\n1;2;3\n4;5\n", "1 of 2 rows do not have 2 cells. The first is in line 2 and has 3"),
        ("a\tb\n1\t2\n", "This file looks as written with tab between cells.*declare --separator tab"),
        ("\ufeffa,b\n1,ä\n", "looks as written with comma between cells, UTF-8"),
    ],
    ids=map(str, count()),
)
def test_a_file_that_does_not_fit_its_declaration_is_refused_with_what_it_looks_like(
    tmp_path: Path, body: str, words: str
) -> None:
    with pytest.raises(DataError, match=words):
        read_csv(written(tmp_path, body), TableFormat("semicolon"))


def test_letters_are_compared_composed(tmp_path: Path) -> None:
    decomposed = "Gro\u0308\u00dfe"
    table = load(written(tmp_path, f"{decomposed},b\n1,2\n"), patient_column=decomposed)
    assert isinstance(table, Table)
    assert (table.patients, list(table.columns)) == (("1",), ["b"])
    assert list(read_csv(written(tmp_path, f"{decomposed},b\n1,2\n")).columns) == ["Größe", "b"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (f"63,{SECRET},1\n41,2,0\n", "line 1 was read as the names of 3 columns, but 3 .*is there a header"),
        (f"id,?,a\n7,{SECRET},1\n", "but 1 of them are .* the first in column 2.*is there a header"),
        (f"M,M,{SECRET}a\nF,M,b\n", "line 1 names a column twice .columns 1 and 2.*is there a header"),
        (f"A title\n7,{SECRET},1\n8,1,1\n", "line 1 has 1 cells and every other line 3: is there a header"),
        (f"a,b\n7,1,{SECRET}\n8,1,1\n", "line 1 has 2 cells and every other line 3"),
        (f"a,b\n7,1\n\n8,1,{SECRET}\n9,1\n", "1 of 3 rows do not have 2 cells. The first is in line 4 and has 3"),
        (f'a,b\n7,1\n8,"{SECRET}\n9,1\n', "quotation marks of the row that begins in line 3 do not pair"),
        (
            f"a;x,b;y\n1;{SECRET},2;3\n",
            "commas and semicolons stand in every line|semicolons and commas stand in every line",
        ),
        (
            f"n,a\n7,1\n{SECRET},{'x' * 200_000}\n",
            "begins in line 3 has a cell of more than 131072 characters",
        ),
        (f"n,a\n{SECRET},\0\n", "1 zero bytes, the first in line 2, column 2"),
        (f"sep=;\nn;a\n{SECRET};2\n", "line 1 is a hint that Excel writes for itself .*: remove this line"),
        (f"n,a\n{SECRET},2,\n3,4,\n", "2 of 2 rows end with a separator, the first in line 2, and the header does not"),
        (f"n a\n{SECRET} 2\n1,5 4\n", "every line holds 2 texts between spaces: save it with commas"),
        (f"Report\nof,May\nn,a,b\n{SECRET},2,3\n", "if the names of the columns stand in line 3, remove the lines"),
        (
            f"n,a,b\n{SECRET},2,3\nTotal,5\n",
            "totals or a remark, remove it. If it breaks off, save",
        ),
        (f'n,a\n{SECRET},5" tube\n', "quotation marks of the row that begins in line 2 do not pair"),
        (f'n,a\n{SECRET},"x" y\n', "quotation marks of the row that begins in line 2 do not pair"),
        (f"n,a\n{SECRET},2\n\ufeffn,a\n3,4\n", "line 3 begins with a byte order mark"),
        (f"n,a\r\n{SECRET},2\r3,4\r\n", "line 2 has a carriage return without a line feed"),
        (b"n,a\n", "no records below the header$"),
        (b"\n", "no records, not even a header"),
        (b",\n1,2\n", "there are no records below the header"),
        (b"PK\x03\x04rest", "this is a workbook or an archive"),
    ],
    ids=[
        *(
            "no header",
            "number",
            "twice",
            "title",
            "short header",
            "long row",
            "quotes",
            "two separators",
            "long",
            "zero",
        ),
        *(
            "sep=",
            "trailing",
            "spaces",
            "header below",
            "totals",
            "inner quote",
            "quote and more",
            "two files",
            "line ends",
        ),
        *("no rows", "empty line", "no names", "workbook"),
    ],
)
def test_a_broken_table_is_refused_by_line_and_column_and_never_quoted(
    tmp_path: Path, body: str | bytes, words: str
) -> None:
    path = written(tmp_path, body)
    with pytest.raises(DataError, match=words) as refused:
        load(path)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("whole", [False, True], ids=["not packed", "cut short"])
def test_a_broken_gzip_file_is_named(tmp_path: Path, whole: bool) -> None:
    body = gzip.compress(b"n,a\n1,2\n")[:-9] if whole else b"n,a\n1,2\n"
    with pytest.raises(DataError, match="not a whole gzip file"):
        load(written(tmp_path, body, "a.csv.gz"))


def test_what_spreadsheets_and_pandas_add_is_left_out(tmp_path: Path) -> None:
    table = read_csv(written(tmp_path, ",a,b,\n0,1,2,\n1,3,4,\n,,,\n \n"))
    assert {name: column.tolist() for name, column in table.columns.items()} == {"a": ["1", "3"], "b": ["2", "4"]}
    assert len(table) == 2
    numbered = read_csv(written(tmp_path, "0,1,2\n5,6,7\n"))
    assert list(numbered.columns) == ["0", "1", "2"]


def test_rows_know_the_line_that_they_stood_in(tmp_path: Path) -> None:
    table = read_csv(written(tmp_path, 'a,b\n1,"two\nlines"\n\n3,x\n'))
    assert table.lines is not None
    assert table.lines.tolist() == [3, 5]
    assert table.take([1]).first(np.array([True])) == "line 5"
    assert Table.of({"a": [1, 2]}).first(np.array([False, True])) == "row 2"


def test_identifiers_stay_as_they_are_written(tmp_path: Path) -> None:
    """As numbers 007 and 7 would be one patient, and two long ones that differ in their last digit, too."""
    text = "id,x\n007,1\n7,1\n12345678901234567890,1\n12345678901234567891,1\n17.0,1\n"
    table = load(written(tmp_path, text), patient_column="id")
    assert table.patients == ("007", "7", "12345678901234567890", "12345678901234567891", "17")
    with pytest.raises(DataError, match=r"no patient column 'ID' among the 2 columns\. Did you mean 'id'"):
        load(written(tmp_path, text), patient_column="ID")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("abalone/abalone.data", "numbers or question marks.*is there a header"),
        ("adult/adult.data", "is there a header"),
        ("breast_cancer_wdbc/wdbc.data", "is there a header"),
    ],
)
def test_public_tables_without_a_header_are_recognised(name: str, words: str) -> None:
    path = data_folder() / name
    if not path.exists():
        pytest.skip(f"WARDROUND_DATA holds no {name}")
    with pytest.raises(DataError, match=words):
        load(path)


def test_a_row_without_its_patient_is_named_by_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, f"id,a\n\n7,1\n,{SECRET}\n8,2\n")
    with pytest.raises(DataError, match="1 of 3 records have no patient identifier, the first in line 4") as refused:
        load(path, patient_column="id")
    assert SECRET not in str(refused.value)


def test_a_code_with_an_underscore_is_no_number(tmp_path: Path) -> None:
    """Python would read 12_34 as 1234."""
    path = written(tmp_path, "a,b\n12_34,1\n56,2\n")
    assert read_csv(path).columns["a"].tolist() == ["12_34", "56"]
    (column,) = read_columns({"column.a": "0..100"})
    with pytest.raises(DataError, match="column a: 1 of 2 values are no numbers"):
        encode_columns((column,), read_csv(path).columns)


def test_rows_know_the_line_in_which_they_end_and_empty_ones_are_none() -> None:
    rows, lines = split("a.csv", 'a,b\n1,"x\ny"\n , \n\n2,"say ""hi"""\n', "comma")
    assert rows == [["a", "b"], ["1", "x\ny"], ["2", 'say "hi"']]
    assert list(lines) == [1, 3, 6]


def test_columns_without_a_header_have_the_given_names_or_their_places() -> None:
    assert read_sheet("a.csv", "1|2\n3|4\n", "bar", header=False).names == ["0", "1"]
    sheet = read_sheet("a.csv", "1|2\n3|4\n", "bar", names=["x", "y"])
    assert (sheet.names, sheet.rows) == (["x", "y"], [["1", "2"], ["3", "4"]])
    with pytest.raises(DataError, match="below the header"):
        read_sheet("a.csv", "x|y\n", "bar")
    assert read_sheet("a.csv", "x|y\n", "bar", may_be_empty=True).rows == []
    with pytest.raises(DataError, match="a hint that Excel writes"):
        read_sheet("a.csv", "sep=;\nx;y\n1;2\n", "semicolon")


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        ("1", True),
        ("-1.5e-3", True),
        (".5", True),
        ("nan", False),
        ("inf", False),
        ("1,5", True),
        ("1 kg", False),
        ("", False),
    ],
)
def test_a_number_is_one_that_programs_write(cell: str, number: bool) -> None:
    assert is_number(cell) is number


def test_totals_and_columns_without_a_name_are_remarked_by_their_place() -> None:
    sheet = read_sheet("a.csv", "x,,y\n1,?,2\nTotal:,,2\n", "comma")
    unnamed, totals = remarks_on("a.csv", sheet)
    assert "1 columns without a name are left out, the first of them column 2" in unnamed
    assert "the last line (3)" in totals
    assert remarks_on("a.csv", read_sheet("a.csv", "x,y\n1,2\n", "comma")) == ()
