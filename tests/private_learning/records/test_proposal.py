"""How a file seems to be written: found in the whole file, with counts, and left open where it leaves a doubt."""

from __future__ import annotations

from pathlib import Path

import pytest

from private_learning.records import DataError, TableFormat, propose_format, read_csv
from private_learning.records.proposal import DeclaredParts, Proposal, combined, examine
from private_learning.records.table_format import Dates
from study_protocol.cells.spelling import Decimal


def proposal(folder: Path, body: str | bytes, name: str = "a.csv") -> Proposal:
    path = folder / name
    path.write_bytes(body.encode() if isinstance(body, str) else body)
    return propose_format(path)


@pytest.mark.parametrize(
    ("cells", "decimal", "doubtful"),
    [
        (["1,5", "2", "-,25"], "comma", False),
        (["1.5", "2", ".25"], "point", False),
        (["1", "2", "3"], None, False),
        (["250.000", "180.000", "95.000"], None, True),
        (["1,234", "2", "3"], None, True),
        (["1.234.567", "2", "3"], None, True),
        (["1.5", "1,5", "3"], None, True),
        (["1.234,5", "2", "3"], "comma", False),
        (["1,234.5", "2", "3"], "point", False),
        (["1,23E+05", "2", "3"], None, False),
        (["E11.9", "<0,1", "a,5"], None, False),
    ],
)
def test_the_decimal_mark_is_proposed_where_no_number_shows_another(
    tmp_path: Path, cells: list[str], decimal: Decimal | None, doubtful: bool
) -> None:
    made = proposal(tmp_path, "a;b\n" + "".join(f"{cell};x\n" for cell in cells))
    assert made.format == TableFormat("semicolon", decimal=decimal)
    assert made.doubts == (("decimal",) if doubtful else ())
    assert bool(made.doubtful) == doubtful


@pytest.mark.parametrize(
    ("cells", "dates", "doubtful"),
    [
        (["31.12.2020", "1.2.2021"], "dmy", False),
        (["12/31/2020", "1/2/2021"], "mdy", False),
        (["1.2.2021", "3.4.2021"], None, True),
        (["31.12.2020", "12.31.2020"], None, True),
        (["2020-12-31", "2021-01-02"], None, False),
        (["99.99.2020", "0.0.2021"], None, False),
    ],
)
def test_the_order_of_dates_is_proposed_where_a_day_above_12_shows_it(
    tmp_path: Path, cells: list[str], dates: Dates | None, doubtful: bool
) -> None:
    made = proposal(tmp_path, "a;b\n" + "".join(f"{cell};x\n" for cell in cells))
    assert made.format.dates == dates
    assert made.doubts == (("dates",) if doubtful else ())


def test_doubts_name_columns_and_counts(tmp_path: Path) -> None:
    made = proposal(tmp_path, "a;b;c\n1,5;2.5;x\n2,5;3.5;x\n3;1.5;y\n")
    assert made.doubtful == (
        "3 cells are numbers with a decimal point, and 2 with a decimal comma (column a: 1 whole numbers, 2 with a "
        "decimal comma; column b: 3 with a decimal point): declare --decimal point or comma"
    )
    forms = {one.name: (one.cells, one.whole, one.point, one.comma) for one in made.columns}
    assert forms == {"a": (3, 1, 0, 2), "b": (3, 0, 3, 0), "c": (3, 0, 0, 0)}


def test_dates_that_need_no_order_and_words_for_missing_are_no_other_texts(tmp_path: Path) -> None:
    made = proposal(tmp_path, "a;b\n2020-12-31;1.5\n2020-12-31 10:00;NA\n2020-12-30;?\nsoon;k.A.\n")
    assert {one.name: str(one) for one in made.columns} == {
        "a": "3 dates with the year first, 1 other texts",
        "b": "1 with a decimal point, 2 missing, 1 other texts",
    }
    assert made.format.dates is None


def test_what_is_declared_is_not_proposed(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("a;x,b;größe\n1;2,3;4\n".encode("cp1252"))
    with pytest.raises(DataError, match="not written in UTF-8"):
        propose_format(path)
    with pytest.raises(DataError, match=r"stand in every line alike.*--separator"):
        propose_format(path, encoding="cp1252")
    made = propose_format(str(path), encoding="latin1", separator="semicolon", decimal="comma", dates="mdy")
    assert made.format == TableFormat("semicolon", "iso8859-1", True, "comma", "mdy")
    assert made.doubts == ()
    assert set(made.reasons.values()) >= {"declared"}


def test_one_proposal_for_all_tables_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "patients.csv").write_text("patient;krea\n1;250.000\n")
    (tmp_path / "labs.csv").write_text("patient;value\n1;1,5\n")
    (tmp_path / "drugs.tsv").write_text("patient\tatc\n1\tA\n")
    made = propose_format(tmp_path)
    assert made.format == TableFormat("semicolon", decimal="comma")
    assert {one.name for one in made.columns} >= {"labs value", "patients krea"}
    (tmp_path / "labs.csv").write_text("patient,value\n1,1.5\n")
    with pytest.raises(DataError, match="tables of one data set need one format"):
        propose_format(tmp_path)


def test_a_column_without_a_name_is_remarked_where_something_stands_in_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(",x,,y\n0,1,,2\n1,3,,4\n")
    remark = "a.csv: 1 columns without a name are left out, the first of them column 1"
    assert propose_format(path).remarks == (remark,)
    read_csv(path, TableFormat())
    assert remark in caplog.text
    path.write_text("x,y,\n1,2,\n")
    assert propose_format(path).remarks == ()


def test_a_line_of_totals_is_remarked(tmp_path: Path) -> None:
    assert "last line (4)" in proposal(tmp_path, "a,b\n1,2\n3,4\nSumme,6\n").remarks[0]
    assert not proposal(tmp_path, "a,b\nSumme,2\n3,4\n").remarks


def test_arrays_have_no_format_to_propose(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"")
    with pytest.raises(DataError, match="no text table"):
        propose_format(tmp_path / "a.npz")


def test_options_declare_what_was_proposed(tmp_path: Path) -> None:
    made = proposal(tmp_path, "a;b\n1,5;31.12.2020\n".encode("utf-16"))
    assert made.format.options == [
        *("--separator", "semicolon", "--encoding", "utf-16", "--decimal", "comma", "--dates", "dmy")
    ]
    assert TableFormat.from_dict(made.format.to_dict()) == made.format


def test_parts_that_are_declared_are_taken_and_the_rest_is_proposed(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a;b\n1,5;x\n")
    whole, table = examine(path, DeclaredParts())
    assert combined([whole]).format == TableFormat("semicolon", decimal="comma")
    assert list(table.columns) == ["a", "b"]
    declared, _ = examine(path, DeclaredParts(separator="semicolon", encoding="cp1252"))
    assert combined([declared]).format == TableFormat("semicolon", "cp1252", decimal="comma")
    with pytest.raises(DataError, match="declare --separator semicolon"):
        examine(path, DeclaredParts(separator="comma"))


def test_files_of_one_data_set_have_one_separator(tmp_path: Path) -> None:
    parts = []
    for name, mark in (("a.csv", ";"), ("b.csv", ",")):
        (tmp_path / name).write_text(f"x{mark}y\n1{mark}2\n")
        parts.append(examine(tmp_path / name, DeclaredParts())[0])
    with pytest.raises(DataError):
        combined(parts)
