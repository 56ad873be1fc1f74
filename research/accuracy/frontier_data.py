"""Six data sets for `research.accuracy.frontier`: features within public ranges, a column of ones, a split per seed."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from private_learning.records import read_idx
from research.accuracy.accuracy_data import WORKLOADS
from wardround.demo.scenarios import DataMissing, data_folder

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
Pair = tuple[Floats, Labels]
# Of every hundred records, so many are held out where the data set names no test records of its own.
_HELD_OUT = 20
_ADULT = (
    *("age", "workclass", "weight", "education", "years", "marital", "occupation", "relationship", "race", "sex"),
    *("gain", "loss", "hours", "country", "income"),
)
_ADULT_RANGES = {"age": (17, 90), "years": (1, 16), "hours": (1, 99)}
_ADULT_KINDS = ("workclass", "marital", "occupation", "relationship", "race", "sex")
_STAY_RANGES = {
    "time_in_hospital": (1, 14),
    "num_lab_procedures": (1, 100),
    "num_procedures": (0, 6),
    "num_medications": (1, 40),
    "number_outpatient": (0, 5),
    "number_emergency": (0, 5),
    "number_inpatient": (0, 5),
    "number_diagnoses": (1, 9),
}
_STAY_KINDS = ("race", "gender", "age", "A1Cresult", "max_glu_serum", "insulin", "change", "diabetesMed")


@dataclass(frozen=True)
class DataSet:
    """One row of the table.

    pace           learning rate of 20 full-batch steps at clip norm 1; found by trial, on seeds that are not reported
    least_epsilon  of the settings' ladder, which doubles five times: about where training starts to feel the noise
    """

    about: str
    load: Callable[[int], tuple[Pair, Pair]]
    pace: float
    least_epsilon: float


def _with_ones(inputs: npt.NDArray[Any]) -> Floats:
    return np.column_stack([inputs, np.ones(len(inputs))]).astype(np.float32)


def _of_workload(name: str) -> Callable[[int], tuple[Pair, Pair]]:
    def load(seed: int) -> tuple[Pair, Pair]:
        split = WORKLOADS[name].split(seed)
        return (
            (_with_ones(split.inputs.numpy()), split.targets.numpy().astype(np.int64)),
            (_with_ones(split.test_inputs.numpy()), split.test_targets.numpy().astype(np.int64)),
        )

    return load


def _held_out(inputs: Floats, labels: Labels, seed: int) -> tuple[Pair, Pair]:
    order = np.random.default_rng(seed).permutation(len(labels))
    test, train = np.split(order, [len(labels) * _HELD_OUT // 100])
    return (inputs[train], labels[train]), (inputs[test], labels[test])


def _scaled(frame: Any, ranges: Mapping[str, tuple[float, float]]) -> npt.NDArray[Any]:
    """Columns clipped to their public range and moved to [−1, 1]."""
    columns = [
        np.clip((frame[name].to_numpy(dtype=float) - low) / (high - low), 0, 1) * 2 - 1
        for name, (low, high) in ranges.items()
    ]
    return np.column_stack(columns)


def _features(frame: Any, ranges: Mapping[str, tuple[float, float]], kinds: tuple[str, ...]) -> Floats:
    import pandas as pd

    indicators = pd.get_dummies(frame[list(kinds)].astype(str)).to_numpy(dtype=float)
    return _with_ones(np.column_stack([_scaled(frame, ranges), indicators]))


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise DataMissing(f"{path} is missing: set WARDROUND_DATA to the folder that holds {path.parent.name}/")
    return path


@lru_cache(maxsize=1)
def _adult() -> Pair:
    import pandas as pd

    folder = data_folder() / "adult"
    parts = [
        pd.read_csv(_existing(folder / name), names=list(_ADULT), skipinitialspace=True, skiprows=skipped)
        for name, skipped in (("adult.data", 0), ("adult.test", 1))
    ]
    frame = pd.concat(parts, ignore_index=True).dropna(subset=["income"])
    labels = frame["income"].str.startswith(">50K").to_numpy(dtype=np.int64)
    return _features(frame, _ADULT_RANGES, _ADULT_KINDS), labels


@lru_cache(maxsize=1)
def _stays() -> Pair:
    """First stays only, one record a patient; whether the patient came back at all."""
    import pandas as pd

    archive = zipfile.ZipFile(_existing(data_folder() / "diabetes_130_hospitals" / "dataset_diabetes.zip"))
    with archive.open("dataset_diabetes/diabetic_data.csv") as file:
        frame = pd.read_csv(file, low_memory=False, keep_default_na=False)
    frame = frame.sort_values("encounter_id").drop_duplicates("patient_nbr")
    labels = (frame["readmitted"] != "NO").to_numpy(dtype=np.int64)
    return _features(frame, _STAY_RANGES, _STAY_KINDS), labels


@lru_cache(maxsize=1)
def _chests() -> Pair:
    """All three parts of the data set; pixels moved to [−1/14, 1/14], so that an image's norm is at most 2."""
    path = _existing(data_folder() / "pneumoniamnist" / "pneumoniamnist_rebuilt.npz")
    with np.load(path) as arrays:
        images = np.concatenate([arrays[f"{name}_images"] for name in ("train", "val", "test")])
        labels = np.concatenate([arrays[f"{name}_labels"] for name in ("train", "val", "test")])
    return _with_ones((images.reshape(len(images), -1) / 255 * 2 - 1) / 14), labels.ravel().astype(np.int64)


@lru_cache(maxsize=1)
def _digits() -> tuple[Pair, Pair]:
    folder = data_folder() / "mnist"

    def part(name: str) -> Pair:
        images = read_idx(_existing(folder / f"{name}-images-idx3-ubyte.gz"))
        labels = read_idx(_existing(folder / f"{name}-labels-idx1-ubyte.gz"))
        # 0.13 is about the grey of handwriting on paper: a public constant, not this data's mean.
        pixels = images.reshape(len(images), -1).astype(np.float32) / 255 - np.float32(0.13)
        return _with_ones(pixels / np.linalg.norm(pixels, axis=1, keepdims=True)), labels.astype(np.int64)

    return part("train"), part("t10k")


def _some_digits(seed: int) -> tuple[Pair, Pair]:
    (inputs, labels), test = _digits()
    rows = np.random.default_rng(seed).permutation(len(labels))[:20_000]
    return (inputs[rows], labels[rows]), test


DATA: Mapping[str, DataSet] = {
    "breast-cancer": DataSet("455 of 569 patients, 10 measurements", _of_workload("breast-cancer"), 10, 0.25),
    "heart-disease": DataSet("738 of 920 patients of four hospitals", _of_workload("heart-disease"), 7, 0.25),
    "pneumonia": DataSet("4,685 of 5,856 chest X-rays, pixels", lambda seed: _held_out(*_chests(), seed), 30, 0.1),
    "mnist": DataSet("20,000 of 60,000 digits, pixels of unit norm", _some_digits, 40, 0.05),
    "adult": DataSet("39,074 of 48,842 persons, income", lambda seed: _held_out(*_adult(), seed), 20, 0.025),
    "diabetes-130": DataSet(
        "57,215 of 71,518 patients, any later stay", lambda seed: _held_out(*_stays(), seed), 10, 0.025
    ),
}
