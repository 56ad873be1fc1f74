"""A small OMOP database, written by SQLAlchemy: three patients, and a vocabulary of nine concepts."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Date, DateTime, Engine, Integer, MetaData, Numeric, String, Table, create_engine

from record_sources.source_file.description import OmopDescription
from study_protocol.study.cohort import Cohort

VISIT, ICU, FLU, ILL, OLD_FLU, GONE_FLU, PULSE, ANSWER, YES = (
    9201,
    32037,
    4266367,
    4180628,
    45596273,
    9,
    3027018,
    4083587,
    4188539,
)
CONCEPTS = [
    *((concept, "S", None) for concept in (VISIT, ICU, FLU, ILL, PULSE, ANSWER, YES)),
    (OLD_FLU, None, None),
    (GONE_FLU, "S", "D"),
]
ANCESTORS = [(VISIT, VISIT), (VISIT, ICU), (ICU, ICU), (FLU, FLU), (ILL, ILL), (ILL, FLU), (PULSE, PULSE)]
MAPS_TO = [(OLD_FLU, FLU, "Maps to", None), (GONE_FLU, FLU, "Maps to", None), (FLU, FLU, "Maps to", None)]
ROWS: dict[str, list[tuple[Any, ...]]] = {
    "concept": CONCEPTS,
    "concept_ancestor": ANCESTORS,
    "concept_relationship": MAPS_TO,
    "person": [(1, "A1", 8507, 1980, 2, 29), (2, "B2", 8532, 1990, None, None), (3, "C3", None, None, None, None)],
    "visit_occurrence": [
        (1, ICU, date(2015, 3, 1), datetime(2015, 3, 1, 8), date(2015, 3, 4)),  # noqa: DTZ001
        (1, VISIT, date(2015, 3, 3), None, date(2015, 3, 9)),
        (2, VISIT, date(2015, 3, 1), None, date(2015, 3, 1)),
        (2, 0, date(2015, 1, 1), None, date(2015, 1, 1)),
        (99, VISIT, date(2015, 1, 1), None, date(2015, 1, 1)),
    ],
    "condition_occurrence": [
        (1, FLU, date(2015, 3, 2), None),
        (2, OLD_FLU, date(2015, 3, 2), None),
        (1, 0, date(2015, 3, 2), None),
    ],
    "drug_exposure": [],
    "measurement": [
        (1, PULSE, date(2015, 3, 1), datetime(2015, 3, 1, 9), 80.5, None, 8541, "bpm"),  # noqa: DTZ001
        (1, PULSE, date(2015, 3, 1), None, 70.0, None, None, None),
        (2, PULSE, date(2015, 3, 2), None, None, None, 0, "?"),
    ],
    "observation": [(1, ANSWER, date(2015, 3, 1), None, None, YES, None, None)],
    "death": [(1, date(2015, 3, 6), None), (1, date(2015, 3, 5), None)],
}
_VALUES = {
    "value_as_number": Numeric(20, 6),
    "value_as_concept_id": Integer,
    "unit_concept_id": Integer,
    "unit_source_value": String,
}


def _events(concept: str, starts: str, **more: Any) -> dict[str, Any]:
    return {"person_id": Integer, concept: Integer, f"{starts}_date": Date, f"{starts}_datetime": DateTime} | more


TABLES: dict[str, dict[str, Any]] = {
    "concept": {"concept_id": Integer, "standard_concept": String, "invalid_reason": String},
    "concept_ancestor": {"ancestor_concept_id": Integer, "descendant_concept_id": Integer},
    "concept_relationship": {
        "concept_id_1": Integer, "concept_id_2": Integer, "relationship_id": String, "invalid_reason": String
    },
    "person": {
        "person_id": Integer, "person_source_value": String, "gender_concept_id": Integer, "year_of_birth": Integer,
        "month_of_birth": Integer, "day_of_birth": Integer,
    },
    "visit_occurrence": _events("visit_concept_id", "visit_start", visit_end_date=Date),
    "condition_occurrence": _events("condition_concept_id", "condition_start"),
    "drug_exposure": _events("drug_concept_id", "drug_exposure_start"),
    "measurement": _events("measurement_concept_id", "measurement", **_VALUES),
    "observation": _events("observation_concept_id", "observation", **_VALUES),
    "death": {"person_id": Integer, "death_date": Date, "death_datetime": DateTime},
}  # fmt: skip


def write(
    engine: Engine, rows: dict[str, list[tuple[Any, ...]]], *, schema: str | None = None, upper: bool = False
) -> None:
    """Create the tables of `rows` with these rows. upper: names in capitals."""
    metadata = MetaData(schema=schema)
    written = str.upper if upper else str
    with engine.begin() as connection:
        for name, cells in rows.items():
            columns = {written(column): kind for column, kind in TABLES[name].items()}
            table = Table(written(name), metadata, *(Column(column, kind) for column, kind in columns.items()))
            table.create(connection)
            if cells:
                connection.execute(table.insert(), [dict(zip(columns, row, strict=True)) for row in cells])


def sqlite(path: Path, *, upper: bool = False, **changed: Any) -> OmopDescription:
    """Return the example as an SQLite file. changed: other rows of a table. None: without it."""
    rows = {name: cells for name, cells in (ROWS | changed).items() if cells is not None}
    engine = create_engine(f"sqlite:///{path}")
    write(engine, rows, upper=upper)
    engine.dispose()
    return described(f"sqlite:///{path}")


def described(url: str, **entries: Any) -> OmopDescription:
    return OmopDescription.model_validate({"kind": "omop", "url": url} | entries)


def cohort(**entries: Any) -> Cohort:
    """All kinds of columns on the example."""
    columns: dict[str, Any] = {
        "age": {"of": "age"},
        "sex": {"of": "sex", "values": {"8507": "m", "8532": "f"}},
        "died": {"of": "death", "take": "day"},
        "ill": {"of": "condition", "concepts": [ILL]},
        "visits": {"of": "visit", "concepts": [VISIT], "take": "count"},
        "pulse": {
            "of": "measurement",
            "concepts": [PULSE],
            "take": "last",
            "units": {"8541": 1, "0": 1},
            "days": [0, 0],
        },
        "answer": {"of": "observation", "concepts": [ANSWER], "take": "first", "values": {str(YES): "yes"}},
    }
    events = {"conditions": {"of": "condition", "concepts": [ILL, FLU]}}
    whole = {"index_event": {"of": "visit", "concepts": [VISIT]}, "columns": columns, "events": events}
    return Cohort.model_validate(whole | entries)


PATIENTS = [
    # age, answer, died, ill, pulse, sex, visits by name of column
    ("1", 35, "yes", 4, 1, 70.0, "m", 2),
    ("2", 24, None, None, 0, None, "f", 1),
]
EVENTS = [("1", str(ILL), 1), ("1", str(FLU), 1)]
REMARKS = [
    "death: 1 further rows of a person, of whom the earliest day counts",
    "visit_occurrence: 1 rows of a person who is not in table person left out",
    "visit_occurrence: 1 rows have no concept, or concept 0, and never count",
    "condition_occurrence: 1 rows have no concept, or concept 0, and never count",
    "3 patients in the source",
    "1 left out, who have no index event",
    "2 patients in the cohort",
]
