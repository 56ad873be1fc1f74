"""Tables for `research.accuracy.defaults`: columns described by public numbers, and what they are read from.

Ranges are written down from what is generally known of the measurements or from a data set's published summary; none
is fitted here.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from private_learning.records import read_idx
from wardround.demo.scenarios import DataMissing, data_folder

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise DataMissing(f"{path} is missing: set WARDROUND_DATA to the folder that holds {path.parent.name}/")
    return path


ABALONE = {
    "sex": "M|F|I",
    **dict.fromkeys(("length", "diameter"), "0..0.8"),
    "height": "0..0.3",
    "whole": "0..3",
    "shucked": "0..1.5",
    "viscera": "0..0.8",
    "shell": "0..1",
}


def of_abalone(rings: int) -> Callable[[], tuple[Mapping[str, Any], Labels]]:
    """Whether a shell has at least so many rings."""

    def load() -> tuple[Mapping[str, Any], Labels]:
        path = _existing(data_folder() / "abalone" / "abalone.data")
        frame = pd.read_csv(path, names=[*ABALONE, "rings"])
        return {name: frame[name].to_numpy() for name in ABALONE}, (frame["rings"] >= rings).to_numpy(np.int64)

    return load


_ADULT_NAMES = (
    *("age", "workclass", "weight", "education", "years", "marital", "occupation", "relationship", "race", "sex"),
    *("gain", "loss", "hours", "country", "income"),
)
ADULT_FILES = ("adult.data", "adult.test")
ADULT = {
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
def census(name: str) -> Any:
    """One of the two files as a frame."""
    path = _existing(data_folder() / "adult" / name)
    frame = pd.read_csv(path, names=list(_ADULT_NAMES), skipinitialspace=True, skiprows=int(name == ADULT_FILES[1]))
    return frame.dropna(subset=["income"])


@cache
def adult() -> tuple[Mapping[str, Any], Labels]:
    frame = pd.concat([census(name) for name in ADULT_FILES], ignore_index=True)
    labels = frame["income"].str.startswith(">50K").to_numpy(dtype=np.int64)
    return {name: frame[name].to_numpy() for name in ADULT}, labels


STAYS = {
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
def stays() -> Any:
    """First stays only, one record a patient, as one frame."""
    archive = zipfile.ZipFile(_existing(data_folder() / "diabetes_130_hospitals" / "dataset_diabetes.zip"))
    with archive.open("dataset_diabetes/diabetic_data.csv") as file:
        frame = pd.read_csv(file, low_memory=False, keep_default_na=False)
    frame = frame.sort_values("encounter_id").drop_duplicates("patient_nbr")
    return frame[frame["gender"].isin(["Female", "Male"])]


def of_stays(
    described: Mapping[str, str], outcome: Callable[[Any], Any]
) -> Callable[[], tuple[Mapping[str, Any], Labels]]:
    def load() -> tuple[Mapping[str, Any], Labels]:
        frame = stays()
        return {name: frame[name].to_numpy() for name in described}, np.asarray(outcome(frame), np.int64)

    return load


INTENSIVE = {
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


# Full ranges of an intensive-care laboratory, much wider than what most patients have.
LABORATORY = {
    "wbc": "0..100; missing=10",
    "sodium": "100..180; missing=138",
    "hematocrit": "10..65; missing=35",
    "creatinine": "0..25; missing=1",
    "bun": "0..250; missing=18",
    "glucose": "0..1000; missing=130",
    "albumin": "1..6; missing=3",
    "bilirubin": "0..60; missing=0.7",
    "urine": "0..10000; missing=1500",
    "pao2": "20..600; missing=100",
    "pco2": "5..150; missing=40",
    "ph": "6.8..7.8; missing=7.4",
    "fio2": "20..100; missing=40",
}


@cache
def intensive() -> Any:
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
    measured = [name for name in {**INTENSIVE, **LABORATORY} if name not in ("age", "gender", "intubated")]
    frame[measured] = frame[measured].where(frame[measured] != -1)
    return frame


def of_intensive(
    described: Mapping[str, str], outcome: Callable[[Any], Any]
) -> Callable[[], tuple[Mapping[str, Any], Labels, Labels]]:
    def load() -> tuple[Mapping[str, Any], Labels, Labels]:
        frame = intensive()
        site = pd.Categorical(frame["region"]).codes.astype(np.int64)
        values = {name: frame[name].to_numpy() for name in described}
        return values, np.asarray(outcome(frame), np.int64), site

    return load


def _bundled(name: str) -> tuple[Any, list[str]]:
    import sklearn.datasets

    # Unscaled: in the units of the measurements, whose ranges are written down below.
    keywords = {"scaled": False} if name == "diabetes" else {}
    bunch: Any = getattr(sklearn.datasets, f"load_{name}")(**keywords)
    return bunch, [str(column) for column in getattr(bunch, "feature_names", [])]


WINE = {
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
PROGRESSION = {
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
IRIS = {"sepal length (cm)": "4..8", "sepal width (cm)": "2..4.5", "petal length (cm)": "1..7"}
IRIS |= {"petal width (cm)": "0..2.5"}
DIGITS = {f"pixel_{row}_{column}": "0..16" for row in range(8) for column in range(8)}


def of_bundle(name: str, described: Mapping[str, str]) -> Callable[[], tuple[Mapping[str, Any], Labels]]:
    def load() -> tuple[Mapping[str, Any], Labels]:
        bunch, names = _bundled(name)
        places = {column: place for place, column in enumerate(names)}
        labels = np.asarray(bunch.target)
        # Progression above 140, its published median.
        labels = (labels > 140).astype(np.int64) if name == "diabetes" else labels.astype(np.int64)
        return {column: bunch.data[:, places[column]] for column in described}, labels

    return load


CELLS = {
    name: text
    for part, texts in {
        "mean": "5..40 5..50 30..260 50..3000 0.04..0.2 0..0.5 0..0.6 0..0.3 0.1..0.4 0.04..0.12",
        "error": "0..5 0..6 0..30 0..700 0..0.05 0..0.2 0..0.5 0..0.08 0..0.1 0..0.04",
        "worst": "5..50 5..60 30..350 50..6000 0.05..0.3 0..1.5 0..1.6 0..0.4 0.1..0.8 0.04..0.25",
    }.items()
    for name, text in zip(
        (
            f"{part} {measure}"
            for measure in (
                *("radius", "texture", "perimeter", "area", "smoothness", "compactness", "concavity"),
                *("points", "symmetry", "dimension"),
            )
        ),
        texts.split(),
        strict=True,
    )
}


def cells() -> tuple[Mapping[str, Any], Labels]:
    path = _existing(data_folder() / "breast_cancer_wdbc" / "wdbc.data")
    frame = pd.read_csv(path, names=["id", "diagnosis", *CELLS])
    return {name: frame[name].to_numpy() for name in CELLS}, (frame["diagnosis"] == "M").to_numpy(np.int64)


_DRUGS = ("metformin", "repaglinide", "glimepiride", "glipizide", "glyburide", "pioglitazone", "rosiglitazone")
TREATMENT = {
    **{name: text for name, text in STAYS.items() if name not in ("time_in_hospital", "diabetesMed", "change")},
    **dict.fromkeys(_DRUGS, "No|Steady|Up|Down"),
    "race": "Caucasian|AfricanAmerican|Hispanic|Other|Asian; missing; missing-values=?",
    "A1Cresult": "None|Norm|>7|>8",
    "max_glu_serum": "None|Norm|>200|>300",
}
# Counts of a stay alone, in the full ranges of the published table.
COUNTS = {
    "time_in_hospital": "1..14",
    "num_lab_procedures": "1..132",
    "num_procedures": "0..6",
    "num_medications": "1..81",
    "number_outpatient": "0..42",
    "number_emergency": "0..76",
    "number_inpatient": "0..21",
    "number_diagnoses": "1..16",
}


def _images(pixels: Any, size: int) -> Floats:
    """Means of squares of the images, in 0 … 255: (n, size²)."""
    each = pixels.shape[1] // size
    means = pixels.reshape(len(pixels), size, each, size, each).mean(axis=(2, 4))
    return means.reshape(len(pixels), -1)


SQUARES = {f"square_{place:02}": "0..255" for place in range(49)}


def pneumonia() -> tuple[Mapping[str, Any], Labels]:
    path = _existing(data_folder() / "pneumoniamnist" / "pneumoniamnist_rebuilt.npz")
    with np.load(path) as arrays:
        squares = _images(arrays["train_images"], 7)
        labels = arrays["train_labels"].reshape(-1).astype(np.int64)
    return dict(zip(SQUARES, squares.T, strict=True)), labels


def written_digits() -> tuple[Mapping[str, Any], Labels]:
    folder = data_folder() / "mnist"
    images = read_idx(_existing(folder / "t10k-images-idx3-ubyte.gz"))
    labels = read_idx(_existing(folder / "t10k-labels-idx1-ubyte.gz"))
    return dict(zip(SQUARES, _images(np.asarray(images, np.float64), 7).T, strict=True)), labels.astype(np.int64)


TESTS = {
    name: f"0..{top}"
    for name, top in {
        "alt": 3000,
        "ast": 3000,
        "ggt": 2000,
        "alp": 1500,
        "bilirubin": 400,
        "crp": 500,
        "ferritin": 5000,
        "urea": 60,
        "creatinine": 1500,
        "leucocytes": 100,
        "neutrophils": 80,
        "lymphocytes": 30,
        "platelets": 1200,
        "glucose": 50,
        "triglycerides": 30,
        "ldh": 5000,
        "ck": 20000,
        "d-dimer": 50,
        "troponin": 10000,
    }.items()
}
# Published medians of adults in hospital, and the standard deviation of the natural logarithm.
_MEDIANS = (25, 27, 32, 80, 10, 8, 150, 6, 80, 7.5, 5, 1.7, 240, 6, 1.4, 210, 110, 0.6, 12)
_SPREADS = (0.8, 0.7, 0.9, 0.5, 0.7, 1.4, 1.0, 0.5, 0.5, 0.4, 0.5, 0.5, 0.35, 0.35, 0.5, 0.4, 1.0, 1.0, 1.2)
# Groups whose tests rise together: liver, inflammation, kidney, cells, metabolism, damage.
_GROUPS = (0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 3, 3, 4, 4, 5, 5, 1, 5)


def of_tests(differences: bool) -> Callable[[], tuple[Mapping[str, Any], Labels]]:
    """1,151 made-up patients: 19 skewed tests of six groups, correlated by 0.8 in a group.

    differences  the outcome depends on how tests of one group differ. Otherwise on the groups' levels
    """

    def load() -> tuple[Mapping[str, Any], Labels]:
        random = np.random.default_rng(19)
        groups = np.array(_GROUPS)
        factors = random.standard_normal((1151, 6)) * np.sqrt(0.7) + random.standard_normal((1151, 1)) * np.sqrt(0.3)
        features = random.standard_normal((1151, 19))
        standard = np.sqrt(0.8) * factors[:, groups] + np.sqrt(0.2) * features
        values = np.asarray(_MEDIANS) * np.exp(np.asarray(_SPREADS) * standard)
        risk = features @ random.normal(size=19) / 2 if differences else factors @ random.normal(size=6) / 1.5
        labels = (random.random(1151) < 1 / (1 + np.exp(-1.5 * risk))).astype(np.int64)
        return dict(zip(TESTS, values.T, strict=True)), labels

    return load
