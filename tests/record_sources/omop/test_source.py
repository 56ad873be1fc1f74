"""A cohort from OMOP databases of several kinds, beside rows that were counted by hand."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from private_learning.records.histories import read_histories
from record_sources.errors import SourceError
from record_sources.snapshot.preparation import prepare
from tests.record_sources.omop.example import (
    CONCEPTS,
    EVENTS,
    ILL,
    PATIENTS,
    PULSE,
    REMARKS,
    ROWS,
    cohort,
    described,
    sqlite,
)  # fmt: skip
from tests.record_sources.omop.made import executed, made


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
        ({"person": [(1, "x", 0, 1980, 13, 1)]}, "day of birth of 1 patients is none of the calendar"),
        ({"visit_occurrence": []}, "The cohort has no patient. 3 patients in the source. 3 left out"),
        ({"measurement": [(1, PULSE, date(2015, 3, 1), None, 80.5, None, 0, "bpm")]}, "have a unit without a standard"),
        ({"measurement": [(1, PULSE, date(2015, 3, 1), None, 80.5, None, 8840, "mg")]}, "a unit that units does not"),
        ({"person": [(1, "x", 8521, 1980, 1, 1)]}, "column sex: 1 of 1 patients have a gender concept that values"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_in_a_sentence(tmp_path: Path, changed: dict[str, Any], words: str) -> None:
    with pytest.raises(SourceError, match=words):
        made(tmp_path, sqlite(tmp_path / "a.db", **changed))


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
