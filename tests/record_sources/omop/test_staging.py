"""Cells of an OMOP database in the staging tables, and what is counted and left out."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import get_args

import pytest
from sqlalchemy import create_engine, text

from record_sources.errors import SourceError
from record_sources.omop.staging import EVENT_TABLES
from study_protocol.study.cohort import Domain
from tests.record_sources.omop.example import (
    FLU,
    PATIENTS,
    PULSE,
    cohort,
    described,
    sqlite,
)  # fmt: skip
from tests.record_sources.omop.made import executed, made


def test_texts_as_dates_with_and_without_a_time(tmp_path: Path) -> None:
    description = sqlite(tmp_path / "a.db")
    engine = create_engine(f"sqlite:///{tmp_path / 'a.db'}")
    with engine.begin() as connection:
        connection.execute(text("UPDATE visit_occurrence SET visit_start_date = visit_start_date || ' 12:00:00'"))
        connection.execute(text("UPDATE measurement SET measurement_date = measurement_date || 'T00:00:00Z'"))
        connection.execute(text("UPDATE death SET death_date = NULL, death_datetime = '2015-03-05 23:59:00'"))
    engine.dispose()
    assert made(tmp_path, description)[0]["patients"] == PATIENTS


@pytest.mark.parametrize(
    ("column", "cell", "words"),
    [
        ("measurement.value_as_number", "'high'", "text"),
        ("measurement.measurement_date", "'01.03.2015'", "table measurement: 3 of 3 cells of the column with the day"),
        ("death.death_date", "'2015-02-30'", "table death: 2 of 2 cells of the column with the day are no date"),
        ("person.year_of_birth", "'unknown'", "person: 3 of 3 cells of the column with the birth year are no whole"),
        ("person.year_of_birth", "1980.5", "person: 3 of 3 cells of the column with the birth year are no whole"),
        ("measurement.unit_concept_id", "'8541.5'", "measurement: 3 of 3 cells of the column with the unit are no"),
        ("death.death_date", "'infinity'", "table death: 2 of 2 cells of the column with the day are no date"),
        ("death.death_date", "1425168000", "table death: 2 of 2 cells of the column with the day are no date"),
    ],
)
def test_cells_of_a_wrong_kind_are_counted_and_not_shown(tmp_path: Path, column: str, cell: str, words: str) -> None:
    description = sqlite(tmp_path / "a.db")
    table, name = column.split(".")
    engine = create_engine(f"sqlite:///{tmp_path / 'a.db'}")
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {table} SET {name} = {cell}"))
    engine.dispose()
    if words == "text":
        words = "table measurement: 3 of 3 cells of the column with the value are no number"
    with pytest.raises(SourceError, match=words) as raised:
        made(tmp_path, description)
    assert cell.strip("'") not in str(raised.value)


def test_events_without_a_date_and_tables_without_rows(tmp_path: Path) -> None:
    changed = {"condition_occurrence": [(1, FLU, None, None)], "death": [], "measurement": [], "observation": []}
    drugs = {"drugs": {"of": "drug", "concepts": [PULSE]}}
    found, remarks = made(tmp_path, sqlite(tmp_path / "a.db", **changed), cohort(events=drugs))
    assert found == {
        "patients": [("1", 35, None, None, 0, None, "m", 2), ("2", 24, None, None, 0, None, "f", 1)],
        "drugs": [],
    }
    assert "condition_occurrence: 1 rows without a date left out" in remarks


def test_a_source_value_of_two_patients_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    sqlite(path, person=[(1, "SECRET", 0, 1980, 1, 1), (2, "SECRET", 0, 1980, 1, 1), (3, "C", 0, 1980, 1, 1)])
    with pytest.raises(SourceError, match="1 of 3 rows have a person_source_value that another row has") as raised:
        made(tmp_path, described(f"sqlite:///{path}", patient="person_source_value"))
    assert "SECRET" not in str(raised.value)


def test_a_value_below_a_limit_is_no_value(tmp_path: Path) -> None:
    """As in FHIR, where it has a comparator."""
    description = sqlite(tmp_path / "a.db")
    less, equal = 4171756, 4172703
    executed(
        description.url,
        "ALTER TABLE measurement ADD COLUMN operator_concept_id INTEGER",
        f"UPDATE measurement SET operator_concept_id = CASE value_as_number WHEN 70 THEN {less} ELSE {equal} END",
    )
    found, remarks = made(tmp_path, description)
    assert [row[5] for row in found["patients"]] == [80.5, None]
    assert "measurement: 1 values below or above a limit (such as <5) left out" in remarks
    assert "column pulse: 1 of 2 events have no value that counts" in remarks


def test_deaths_of_unknown_people_are_counted(tmp_path: Path) -> None:
    death = [(1, date(2015, 3, 5), None), (99, date(2015, 3, 5), None)]
    _, remarks = made(tmp_path, sqlite(tmp_path / "a.db", death=death))
    assert remarks[0] == "death: 1 rows of a person who is not in table person left out"


def test_each_domain_of_events_has_a_table_of_its_own() -> None:
    assert set(EVENT_TABLES) == set(get_args(Domain))
    assert len({table.name for table in EVENT_TABLES.values()}) == len(EVENT_TABLES)
