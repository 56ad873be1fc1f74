"""Data sets for `research.accuracy.defaults`: tables as the task logistic-regression reads them, dealt to hospitals.

Ranges are written down from what is generally known of the measurements or from a data set's published summary; none
is fitted here. A case's `family` names its records: cases of one family are left out together.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from private_learning.records import Table
from private_learning.tasks.columns import encode_columns, read_columns
from wardround.demo.scenarios import BREAST_CANCER, HEART_DISEASE, DataMissing, breast_cancer, data_folder
from wardround.demo.scenarios import heart_disease as heart_disease_scenario

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]
HELD_OUT = 0.2


@dataclass(frozen=True)
class SiteSplit:
    """One dealing. inputs: encoded columns and a last column of ones; site: whose record each training record is."""

    inputs: Floats
    labels: Labels
    site: Labels
    test_inputs: Floats
    test_labels: Labels


@dataclass(frozen=True)
class TableCase:
    """columns: of the table, before they are encoded; classes: values of the label; split: by its seed."""

    name: str
    family: str
    about: str
    columns: int
    classes: int
    split: Callable[[int], SiteSplit]


def _encoded(frame: Mapping[str, Any], described: Mapping[str, str]) -> Floats:
    columns = read_columns({f"column.{name}": text for name, text in described.items()})
    values = {name: frame[name] for name in described}
    inputs = cast("Floats", encode_columns(columns, values))
    return np.column_stack([inputs, np.ones(len(inputs))])


def _dealt(inputs: Floats, labels: Labels, seed: int, hospitals: int, records: int | None) -> SiteSplit:
    """At random: a test set, and hospitals of equal size; records: of one hospital, None: all there are."""
    order = np.random.default_rng([seed, 7]).permutation(len(labels))
    held_out = max(round(HELD_OUT * len(labels)), 1)
    each = records or (len(labels) - held_out) // hospitals
    # A large test set costs time and shows nothing more.
    test, train = order[: min(held_out, 8_000)], order[held_out : held_out + hospitals * each]
    site = np.arange(len(train)) % hospitals
    return SiteSplit(inputs[train], labels[train], site, inputs[test], labels[test])


def _random_case(
    name: str,
    about: str,
    described: Mapping[str, str],
    load: Callable[[], tuple[Mapping[str, Any], Labels]],
    *,
    hospitals: int,
    records: int | None = None,
    classes: int = 2,
    family: str | None = None,
) -> TableCase:
    @cache
    def encoded() -> tuple[Floats, Labels]:
        frame, labels = load()
        return _encoded(frame, described), labels

    def split(seed: int) -> SiteSplit:
        return _dealt(*encoded(), seed, hospitals, records)

    return TableCase(name, family or name, about, len(described), classes, split)


def _site_case(
    name: str,
    about: str,
    described: Mapping[str, str],
    load: Callable[[], tuple[Mapping[str, Any], Labels, Labels]],
    *,
    family: str,
) -> TableCase:
    """The site is the split; a fifth of each site's patients is the test set."""

    @cache
    def encoded() -> tuple[Floats, Labels, Labels]:
        frame, labels, site = load()
        return _encoded(frame, described), labels, site

    def split(seed: int) -> SiteSplit:
        inputs, labels, site = encoded()
        order = np.random.default_rng([seed, 7]).permutation(len(labels))
        held_out, remaining = list[int](), list[int]()
        for number in np.unique(site):
            site_rows = [int(row) for row in order if site[row] == number]
            held_out += site_rows[: len(site_rows) // 5]
            remaining += site_rows[len(site_rows) // 5 :]
        return SiteSplit(inputs[remaining], labels[remaining], site[remaining], inputs[held_out], labels[held_out])

    return TableCase(name, family, about, len(described), 2, split)


def _scenario_case(
    name: str, family: str, about: str, described: Mapping[str, str], make: Callable[[int], Any]
) -> TableCase:
    def split(seed: int) -> SiteSplit:
        scenario = make(seed)
        label = scenario.task_parameters["label"]
        tables = [cast("Table", records) for records in scenario.hospitals.values()]
        site = np.concatenate([np.full(len(table), number) for number, table in enumerate(tables)])
        inputs = np.concatenate([_encoded(table.columns, described) for table in tables])
        labels = np.concatenate([table.numbers(label) for table in tables]).astype(np.int64)
        test = cast("Table", scenario.evaluation)
        return SiteSplit(inputs, labels, site, _encoded(test.columns, described), test.numbers(label).astype(np.int64))

    return TableCase(name, family, about, len(described), 2, split)


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise DataMissing(f"{path} is missing: set WARDROUND_DATA to the folder that holds {path.parent.name}/")
    return path


_ABALONE = {
    "sex": "M|F|I",
    **dict.fromkeys(("length", "diameter"), "0..0.8"),
    "height": "0..0.3",
    "whole": "0..3",
    "shucked": "0..1.5",
    "viscera": "0..0.8",
    "shell": "0..1",
}


def _abalone() -> tuple[Mapping[str, Any], Labels]:
    path = _existing(data_folder() / "abalone" / "abalone.data")
    frame = pd.read_csv(path, names=[*_ABALONE, "rings"])
    return {name: frame[name].to_numpy() for name in _ABALONE}, (frame["rings"] >= 10).to_numpy(np.int64)


_ADULT_NAMES = (
    *("age", "workclass", "weight", "education", "years", "marital", "occupation", "relationship", "race", "sex"),
    *("gain", "loss", "hours", "country", "income"),
)
_ADULT = {
    "age": "17..90",
    "years": "1..16",
    "hours": "1..99",
    "gain": "0..15000",
    "loss": "0..2500",
    "sex": "Female|Male",
    "race": "White|Black|Asian-Pac-Islander|Amer-Indian-Eskimo|Other",
    "marital": "Married-civ-spouse|Never-married|Divorced|Separated|Widowed|Married-spouse-absent|Married-AF-spouse",
    "relationship": "Husband|Wife|Own-child|Not-in-family|Other-relative|Unmarried",
}


@cache
def _adult() -> tuple[Mapping[str, Any], Labels]:
    folder = data_folder() / "adult"
    parts = [
        pd.read_csv(_existing(folder / name), names=list(_ADULT_NAMES), skipinitialspace=True, skiprows=skipped)
        for name, skipped in (("adult.data", 0), ("adult.test", 1))
    ]
    frame = pd.concat(parts, ignore_index=True).dropna(subset=["income"])
    labels = frame["income"].str.startswith(">50K").to_numpy(dtype=np.int64)
    return {name: frame[name].to_numpy() for name in _ADULT}, labels


_STAYS = {
    "time_in_hospital": "1..14",
    "num_lab_procedures": "1..100",
    "num_procedures": "0..6",
    "num_medications": "1..40",
    "number_outpatient": "0..5",
    "number_emergency": "0..5",
    "number_inpatient": "0..5",
    "number_diagnoses": "1..9",
    "gender": "Female|Male; missing",
    "insulin": "No|Steady|Up|Down",
    "change": "No|Ch",
    "diabetesMed": "No|Yes",
    "age": "|".join(f"[{low}-{low + 10})" for low in range(0, 100, 10)),
}


@cache
def _stays() -> tuple[Mapping[str, Any], Labels]:
    """First stays only, one record a patient; whether the patient came back at all."""
    archive = zipfile.ZipFile(_existing(data_folder() / "diabetes_130_hospitals" / "dataset_diabetes.zip"))
    with archive.open("dataset_diabetes/diabetic_data.csv") as file:
        frame = pd.read_csv(file, low_memory=False, keep_default_na=False)
    frame = frame.sort_values("encounter_id").drop_duplicates("patient_nbr")
    frame: Any = frame[frame["gender"].isin(["Female", "Male"])]
    labels = (frame["readmitted"] != "NO").to_numpy(dtype=np.int64)
    return {name: frame[name].to_numpy() for name in _STAYS}, labels


_INTENSIVE = {
    "age": "18..90; missing=65",
    "gender": "Female|Male; missing",
    "eyes": "1..4; missing=4",
    "motor": "1..6; missing=6",
    "verbal": "1..5; missing=5",
    "intubated": "0..1",
    "heartrate": "30..180; missing=90",
    "meanbp": "30..140; missing=80",
    "respiratoryrate": "5..50; missing=20",
    "temperature": "34..40; missing=37",
    "wbc": "0..30; missing=10",
    "sodium": "120..155; missing=138",
    "hematocrit": "15..50; missing=35",
    "creatinine": "0..6; missing=1",
    "bun": "0..100; missing=18",
    "glucose": "50..400; missing=130",
    "albumin": "1..5; missing=3",
}


@cache
def _intensive() -> Any:
    """First stays of known region, one record a patient, as one frame."""
    folder = data_folder() / "eicu_demo"
    read = {name: pd.read_csv(_existing(folder / f"{name}.csv.gz")) for name in ("patient", "hospital", "apacheapsvar")}
    predicted = pd.read_csv(_existing(folder / "apachepredvar.csv.gz"))[["patientunitstayid", "activetx"]]
    frame = read["apacheapsvar"].merge(
        read["patient"][["patientunitstayid", "uniquepid", "hospitalid", "age", "gender", "hospitaldischargestatus"]],
        on="patientunitstayid",
    )
    frame = frame.merge(read["hospital"][["hospitalid", "region"]], on="hospitalid").merge(predicted)
    frame = frame.sort_values("patientunitstayid").drop_duplicates("uniquepid")
    frame = frame.dropna(subset=["region", "hospitaldischargestatus"])
    frame["age"] = pd.to_numeric(frame["age"].replace("> 89", "90"), errors="coerce")
    frame["gender"] = frame["gender"].where(frame["gender"].isin(["Female", "Male"]), None)
    measured = [name for name in _INTENSIVE if name not in ("age", "gender", "intubated")]
    frame[measured] = frame[measured].where(frame[measured] != -1)
    return frame


def _of_intensive(outcome: Callable[[Any], Any]) -> Callable[[], tuple[Mapping[str, Any], Labels, Labels]]:
    def load() -> tuple[Mapping[str, Any], Labels, Labels]:
        frame = _intensive()
        site = pd.Categorical(frame["region"]).codes.astype(np.int64)
        values = {name: frame[name].to_numpy() for name in _INTENSIVE}
        return values, np.asarray(outcome(frame), np.int64), site

    return load


def _bundled(name: str) -> tuple[Any, list[str]]:
    import sklearn.datasets

    # Unscaled: in the units of the measurements, whose ranges are written down below.
    keywords = {"scaled": False} if name == "diabetes" else {}
    bunch: Any = getattr(sklearn.datasets, f"load_{name}")(**keywords)
    return bunch, [str(column) for column in getattr(bunch, "feature_names", [])]


_WINE = {
    "alcohol": "11..15",
    "malic_acid": "0.5..6",
    "ash": "1..3.5",
    "alcalinity_of_ash": "10..30",
    "magnesium": "70..165",
    "total_phenols": "0.5..4",
    "flavanoids": "0..5.5",
    "nonflavanoid_phenols": "0..0.7",
    "proanthocyanins": "0..4",
    "color_intensity": "1..13",
    "hue": "0.4..1.8",
    "od280/od315_of_diluted_wines": "1..4",
    "proline": "250..1700",
}
_PROGRESSION = {
    "age": "18..80",
    "sex": "1|2",
    "bmi": "18..43",
    "bp": "60..135",
    "s1": "95..305",
    "s2": "40..245",
    "s3": "20..100",
    "s4": "2..9",
    "s5": "3..6.2",
    "s6": "55..125",
}
_IRIS = {"sepal length (cm)": "4..8", "sepal width (cm)": "2..4.5", "petal length (cm)": "1..7"}
_IRIS |= {"petal width (cm)": "0..2.5"}
_DIGITS = {f"pixel_{row}_{column}": "0..16" for row in range(8) for column in range(8)}


def _of_bundle(name: str, described: Mapping[str, str]) -> Callable[[], tuple[Mapping[str, Any], Labels]]:
    def load() -> tuple[Mapping[str, Any], Labels]:
        bunch, names = _bundled(name)
        places = {column: place for place, column in enumerate(names)}
        labels = np.asarray(bunch.target)
        # Progression above 140, its published median.
        labels = (labels > 140).astype(np.int64) if name == "diabetes" else labels.astype(np.int64)
        return {column: bunch.data[:, places[column]] for column in described}, labels

    return load


CASES = {
    case.name: case
    for case in (
        _scenario_case(
            "heart disease",
            "heart disease",
            "738 patients, four real hospitals",
            HEART_DISEASE,
            heart_disease_scenario,
        ),
        _scenario_case(
            "breast cancer",
            "breast cancer",
            "455 patients, four hospitals by size of tumour",
            BREAST_CANCER,
            breast_cancer,
        ),
        _random_case("abalone", "8 sites of 400", _ABALONE, _abalone, hospitals=8, records=400),
        _random_case("abalone, many", "60 sites of 50", _ABALONE, _abalone, hospitals=60, records=50, family="abalone"),
        _random_case("adult, small", "4 sites of 250", _ADULT, _adult, hospitals=4, records=250, family="adult"),
        _random_case("adult, many", "40 sites of 50", _ADULT, _adult, hospitals=40, records=50, family="adult"),
        _random_case("adult", "10 sites of 1,000", _ADULT, _adult, hospitals=10, records=1000, family="adult"),
        _random_case("diabetes-130", "6 hospitals of 500", _STAYS, _stays, hospitals=6, records=500),
        _site_case(
            "eICU, death",
            "four regions, died in hospital",
            _INTENSIVE,
            _of_intensive(lambda frame: frame["hospitaldischargestatus"] == "Expired"),
            family="eICU",
        ),
        _site_case(
            "eICU, treated",
            "four regions, active treatment on day 1",
            _INTENSIVE,
            _of_intensive(lambda frame: frame["activetx"] == 1),
            family="eICU",
        ),
        _random_case(
            "digits", "5 sites of 287", _DIGITS, _of_bundle("digits", _DIGITS), hospitals=5, records=287, classes=10
        ),
        _random_case("progression", "4 clinics of 88", _PROGRESSION, _of_bundle("diabetes", _PROGRESSION), hospitals=4),
        _random_case("wine", "4 sites of 35", _WINE, _of_bundle("wine", _WINE), hospitals=4, classes=3),
        _random_case("iris", "4 sites of 30", _IRIS, _of_bundle("iris", _IRIS), hospitals=4, classes=3),
    )
}
