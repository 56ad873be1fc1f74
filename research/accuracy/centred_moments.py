"""Errors of moments with plain and with centred squares: python -m research.accuracy.centred_moments

One question of kind `moments` about all numbers of a data set, at ε 1 and δ 1e-5: its noise multiplier is 3.7306. Both
forms get the same standard normal draws, scaled by their own Δ, so that their difference is not chance. An error is the
root mean square distance of an estimate from the one without noise. The first estimates are compared with the program's
own answer. Ranges are public knowledge: they are not taken from the records.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from research.accuracy.survival_binning import NOISE, table
from study_protocol.queries.answer import NoisedSum
from study_protocol.queries.kinds.moments import Moments
from study_protocol.queries.variables import Indicator, Range
from wardround.demo.scenarios import DataMissing, data_folder

DRAWS, SEED = 4000, 20
# Draws whose estimates are compared with the program's answer.
COMPARED = 3
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NumericColumns:
    """A data set: how to read it, the public ranges of its numbers, and the categories of its yes-or-no columns."""

    about: str
    read: Callable[[], Any]
    ranges: Mapping[str, tuple[float, float]]
    indicators: Mapping[str, tuple[str, ...]]

    def question(self, *, centred: bool) -> Moments:
        """Return the question about all columns."""
        ranges = (Range(column=name, low=low, high=high) for name, (low, high) in self.ranges.items())
        indicators = (Indicator(column=name, categories=categories) for name, categories in self.indicators.items())
        return Moments(kind="moments", noise_multiplier=NOISE, numbers=(*ranges, *indicators), centred=centred)

    def patients(self) -> dict[str, NDArray[Any]]:
        """Return the columns, missing numbers as NaN."""
        frame = self.read()
        columns: dict[str, NDArray[Any]] = {
            name: np.array([_number(cell) for cell in frame[name]], np.float64) for name in self.ranges
        }
        return columns | {name: frame[name].astype(str).to_numpy(object) for name in self.indicators}


def _number(cell: object) -> float:
    try:
        return float(str(cell))
    except ValueError:
        return float("nan")


def _bytes_of(*parts: str) -> bytes:
    path = data_folder().joinpath(*parts)
    if not path.is_file():
        raise DataMissing(f"{path} is missing: set WARDROUND_DATA to the folder that holds {parts[0]}/")
    return path.read_bytes()


def _read_csv(content: bytes, **options: Any) -> Any:
    import pandas as pd

    return pd.read_csv(io.BytesIO(content), low_memory=False, **options)


def _read_table(*parts: str, names: tuple[str, ...]) -> Callable[[], Any]:
    return lambda: _read_csv(_bytes_of(*parts), names=list(names), skipinitialspace=True)


def _read_heart() -> Any:
    import pandas as pd

    sites = ("cleveland", "hungarian", "va", "switzerland")
    names = (*("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg"), *("thalach", "exang", "oldpeak"), *"abcd")
    parts = [_read_table("heart_disease_4_hospitals", f"processed.{site}.data", names=names)() for site in sites]
    return pd.concat(parts, ignore_index=True)


def _read_stays() -> Any:
    archive = zipfile.ZipFile(io.BytesIO(_bytes_of("diabetes_130_hospitals", "dataset_diabetes.zip")))
    frame = _read_csv(archive.read("dataset_diabetes/diabetic_data.csv"))
    # The first stay of every patient.
    return frame.sort_values("encounter_id").drop_duplicates("patient_nbr")


def _read_intensive_care() -> Any:
    stays, measured = (
        _read_csv(gzip.decompress(_bytes_of("eicu_demo", f"{name}.csv.gz"))) for name in ("patient", "apacheapsvar")
    )
    frame = stays.merge(measured, on="patientunitstayid").sort_values("patientunitstayid")
    # -1 is missing in this table.
    return frame.drop_duplicates("uniquepid").replace({"age": {"> 89": 90}}).replace(-1, np.nan)


_CELLS = tuple(f"{part} {name}" for part in ("mean", "error", "worst") for name in "abcdefghij")
_ABALONE = ("sex", "length", "diameter", "height", "whole", "shucked", "viscera", "shell", "rings")
_ADULT = (
    *("age", "workclass", "weight", "education", "years", "marital", "occupation", "relationship", "race", "sex"),
    *("gain", "loss", "hours", "country", "income"),
)
DATA: Mapping[str, NumericColumns] = {
    "breast-cancer": NumericColumns(
        "569 patients, 6 numbers and the diagnosis",
        _read_table("breast_cancer_wdbc", "wdbc.data", names=("id", "diagnosis", *_CELLS)),
        {
            "worst a": (9.0, 28.0),
            "worst b": (15.0, 40.0),
            "worst c": (60.0, 190.0),
            "worst d": (250.0, 2250.0),
            "worst e": (0.09, 0.18),
            "worst f": (0.05, 0.65),
        },
        {"diagnosis": ("M",)},
    ),
    "heart-disease": NumericColumns(
        "920 patients of four hospitals, 5 numbers and the sex",
        _read_heart,
        {
            "age": (30.0, 75.0),
            "trestbps": (100.0, 170.0),
            "chol": (150.0, 350.0),
            "thalach": (80.0, 190.0),
            "oldpeak": (0.0, 4.0),
        },
        {"sex": ("1",)},
    ),
    "eicu": NumericColumns(
        "first stays of patients in intensive care, 7 numbers and the sex",
        _read_intensive_care,
        {
            "age": (18.0, 90.0),
            "temperature": (33.0, 41.0),
            "respiratoryrate": (4.0, 60.0),
            "sodium": (120.0, 160.0),
            "heartrate": (30.0, 200.0),
            "meanbp": (30.0, 180.0),
            "hematocrit": (15.0, 60.0),
        },
        {"gender": ("Female",)},
    ),
    "abalone": NumericColumns(
        "4,177 animals, 5 numbers and the sex",
        _read_table("abalone", "abalone.data", names=_ABALONE),
        {
            "length": (0.0, 1.0),
            "diameter": (0.0, 1.0),
            "height": (0.0, 0.5),
            "whole": (0.0, 3.0),
            "rings": (1.0, 30.0),
        },
        {"sex": ("F",)},
    ),
    "adult": NumericColumns(
        "32,561 persons, 3 numbers and the sex",
        _read_table("adult", "adult.data", names=_ADULT),
        {"age": (17.0, 90.0), "years": (1.0, 16.0), "hours": (1.0, 99.0)},
        {"sex": ("Female",)},
    ),
    "diabetes-130": NumericColumns(
        "first stays of 71,518 patients, 4 numbers and the sex",
        _read_stays,
        {
            "time_in_hospital": (1.0, 14.0),
            "num_lab_procedures": (1.0, 100.0),
            "num_medications": (1.0, 40.0),
            "number_diagnoses": (1.0, 9.0),
        },
        {"gender": ("Female",)},
    ),
}


def estimates_of(question: Moments, sums: Floats) -> Floats:
    """Return means and standard deviations in the columns' units: (draws, 3m) sums to (draws, 2, m)."""
    patients, total, squares = np.moveaxis(sums.reshape(len(sums), -1, 3), 2, 0)
    middles, halves = (np.array([getattr(number, name) for number in question.numbers]) for name in ("middle", "half"))
    lows, highs = (np.array([getattr(number, name) for number in question.numbers]) for name in ("low", "high"))
    mean = total / patients
    variance = squares / patients + (0.5 if question.centred else 0.0) - mean**2
    deviation = np.sqrt(np.maximum(variance * patients / (patients - 1), 0.0))
    return np.stack([np.clip(middles + halves * mean, lows, highs), halves * deviation], axis=1)


