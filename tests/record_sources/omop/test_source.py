"""A cohort from OMOP databases of several kinds, beside rows that were counted by hand."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from private_learning.records.histories import read_histories
from record_sources.errors import SourceError
from record_sources.omop import omop_source
from record_sources.snapshot.preparation import prepare
from record_sources.source_file.description import OmopDescription
from record_sources.working.workspace import Workspace, no_progress
from study_protocol.study.cohort import Cohort
from tests.conftest import Postgres
from tests.record_sources.omop.example import (
    CONCEPTS,
    EVENTS,
    FLU,
    GONE_FLU,
    ICU,
    ILL,
    OLD_FLU,
    PATIENTS,
    PULSE,
    REMARKS,
    ROWS,
    cohort,
    described,
    sqlite,
    write,
)  # fmt: skip
from tests.record_sources.sql.databases import database


def made(
    folder: Path, description: OmopDescription, asked: Cohort | None = None, progress: Any = no_progress
) -> tuple[dict[str, list[tuple[Any, ...]]], list[str]]:
    work = folder / "work"
    work.mkdir(exist_ok=True)
    for old in work.glob("work.duckdb*"):
        old.unlink()
    with Workspace(work) as workspace:
        contents = omop_source(description, asked or cohort()).fill(workspace, progress)
        tables = {
            name: workspace.connection.execute(f'FROM "{name}" ORDER BY ALL').fetchall() for name in contents.tables
        }
        return tables, list(contents.remarks)


@pytest.mark.parametrize("upper", [False, True], ids=["lower", "upper"])
def test_a_cohort_of_sqlite(tmp_path: Path, upper: bool) -> None:
    seen: list[tuple[int, int | None, str]] = []
    found, remarks = made(
        tmp_path, sqlite(tmp_path / "a.db", upper=upper), None, lambda *progress: seen.append(progress)
    )
    assert found == {"patients": PATIENTS, "conditions": EVENTS}
    assert remarks == REMARKS
    assert (3, 3, "person") in seen
    assert (3, 3, "measurement") in seen


def test_views_and_identifiers_of_the_hospital(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    sqlite(path)
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE measurement RENAME TO local_measurement"))
        connection.execute(text("CREATE VIEW Measurement AS SELECT * FROM local_measurement"))
    engine.dispose()
    found, _ = made(tmp_path, described(f"sqlite:///{path}", patient="person_source_value"))
    assert found["patients"] == [("A1", *PATIENTS[0][1:]), ("B2", *PATIENTS[1][1:])]


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
    ("changed", "words"),
    [
        ({"death": None}, "the database has no table death: name the database .* or set schema in source.toml"),
        ({"concept": None}, "no table concept: load the vocabulary of OMOP from athena.ohdsi.org, or set vocabulary_"),
        ({"concept_ancestor": None}, "no table concept_ancestor: load the vocabulary"),
        ({"concept": []}, "table concept is empty: load the vocabulary"),
        ({"concept": [row for row in CONCEPTS if row[0] != ILL]}, f"Concept {ILL} is not in the hospital's vocabulary"),
        ({"person": [(1, "x", 0, 1980, 1, 1)] * 2}, "table person: 1 of 2 rows have a person_id that another row has"),
        ({"person": [(None, "x", 0, 1980, 1, 1)]}, "no patient in column person_id. Leave them out in a view"),
        ({"person": [(1, "x", 0, 1980, 13, 1)]}, "no patient. 1 patients in the source. 1 left out, who have no known"),
        ({"visit_occurrence": []}, "The cohort has no patient. 3 patients in the source. 3 left out"),
        ({"measurement": [(1, PULSE, date(2015, 3, 1), None, 80.5, None, 0, "bpm")]}, "have a unit without a standard"),
        ({"measurement": [(1, PULSE, date(2015, 3, 1), None, 80.5, None, 8840, "mg")]}, "a unit that units does not"),
        ({"person": [(1, "x", 8521, 1980, 1, 1)]}, "column sex: 1 of 1 patients have a gender concept that values"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_in_a_sentence(tmp_path: Path, changed: dict[str, Any], words: str) -> None:
    with pytest.raises(SourceError, match=words):
        made(tmp_path, sqlite(tmp_path / "a.db", **changed))


@pytest.mark.quick(
    "death.death_date-'infinity'-table death: 2 of 2 cells of the column with the day are no date",
    "death.death_date-1425168000-table death: 2 of 2 cells of the column with the day are no date",
    "person.year_of_birth-1980.5-person: 3 of 3 cells of the column with the birth year are no whole",
)
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


@pytest.mark.parametrize(("concept", "why"), [(OLD_FLU, "not a standard concept"), (GONE_FLU, "no longer valid")])
def test_a_concept_that_is_not_standard_names_the_one_to_use(tmp_path: Path, concept: int, why: str) -> None:
    asked = cohort(index_event={"of": "condition", "concepts": [concept]})
    with pytest.raises(SourceError, match=rf"Concept {concept} is {why}\w*\. Its standard concept is {FLU}\."):
        made(tmp_path, sqlite(tmp_path / "a.db"), asked)
    with pytest.raises(SourceError, match=rf"Concept {concept} is {why}\w*\. Ask"):
        made(tmp_path, sqlite(tmp_path / "b.db", concept_relationship=None), asked)


def test_events_without_a_date_and_tables_without_rows(tmp_path: Path) -> None:
    changed = {"condition_occurrence": [(1, FLU, None, None)], "death": [], "measurement": [], "observation": []}
    drugs = {"drugs": {"of": "drug", "concepts": [PULSE]}}
    found, remarks = made(tmp_path, sqlite(tmp_path / "a.db", **changed), cohort(events=drugs))
    assert found == {
        "patients": [("1", 35, None, None, 0, None, "m", 2), ("2", 24, None, None, 0, None, "f", 1)],
        "drugs": [],
    }
    assert "condition_occurrence: 1 rows without a date left out" in remarks


@pytest.mark.quick("None")
@pytest.mark.parametrize("day", [None, date(9999, 12, 31), date(1799, 12, 31)], ids=str)
def test_a_death_on_an_unknown_day_and_days_of_no_patient(tmp_path: Path, day: date | None) -> None:
    """A known day of death counts beside one that is not known."""
    death = [(1, day, None), (1, date(2015, 3, 5), None), (2, day, None)]
    description = sqlite(tmp_path / "a.db", death=death, condition_occurrence=[(1, FLU, day, None)])
    found, remarks = made(tmp_path, description)
    assert found["patients"] == [(*PATIENTS[0][:4], 0, *PATIENTS[0][5:])]
    assert found["conditions"] == []
    assert {
        "death: 2 rows without a date",
        "condition_occurrence: 1 rows without a date left out",
        "1 left out, who died on a day that is not known",
    } <= set(remarks)
    found, _ = made(tmp_path, description, cohort(columns={"age": {"of": "age"}}))
    assert found["patients"] == [("1", 35), ("2", 24)]


def test_a_missing_column_and_a_missing_cohort_are_named(tmp_path: Path) -> None:
    description = sqlite(tmp_path / "a.db")
    engine = create_engine(f"sqlite:///{tmp_path / 'a.db'}")
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE person DROP COLUMN gender_concept_id"))
    engine.dispose()
    with pytest.raises(SourceError, match="table person has no column gender_concept_id, as OMOP"):
        made(tmp_path, description)
    with pytest.raises(
        SourceError, match=r"section \[cohort\] of the study's settings. Name a settings file that has one"
    ):
        omop_source(description, None)


def test_more_concepts_than_a_statement_binds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With overlapping parts, each event is taken once."""
    monkeypatch.setattr("record_sources.omop.vocabulary.CHUNK", 1)
    columns = cohort().columns | {
        "both": cohort().columns["ill"].model_copy(update={"concepts": (FLU, ILL), "take": "count"})
    }
    asked = cohort(columns={name: column.model_dump() for name, column in columns.items()})
    found, _ = made(tmp_path, sqlite(tmp_path / "a.db"), asked)
    # Of both, and of ill.
    assert [(row[3], row[5]) for row in found["patients"]] == [(1, 1), (0, 0)]
    assert found["conditions"] == EVENTS


