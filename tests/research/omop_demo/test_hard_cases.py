"""Cases that the real patients lack, or that a count of thousands would hide, in OMOP and in FHIR."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from sqlalchemy import create_engine

from record_sources.errors import SourceError
from record_sources.snapshot.preparation import prepare
from record_sources.source_file.description import read_description
from research.omop_demo.fhir import write_resources
from research.omop_demo.omop import write_database
from research.omop_demo.patients import Diagnosis, MeasuredValue, OmopPerson, Patients, Visit
from research.omop_demo.table import patient_table
from research.omop_demo.vocabulary import load_vocabulary, write_vocabulary
from study_protocol.study.cohort import Cohort

VOCABULARY = load_vocabulary()
INPATIENT, INTENSIVE = 9201, 32037
NONSTANDARD, STANDARD = 4166590, 4132546
GLUCOSE, MG, MMOL = 3004501, 8840, 8753
SEEN: dict[str, Any] = {"of": "condition", "concepts": [STANDARD]}
MEAN: dict[str, Any] = {"of": "measurement", "concepts": [GLUCOSE], "take": "mean", "units": {str(MG): 1.0}}

Taken = Callable[[Patients, Cohort], dict[str, dict[str, Any]]]


def person(number: int, died: datetime | None = None) -> OmopPerson:
    return OmopPerson(number, f"p{number}", 8507, "Male", 1950, "", died)


def visit(number: int, patient: int, day: int, concept: int = INTENSIVE, days: int = 3) -> Visit:
    return Visit(number, patient, concept, datetime(2015, 7, day, 10), datetime(2015, 7, day + days, 9), "")  # noqa: DTZ001


def cohort(**columns: Any) -> Cohort:
    return Cohort.model_validate(
        {"index_event": {"of": "visit", "concepts": (INTENSIVE,)}, "columns": columns or {"age": {"of": "age"}}},
        context={},
    )


def glucose(number: int, amount: float, unit: int, source: str) -> MeasuredValue:
    return MeasuredValue(number, 1, 1, "glucose", GLUCOSE, datetime(2015, 7, 1, 11), amount, unit, source)  # noqa: DTZ001


@pytest.fixture(params=["omop", "fhir"])
def taken(request: pytest.FixtureRequest, tmp_path: Path) -> Taken:
    """Return the table of a cohort by the source, patient -> cells, after it is compared with plain Python."""

    def take(patients: Patients, chosen: Cohort) -> dict[str, dict[str, Any]]:
        if request.param == "omop":
            engine = create_engine(f"sqlite:///{tmp_path / 'omop.db'}")
            write_database(engine, patients, VOCABULARY)
            engine.dispose()
            lines = f'kind = "omop"\nurl = "sqlite:///{tmp_path / "omop.db"}"'
        else:
            write_resources(tmp_path / "fhir", patients, VOCABULARY)
            write_vocabulary(VOCABULARY, tmp_path / "words")
            lines = 'kind = "fhir"\nfolder = "fhir"\nvocabulary = "words"'
        described = tmp_path / "source.toml"
        described.write_text(f"[source]\n{lines}\n")
        path = prepare(read_description(described), chosen, tmp_path / "snapshot").publish()
        frame: Any = duckdb.read_parquet(str(path))
        rows = [dict(zip(frame.columns, row, strict=True)) for row in frame.fetchall()]
        assert rows == list(patient_table(patients, VOCABULARY, chosen))
        return {row["patient"]: row for row in rows}

    return take


def test_a_code_that_maps_to_a_standard_concept_counts_as_that(taken: Taken) -> None:
    diagnosis = Diagnosis(1, 1, 1, "Head only trauma", NONSTANDARD, date(2015, 7, 1))
    patients = Patients([person(1), person(2)], [visit(1, 1, 1), visit(2, 2, 1)], [diagnosis])
    found = taken(patients, cohort(seen=SEEN))
    assert {patient: row["seen"] for patient, row in found.items()} == {"1": 1, "2": 0}


def test_a_study_that_names_a_concept_that_is_not_standard_is_refused(taken: Taken) -> None:
    patients = Patients([person(1)], [visit(1, 1, 1)])
    with pytest.raises(SourceError, match=rf"{NONSTANDARD}.*{STANDARD}"):
        taken(patients, cohort(seen=SEEN | {"concepts": [NONSTANDARD]}))


def test_a_diagnosis_without_a_concept_never_counts(taken: Taken) -> None:
    diagnosis = Diagnosis(1, 1, 1, "GI medical, other", 0, date(2015, 7, 1))
    found = taken(Patients([person(1)], [visit(1, 1, 1)], [diagnosis]), cohort(seen=SEEN))
    assert found["1"]["seen"] == 0


def test_two_units_of_one_measurement_become_the_study_s(taken: Taken) -> None:
    measured = [glucose(1, 90.0, MG, "mg/dL"), glucose(2, 10.0, MMOL, "mmol/L")]
    patients = Patients([person(1)], [visit(1, 1, 1)], [], measured)
    both = MEAN | {"units": {str(MG): 1.0, str(MMOL): 18.016}}
    assert taken(patients, cohort(glucose=both))["1"]["glucose"] == pytest.approx((90.0 + 180.16) / 2)


def test_a_unit_that_the_study_does_not_list_is_refused_with_column_and_count(taken: Taken) -> None:
    measured = [glucose(1, 90.0, MG, "mg/dL"), glucose(2, 10.25, MMOL, "mmol/L")]
    with pytest.raises(SourceError, match=r"glucose.*1 of 2") as refused:
        taken(Patients([person(1)], [visit(1, 1, 1)], [], measured), cohort(glucose=MEAN))
    assert "10.25" not in str(refused.value)


def test_overlapping_stays_count_each_and_the_first_is_the_index(taken: Taken) -> None:
    stays = [visit(1, 1, 1, INPATIENT, 9), visit(2, 1, 2), visit(3, 1, 3), visit(4, 1, 3)]
    count = {"of": "visit", "concepts": [INTENSIVE], "take": "count"}
    day = {"of": "visit", "concepts": [INPATIENT], "take": "day"}
    found = taken(Patients([person(1)], stays), cohort(stays=count, admitted=day))
    assert (found["1"]["stays"], found["1"]["admitted"]) == (3, -1)


def test_a_death_before_the_index_event_leaves_the_patient_out(taken: Taken) -> None:
    before, after = (datetime(2015, 7, day, 8) for day in (1, 2))  # noqa: DTZ001
    died = {"of": "death", "days": [0, 30]}
    patients = Patients([person(1, before), person(2, after), person(3)], [visit(n, n, 2) for n in (1, 2, 3)])
    found = taken(patients, cohort(died=died))
    assert {patient: row["died"] for patient, row in found.items()} == {"2": 1, "3": 0}
