"""The eICU demo as OMOP in two databases, FHIR files, workbook and CSV: one table and one tensor, byte for byte."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

from private_learning.records import TableFormat, load
from private_learning.tasks import load as load_task
from private_learning.tasks.reading import dataset_of
from record_sources.snapshot.preparation import prepare
from record_sources.source_file.description import read_description
from research.omop_demo.__main__ import main
from study_protocol.study.settings import StudySettings
from tests.conftest import Postgres
from wardround.cli.shared.settings_file import read_settings

FOLDER = Path(__file__).parents[3] / "research/omop_demo"
DATA = Path(os.environ.get("WARDROUND_DATA", ".")) / "eicu_demo"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="WARDROUND_DATA holds no eicu_demo")
STUDIES = ("study", "sequences")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Iterator[dict[str, str]]:
    """Kind of source -> the section of its description. Everything is of the same patients."""
    home = tmp_path_factory.mktemp("omop")
    name = postgres.create("template1")
    url = postgres.url(name).render_as_string(hide_password=False)
    files = ["--fhir", home / "fhir", "--vocabulary", home / "words", "--workbook", home / "a.xlsx"]
    for address, more in ((f"sqlite:///{home / 'omop.db'}", [*files, "--csv", home / "a.csv"]), (url, [])):
        assert main(["--data", str(DATA), "--url", address, *map(str, more)]) == 0
    yield {
        "home": str(home),
        "sqlite": f'kind = "omop"\nurl = "sqlite:///{home / "omop.db"}"',
        "postgresql": f'kind = "omop"\nurl = "{url}"',
        "fhir": f'kind = "fhir"\nfolder = "{home / "fhir"}"\nvocabulary = "{home / "words"}"',
        "sheet": f'kind = "workbook"\nfile = "{home / "a.xlsx"}"\nsheet = "patients"',
    }
    postgres.drop(name)


@pytest.fixture(scope="module")
def snapshot(built: dict[str, str]) -> Callable[[str, str], Path]:
    """Return the snapshot of a source for a study, made once."""
    made: dict[tuple[str, str], Path] = {}

    def take(kind: str, study: str) -> Path:
        if (kind, study) not in made:
            described = Path(built["home"]) / f"{kind}.toml"
            described.write_text(f"[source]\n{built[kind]}\n")
            cohort = None if kind == "sheet" else settings(study).cohort
            target = described.parent / kind / study
            target.parent.mkdir(exist_ok=True)
            made[kind, study] = prepare(read_description(described), cohort, target).publish()
        return made[kind, study]

    return take


def settings(study: str) -> StudySettings:
    return read_settings(FOLDER / f"{study}.toml")


def tensors(path: Path, study: str, **options: Any) -> str:
    """Return the digest of inputs, targets and patients as the task makes them."""
    training = settings(study).training
    task = load_task(training.task, training.task_parameters)
    patient = None if path.is_dir() else "patient"
    return dataset_of(task, load(path, patient_column=patient, lazy=False, **options)).digest


def files(path: Path) -> dict[str, bytes]:
    return (
        {file.name: file.read_bytes() for file in sorted(path.iterdir())} if path.is_dir() else {"": path.read_bytes()}
    )


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
@pytest.mark.parametrize("kind", ["postgresql", "fhir"])
def test_the_same_patients_are_the_same_bytes(snapshot: Callable[[str, str], Path], kind: str, study: str) -> None:
    expected = snapshot("sqlite", study)
    found = snapshot(kind, study)
    assert files(found) == files(expected)
    assert tensors(found, study) == tensors(expected, study)


@pytest.mark.slow
def test_a_workbook_and_csv_of_the_same_rows_give_the_same_tensors(
    built: dict[str, str], snapshot: Callable[[str, str], Path]
) -> None:
    expected = tensors(snapshot("sqlite", "study"), "study")
    assert tensors(snapshot("sheet", "study"), "study") == expected
    written = TableFormat("comma", decimal="point")
    assert tensors(Path(built["home"]) / "a.csv", "study", table_format=written) == expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "fhir"])
def test_the_table_is_that_of_pandas(snapshot: Callable[[str, str], Path], kind: str) -> None:
    frame: Any = duckdb.read_parquet(str(snapshot(kind, "study"))).df()
    found = frame.set_index("patient").sort_index()
    expected = by_pandas().sort_index()
    assert list(found.index) == list(expected.index)
    for name in expected:
        pd.testing.assert_series_equal(
            found[name].astype(float), expected[name].astype(float), check_index=False, check_names=False, rtol=1e-12
        )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "fhir"])
def test_events_are_those_of_pandas(snapshot: Callable[[str, str], Path], kind: str) -> None:
    folder = snapshot(kind, "sequences")
    stays = eicu()
    kept = stays[stays.patient.isin(by_pandas().index)]
    kept = kept.assign(day=(kept.starts.dt.normalize() - kept.groupby("patient").index_day.transform("first")).dt.days)
    units = kept.assign(code=np.where(kept.unitstaytype == "stepdown/other", "9201", "32037"))
    hospital = kept.drop_duplicates("patienthealthsystemstayid").assign(code="9201")
    hospital["day"] = (hospital.admitted.dt.normalize() - hospital.index_day).dt.days
    both: Any = pd.concat([units, hospital])[["patient", "code", "day"]]
    expected = sorted(map(tuple, both[both.day.between(-365, 30)].to_numpy().tolist()))
    assert (
        sorted(duckdb.read_parquet(str(folder / "stays.parquet")).project("patient, code, day").fetchall()) == expected
    )
    # Ketoacidosis has no ancestor among the named concepts.
    named = kept[(kept.apacheadmissiondx == "Diabetic ketoacidosis") & kept.day.between(-365, 30)]
    diagnoses = duckdb.read_parquet(str(folder / "diagnoses.parquet")).filter("code = '443727'")
    found = diagnoses.project("patient, day").fetchall()
    assert sorted(found) == sorted(map(tuple, named[["patient", "day"]].to_numpy()))


def test_a_database_with_such_tables_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "hospital.db"
    with closing(sqlite3.connect(path)) as hospital:
        hospital.execute("CREATE TABLE person (person_id INTEGER)")
    before = path.read_bytes()
    assert main(["--data", str(DATA), "--url", f"sqlite:///{path}"]) == 1
    assert "person" in capsys.readouterr().err
    assert path.read_bytes() == before


def eicu() -> Any:
    """Return unit stays with derived dates and their day of index, by pandas from the files of eICU."""
    stays: Any = pd.read_csv(DATA / "patient.csv.gz")
    stays["patient"] = (stays.uniquepid.rank(method="dense").astype(int)).astype(str)
    expired = stays.hospitaldischargestatus == "Expired"
    order = (
        pd.DataFrame(
            {"u": stays.uniquepid, "y": stays.hospitaldischargeyear, "e": expired, "s": stays.patienthealthsystemstayid}
        )
        .drop_duplicates()
        .sort_values(["u", "y", "e", "s"])
    )
    order["rank"] = order.groupby(["u", "y"]).cumcount()
    rank = order.set_index("s")["rank"].loc[stays.patienthealthsystemstayid].to_numpy()
    midnight = pd.to_datetime(stays.hospitaldischargeyear.astype(str) + "-07-01")
    stays["admitted"] = midnight + pd.to_timedelta(rank * 11, unit="D") + pd.to_timedelta(stays.hospitaladmittime24)
    stays["starts"] = stays.admitted - pd.to_timedelta(stays.hospitaladmitoffset, unit="min")
    left = stays.starts + pd.to_timedelta(stays.hospitaldischargeoffset, unit="min")
    stays["died"] = left.where(expired)
    intensive = stays[stays.unitstaytype != "stepdown/other"]
    index = intensive.groupby("patient").starts.min().dt.normalize()
    stays["index_day"] = stays.patient.map(index)
    return stays


def by_pandas() -> Any:
    """Return some columns of the study's table."""
    stays = eicu()
    ages = pd.to_numeric(stays.age.replace("> 89", "90"))
    first = stays.assign(years=ages).sort_values(["admitted", "patienthealthsystemstayid"])
    known = first.dropna(subset=["years"]).groupby("patient").years.first()
    birth = first.groupby("patient").admitted.min().dt.year - known
    table: Any = pd.DataFrame({"index_day": stays.groupby("patient").index_day.first(), "birth": birth}).dropna()
    table["age"] = (table.index_day.dt.year - table.birth - (table.index_day.dt.month < 7)).clip(lower=0)
    died = stays.groupby("patient").died.min().dt.normalize()
    table = table[table.age.between(18, 120) & ~(died.reindex(table.index) < table.index_day)]
    table["died"] = (died.reindex(table.index) - table.index_day).dt.days.between(0, 30).astype(int)
    stays = stays[stays.patient.isin(table.index)]
    stays["day"] = (stays.starts.dt.normalize() - stays.index_day).dt.days
    values = pd.read_csv(DATA / "apacheapsvar.csv.gz").replace(-1, np.nan)
    taken = stays.merge(values, on="patientunitstayid")
    number = taken.patientunitstayid
    taken["glucose"] = np.where(
        number % 3 == 0, (taken.glucose / 18.016).map(lambda mmol: round(mmol, 2)) * 18.016, taken.glucose
    )
    umol = (taken.creatinine * 88.42).map(lambda umol: round(umol, 1)) * 0.01131
    taken["creatinine"] = np.where(number % 4 == 0, umol, taken.creatinine)
    week = taken[taken.day.between(0, 7)].groupby("patient")
    table["glucose"], table["creatinine"] = week.glucose.mean(), week.creatinine.max()
    table["temperature"] = taken[taken.day.between(0, 1)].groupby("patient").temperature.min()
    days = stays[stays.day.between(0, 1)]
    sepsis = days[days.apacheadmissiondx.fillna("").str.startswith("Sepsis")].patient
    # Sepsis without a published code is not mapped.
    table["sepsis"] = table.index.isin(sepsis).astype(int)
    arrest = days.apacheadmissiondx.fillna("").str.contains("^Rhythm disturbance|^Cardiac arrest")
    table["arrhythmia"] = table.index.isin(days[arrest].patient).astype(int)
    intensive = stays[(stays.unitstaytype != "stepdown/other") & stays.day.between(0, 30)]
    table["intensive_care_stays"] = intensive.groupby("patient").size().reindex(table.index)
    return table.drop(columns=["index_day", "birth"])