def test_descendants_count_only_where_they_are_asked_for(tmp_path: Path) -> None:
    alone = {"of": "condition", "concepts": [ILL], "descendants": False}
    both = {"ill": cohort().columns["ill"].model_dump(), "alone": alone}
    found, _ = made(tmp_path, sqlite(tmp_path / "a.db"), cohort(columns=both, events={}))
    assert found["patients"] == [("1", 0, 1), ("2", 0, 0)]
    without = {"of": "visit", "concepts": [ICU], "descendants": False}
    found, _ = made(
        tmp_path, sqlite(tmp_path / "b.db", concept_ancestor=None),
        cohort(index_event=without, columns={"alone": alone}, events={}),
    )  # fmt: skip
    assert found["patients"] == [("1", 0)]


def test_duckdb_with_schemas(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    engine = create_engine(f"duckdb:///{path}")
    with engine.begin() as connection:
        connection.execute(text('CREATE SCHEMA "my cdm"'))
        connection.execute(text("CREATE SCHEMA vocab"))
    of_vocabulary = {name: cells for name, cells in ROWS.items() if name.startswith("concept")}
    write(engine, of_vocabulary, schema="vocab")
    write(engine, {name: cells for name, cells in ROWS.items() if name not in of_vocabulary}, schema="my cdm")
    engine.dispose()
    url = f"duckdb:///{path}"
    found, remarks = made(tmp_path, described(url, schema="my cdm", vocabulary_schema="vocab"))
    assert (found, remarks) == ({"patients": PATIENTS, "conditions": EVENTS}, REMARKS)
    with pytest.raises(SourceError, match="no table concept in schema my cdm: load"):
        made(tmp_path, described(url, schema="my cdm"))
    with pytest.raises(SourceError, match="no table "):
        made(tmp_path, described(url, schema='x"; DROP SCHEMA vocab; --', vocabulary_schema="vocab"))


@pytest.mark.slow
def test_postgresql_with_a_schema(tmp_path: Path, postgres: Postgres) -> None:
    with database("postgresql", tmp_path, postgres, 'CREATE SCHEMA "CDM"') as url:
        engine = create_engine(url)
        write(engine, ROWS, schema="CDM")
        engine.dispose()
        found, remarks = made(tmp_path, described(url, schema="CDM"))
        with engine.begin() as connection:
            changed = 'ALTER TABLE "CDM".measurement ALTER measurement_datetime TYPE timestamptz'
            connection.execute(text(changed))
        engine.dispose()
        assert made(tmp_path, described(url, schema="CDM"))[0]["patients"] == PATIENTS
        with pytest.raises(SourceError, match="no table "):
            made(tmp_path, described(url))
    assert (found, remarks) == ({"patients": PATIENTS, "conditions": EVENTS}, REMARKS)


def test_words_of_settings_and_rows_are_never_sql(tmp_path: Path) -> None:
    evil = "'; DROP TABLE person; --"
    asked = cohort(columns={evil: {"of": "sex", "values": {"8507": evil, "8532": '"'}}}, events={})
    persons = [(1, evil, 8507, 1980, 1, 1), (2, "b", 8532, 1990, 1, 1)]
    path = tmp_path / "a.db"
    sqlite(path, person=persons)
    found, _ = made(tmp_path, described(f"sqlite:///{path}", patient="person_source_value"), asked)
    assert found["patients"] == [(evil, evil), ("b", '"')]
    # The hospital's database is read only.
    assert made(tmp_path, described(f"sqlite:///{path}"), asked)[0]["patients"] == [("1", evil), ("2", '"')]


def test_a_source_value_of_two_patients_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    sqlite(path, person=[(1, "SECRET", 0, 1980, 1, 1), (2, "SECRET", 0, 1980, 1, 1), (3, "C", 0, 1980, 1, 1)])
    with pytest.raises(SourceError, match="1 of 3 rows have a person_source_value that another row has") as raised:
        made(tmp_path, described(f"sqlite:///{path}", patient="person_source_value"))
    assert "SECRET" not in str(raised.value)


def test_unchanged_records_give_one_digest(tmp_path: Path) -> None:
    """Whatever the order of rows, the ids of persons and the type of a number in the database."""
    other = {name: list(reversed(rows)) for name, rows in ROWS.items()}
    for name in ("person", "visit_occurrence", "condition_occurrence", "measurement", "observation", "death"):
        other[name] = [(row[0] + 7000, *row[1:]) for row in other[name]]
    digests = set[str]()
    for name, rows in (("a", ROWS), ("b", other), ("c", ROWS)):
        path = tmp_path / f"{name}.db"
        sqlite(path, **dict[str, Any](rows))
        description = described(f"sqlite:///{path}", patient="person_source_value")
        prepared = prepare(description, cohort(), tmp_path / name)
        digests.add(prepared.record.sha256)
        prepared.publish()
    assert len(digests) == 1
    written = read_histories(tmp_path / "a")
    assert tuple(written.patients) == ("A1", "B2")
    assert len(written.events["conditions"]) == len(EVENTS)


def executed(url: str, *statements: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


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


def test_rows_without_a_concept_are_counted_in_views_of_texts(tmp_path: Path) -> None:
    description = sqlite(tmp_path / "a.db")
    executed(
        description.url,
        "ALTER TABLE visit_occurrence RENAME TO visits",
        "CREATE VIEW visit_occurrence AS SELECT person_id, CAST(visit_concept_id AS TEXT) AS visit_concept_id, "
        "visit_start_date, visit_start_datetime FROM visits",
    )
    found, remarks = made(tmp_path, description)
    assert (found["patients"], remarks) == (PATIENTS, REMARKS)


def test_deaths_of_unknown_people_are_counted(tmp_path: Path) -> None:
    death = [(1, date(2015, 3, 5), None), (99, date(2015, 3, 5), None)]
    _, remarks = made(tmp_path, sqlite(tmp_path / "a.db", death=death))
    assert remarks[0] == "death: 1 rows of a person who is not in table person left out"


def test_descendants_of_an_empty_table_are_not_none(tmp_path: Path) -> None:
    """Otherwise all events of descendants would be left out without a word."""
    with pytest.raises(SourceError, match="table concept_ancestor is empty"):
        made(tmp_path, sqlite(tmp_path / "a.db", concept_ancestor=[]))


@pytest.mark.slow
def test_postgresql_with_materialized_views_and_tables_of_one_name(tmp_path: Path, postgres: Postgres) -> None:
    with database("postgresql", tmp_path, postgres, "CREATE SCHEMA tables", "CREATE SCHEMA cdm") as url:
        engine = create_engine(url)
        write(engine, ROWS, schema="tables")
        engine.dispose()
        executed(url, *(f"CREATE MATERIALIZED VIEW cdm.{name} AS SELECT * FROM tables.{name}" for name in ROWS))
        found, remarks = made(tmp_path, described(url, schema="cdm"))
        assert (found, remarks) == ({"patients": PATIENTS, "conditions": EVENTS}, REMARKS)
        executed(url, 'CREATE TABLE cdm."PERSON" (person_id INTEGER)')
        with pytest.raises(SourceError, match="several tables person that differ in capitals alone"):
            made(tmp_path, described(url, schema="cdm"))


def test_a_space_is_an_empty_cell(tmp_path: Path) -> None:
    """As columns of type CHAR have it."""
    description = sqlite(tmp_path / "a.db")
    executed(
        description.url,
        "UPDATE concept SET invalid_reason = ' ' WHERE invalid_reason IS NULL",
        "UPDATE measurement SET unit_source_value = ' ' WHERE unit_source_value IS NULL",
    )
    found, remarks = made(tmp_path, description)
    assert (found["patients"], remarks) == (PATIENTS, REMARKS)
    executed(description.url, "UPDATE concept SET standard_concept = ' '")
    with pytest.raises(SourceError, match="is not a standard concept"):
        made(tmp_path, description)
