"""Tables of an OMOP database by their names: views, schemas, capitals, and what is not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from record_sources.errors import SourceError
from record_sources.omop import omop_source
from record_sources.omop.tables import CdmTables
from record_sources.sql.connection import read_only
from tests.conftest import Postgres
from tests.record_sources.omop.example import (
    EVENTS,
    PATIENTS,
    REMARKS,
    ROWS,
    described,
    sqlite,
    write,
)  # fmt: skip
from tests.record_sources.omop.made import executed, made
from tests.record_sources.sql.databases import database


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


def test_a_table_is_found_in_any_capitals(tmp_path: Path) -> None:
    with read_only(sqlite(tmp_path / "a.db", upper=True, death=None)) as database_of_capitals:
        tables = CdmTables(database_of_capitals, None, "schema", "name it")
        assert (tables.has("person"), tables.has("death")) == (True, False)
        assert tables.find("person").columns.keys() >= {"person_id", "year_of_birth"}
