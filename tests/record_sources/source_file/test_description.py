"""What a hospital may write in source.toml, and the sentence for each entry that does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from record_sources.errors import SourceError
from record_sources.source_file.description import SqlDescription, WorkbookDescription, read_description

SQL = '[source]\nkind = "sql"\nurl = "sqlite:///clinic.db"\nquery = "cohort.sql"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a query, a database and a file that holds a password."""
    for name in ("cohort.sql", "clinic.db", "secret.txt", "beds.xlsx"):
        (tmp_path / name).touch()
    return tmp_path


def described(folder: Path, text: str) -> Path:
    path = folder / "source.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_paths_are_relative_to_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    description = read_description(described(folder, SQL))
    assert isinstance(description, SqlDescription)
    assert description.queries == {"records": folder / "cohort.sql"}
    assert description.url == f"sqlite+pysqlite:///{folder}/clinic.db"
    assert description.place == "sqlite clinic.db"
    assert (description.timeout, description.patient_column, description.several_rows) == (3600, "patient", False)


def test_a_workbook_is_described(folder: Path) -> None:
    text = '[source]\nkind = "workbook"\nfile = "beds.xlsx"\nsheet = "Data"\nheader_row = 3\n'
    description = read_description(described(folder, text))
    assert isinstance(description, WorkbookDescription)
    assert description.header_row == 3


@pytest.mark.parametrize(
    ("written", "replacement", "words"),
    [
        ('"sql"', '"csv"', "source.kind: must be one of sql, omop, fhir, workbook"),
        ('kind = "sql"', "", "source.kind: is missing"),
        ("query =", "qery =", "there is no such entry. Did you mean query?"),
        ("cohort.sql", "other.sql", "there is no file other.sql"),
        ("clinic.db", "other.db", "there is no database file other.db"),
        ("sqlite:///clinic.db", "hunter2", "it is no address of a database"),
        ("sqlite:///clinic.db", "postgresql://a:hunter2@db/x", "a password stands in the address"),
        ("sqlite:///clinic.db", "postgresql://a@db/x?password=hunter2", "a password stands in the address"),
        ("sqlite:///clinic.db", "postgresql://a:hunt/er2@db/x", "source.sql.url"),
        ("sqlite:///clinic.db", "mssql+pyodbc:///?odbc_connect=PWD%3Dhunter2", "a password stands in the address"),
        ("sqlite:///clinic.db", "sqlite:///clinic.db?key=hunter2", "nothing after a question mark"),
        ("sqlite:///clinic.db", "duckdb:///clinic.db?access_mode=read_write", "nothing after a question mark"),
        ("sqlite:///clinic.db", "mysql+mysqldb://a@db/x", "this database is not read"),
        ("query", 'password_environment = "A"\npassword_keyring = "b"\nquery', "Keep one of them"),
        ("query", "timeout = 0\nquery", "source.sql.timeout"),
        ("query", 'timeout = "hunter2"\nquery', "source.sql.timeout"),
        ('query = "cohort.sql"', "", "either query or tables"),
        ("query", 'tables = { patients = "cohort.sql", visits = "cohort.sql" }\nquery', "either query or tables"),
        ('query = "cohort.sql"', 'tables = { patients = "cohort.sql" }', "at least one table of events"),
        ("query", "day = 2020-01-01\nquery", "has no quotation marks"),
        ("[source]", "[source", "is no TOML: line 1"),
        ("query", 'password = "hunter2"\nquery', "there is no such entry"),
    ],
)
def test_an_entry_that_does_not_fit_is_named_and_not_quoted(
    folder: Path, written: str, replacement: str, words: str
) -> None:
    with pytest.raises(SourceError) as error:
        read_description(described(folder, SQL.replace(written, replacement, 1)))
    assert words in str(error.value)
    assert "hunt" not in str(error.value)
    assert error.value.__cause__ is None


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"there is no file source\.toml"):
        read_description(tmp_path / "source.toml")
