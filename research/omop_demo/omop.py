"""The tables of OMOP CDM 5.4 that the demonstration fills, in any database of SQLAlchemy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Column, Date, DateTime, Double, Engine, Integer, MetaData, String, Table, insert, inspect
from sqlalchemy.types import TypeEngine

from research.omop_demo import vocabulary as lists
from research.omop_demo.patients import Patients
from research.omop_demo.vocabulary import Vocabulary

_SOURCE_LENGTH = 50
"""Of source values in OMOP."""
_EHR = 0
"""The type concept of records: the committed list has none."""
_COLUMNS = {
    "person": "person_id gender_concept_id year_of_birth month_of_birth day_of_birth birth_datetime race_concept_id "
    "ethnicity_concept_id person_source_value gender_source_value race_source_value",
    "visit_occurrence": "visit_occurrence_id person_id visit_concept_id visit_start_date visit_start_datetime "
    "visit_end_date visit_end_datetime visit_type_concept_id visit_source_value",
    "condition_occurrence": "condition_occurrence_id person_id condition_concept_id condition_start_date "
    "condition_start_datetime condition_end_date condition_type_concept_id visit_occurrence_id condition_source_value "
    "condition_source_concept_id",
    "drug_exposure": "drug_exposure_id person_id drug_concept_id drug_exposure_start_date "
    "drug_exposure_start_datetime drug_exposure_end_date drug_type_concept_id drug_source_value",
    "measurement": "measurement_id person_id measurement_concept_id measurement_date measurement_datetime "
    "measurement_type_concept_id value_as_number value_as_concept_id unit_concept_id visit_occurrence_id "
    "measurement_source_value unit_source_value unit_source_concept_id",
    "observation": "observation_id person_id observation_concept_id observation_date observation_datetime "
    "observation_type_concept_id value_as_number value_as_string value_as_concept_id unit_concept_id "
    "observation_source_value",
    "death": "person_id death_date death_datetime",
    "concept": " ".join(lists.CONCEPT),
    "concept_relationship": " ".join(lists.RELATIONSHIP),
    "concept_ancestor": " ".join(lists.ANCESTOR),
}


class TablesExist(Exception):
    """The database is not empty."""


def omop_tables() -> MetaData:
    """Return the tables. Their names and columns are of OMOP CDM 5.4, without its foreign keys."""
    metadata = MetaData()
    for name, columns in _COLUMNS.items():
        Table(
            name,
            metadata,
            *(Column(column, _type(column), primary_key=column == f"{name}_id") for column in columns.split()),
        )
    return metadata


def write_database(engine: Engine, patients: Patients, vocabulary: Vocabulary) -> None:
    """Make the tables and fill them. Drugs and observations stay empty: the demo has none.

    Raises:
        TablesExist: the database has one of the tables. It may be a hospital's own.
    """
    metadata = omop_tables()
    if existing := sorted(set(inspect(engine).get_table_names()) & set(metadata.tables)):
        raise TablesExist(f"the database has tables already, such as {existing[0]}: name an empty one")
    metadata.create_all(engine)
    with engine.begin() as connection:
        for name, rows in _rows(patients, vocabulary).items():
            columns = _COLUMNS[name].split()
            values = [dict(zip(columns, row, strict=True)) for row in rows]
            if values:
                connection.execute(insert(metadata.tables[name]), values)


def _type(column: str) -> type[TypeEngine[Any]]:
    endings: dict[str, type[TypeEngine[Any]]] = {"_date": Date, "_datetime": DateTime, "_as_number": Double}
    if column.endswith(("_source_value", "_as_string", "_name", "_code", "_reason", "standard_concept")) or (
        column in ("domain_id", "vocabulary_id", "concept_class_id", "relationship_id")
    ):
        return String
    return next((type for ending, type in endings.items() if column.endswith(ending)), Integer)


def _rows(patients: Patients, vocabulary: Vocabulary) -> dict[str, Iterable[tuple[Any, ...]]]:
    standard = vocabulary.standard
    return {
        "person": (
            (p.id, p.gender, p.birth_year, None, None, None, 0, 0, p.source, p.gender_source, p.ethnicity)
            for p in patients.persons
        ),
        "visit_occurrence": (
            (v.id, v.person, v.concept, v.starts.date(), v.starts, v.ends.date(), v.ends, _EHR, v.source)
            for v in patients.visits
        ),
        "condition_occurrence": (
            (c.id, c.person, standard(c.mapped), c.day, None, None, _EHR, c.visit, c.source[:_SOURCE_LENGTH], c.mapped)
            for c in patients.conditions
        ),
        "measurement": (
            (
                m.id,
                m.person,
                m.concept,
                m.time.date(),
                m.time,
                _EHR,
                m.amount,
                None,
                standard(m.unit),
                m.visit,
                m.source,
                m.unit_source,
                m.unit,
            )
            for m in patients.measurements
        ),
        "death": ((p.id, p.died.date(), p.died) for p in patients.persons if p.died),
        "concept": (concept.row for concept in vocabulary.concepts.values()),
        "concept_relationship": vocabulary.relationship_rows,
        "concept_ancestor": vocabulary.ancestor_rows,
    }