def errors_of(question: Moments, patients: Mapping[str, NDArray[Any]], draws: Floats) -> Floats:
    """Return the root mean square errors of means and standard deviations from these draws, shape (2, m)."""
    grid = question.grid()
    exact: Floats = np.asarray(question.total(patients, grid.spacing) * grid.spacing, np.float64)
    std = grid.std * grid.spacing
    sums = exact + std * draws
    estimates, truth = estimates_of(question, sums), estimates_of(question, exact[None])[0]
    for row in range(COMPARED):
        answer = question.answer(NoisedSum(sums[row], std, row))
        answered = np.stack([table(answer, "mean"), table(answer, "standard-deviation")])
        np.testing.assert_allclose(answered, estimates[row], rtol=1e-9)
    return np.sqrt(((estimates - truth) ** 2).mean(axis=0))


def compare(name: str) -> dict[str, object]:
    """Return the errors of both forms on one data set, and how much smaller the centred ones are, in percent."""
    data = DATA[name]
    patients, plain, centred = data.patients(), data.question(centred=False), data.question(centred=True)
    draws = np.random.default_rng(SEED).standard_normal((DRAWS, plain.cells))
    errors = [errors_of(question, patients, draws) for question in (plain, centred)]
    change = 100 * (errors[1] / errors[0] - 1)
    columns = [number.column for number in plain.numbers]
    return {
        "data set": name,
        "about": data.about,
        "rows": len(next(iter(patients.values()))),
        "sensitivity": [plain.sensitivity, centred.sensitivity],
        "change of the error of means, %": dict(zip(columns, change[0].round(1).tolist(), strict=True)),
        "change of the error of deviations, %": dict(zip(columns, change[1].round(1).tolist(), strict=True)),
        "errors of means": [row[0].tolist() for row in errors],
        "errors of deviations": [row[1].tolist() for row in errors],
    }


def main() -> None:
    """Print a table of all data sets and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("research/benchmarks/results/centred_moments.json"))
    arguments = parser.parse_args()
    results = [compare(name) for name in DATA]
    for result in results:
        print(json.dumps({key: value for key, value in result.items() if not key.startswith("errors")}, indent=1))
    document = {"noise multiplier": NOISE, "draws": DRAWS, "seed": SEED, "data sets": results}
    arguments.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
