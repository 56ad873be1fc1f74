"""`wardround data check` with a list of objections: two patients are left out, or the list is refused by its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.factories.commands import write_settings
from wardround.cli.main import build

RECORDS = "id,age,died\n1001,40,no\n1002,41,yes\n1003,42,no\n1004,43,yes\n"
PARAMETERS = {"label": "died", "label-values": "no|yes", "column.age": "18..95"}


def check(folder: Path, objections: str | bytes, *more: str, records: str = RECORDS) -> tuple[int, str, str]:
    """Exit code, standard output and standard error, with every run of spaces as one."""
    (folder / "data.csv").write_text(records)
    (folder / "objections.txt").write_bytes(objections if isinstance(objections, bytes) else objections.encode())
    (folder / "policy.toml").write_text('excluded_patients_file = "objections.txt"\n')
    study = write_settings(
        folder / "study.json", training={"task": "logistic-regression", "task_parameters": PARAMETERS}
    )
    app = build()
    arguments = ["data", "check", str(folder / "data.csv"), "--settings", str(study), "--patient-column", "id"]
    result = CliRunner().invoke(app, [*arguments, "--policy", str(folder / "policy.toml"), *more])
    return result.exit_code, " ".join(result.stdout.split()), " ".join(result.stderr.split())


@pytest.mark.quick("CRLF")
@pytest.mark.parametrize(
    "objections",
    [
        *('"1001"\n"1002"\n', "0001001\n0001002\n", "1001\r\n1002\r\n", "\N{FULLWIDTH DIGIT ONE}001\n1002.0"),
        *(b"\xef\xbb\xbf1001\n1002", "1001\n1002".encode("utf-16"), "\u200b1001\n\N{NO-BREAK SPACE}1002 "),
    ],
    ids=["quoted", "zeros", "CRLF", "wide digits", "byte order mark", "UTF-16", "invisible"],
)
def test_two_patients_are_left_out(tmp_path: Path, objections: str | bytes) -> None:
    code, shown, _ = check(tmp_path, objections, "--json")
    assert code == 0
    found = json.loads(shown)
    assert (found["rows"], found["excluded"], found["patients"], found["unmatched"]) == (4, 2, 2, "")


@pytest.mark.quick("half a pair")
@pytest.mark.parametrize(
    ("objections", "words"),
    [
        ("1001;\n1002;\n", "line 1 holds a comma, a semicolon, a tab or a bar"),
        ("1001, 1002\n", "line 1 holds a comma, a semicolon, a tab or a bar"),
        ('1001\n"1002\n', "line 2 holds a quotation mark"),
        ("1001\n1.23457E+12\n", "line 2 holds a number whose last digits are lost"),
    ],
    ids=["semicolon", "one line", "half a pair", "spreadsheet"],
)
def test_the_list_is_refused_by_its_line(tmp_path: Path, objections: str, words: str) -> None:
    code, shown, told = check(tmp_path, objections)
    assert (code, shown) == (1, "")
    assert words in told
    assert not any(patient in told for patient in ("1001", "1002", "23457"))


def test_a_list_of_which_nobody_is_found_is_a_warning_and_a_row(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A header is no silent entry, either."""
    code, shown, _ = check(tmp_path, "patient_id\nx1001\n")
    assert code == 0
    assert "patients left out by the policy │ 0" in shown
    assert "2 of 2: lines 1, 2 of objections.txt" in shown
    assert "no patient is left out: no entry of the exclusion list matches" in caplog.text
    code, shown, _ = check(tmp_path, "patient_id\n1001\n")
    assert "entries of its list without a patient │ 1 of 2: lines 1 of objections.txt" in shown


def test_identifiers_that_a_spreadsheet_has_cut_are_refused(tmp_path: Path) -> None:
    records = "id;age;died\n1234567890;40;no\n1,23457E+12;41;yes\n1,23457E+12;42;no\n"
    code, _, told = check(tmp_path, "", records=records)
    assert code == 1
    assert "2 of 3 records hold a number whose last digits are lost" in told
    assert "the first in line 3" in told
    assert "23457E" not in told
