"""Abalone and Adult as the Bayesian tables take them: inputs in [−1, 1] by public ranges and words, two classes.

Abalone: is the animal older than its 9 rings say (Jälkö, Dikmen & Honkela 2016, whom the papers follow: age from
physical measurements, two classes)? Adult: an income above 50,000. Counts that reach over decades are cut into bands at
round numbers, so that a linear score can follow them. Ranges, words and bands are constants, written by somebody who
had looked at these public data sets: a study would take them from what its field knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from wardround.demo.scenarios import DataMissing, data_folder

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

_ABALONE = ("sex", "length", "diameter", "height", "whole", "shucked", "viscera", "shell", "rings")
_YOUNG = 9

_ADULT = (
    *("age", "work", "weight", "education", "years", "marital", "occupation", "relation", "race", "sex"),
    *("gain", "loss", "hours", "country", "income"),
)
_WORDS: Mapping[str, tuple[str, ...]] = {
    "work": ("Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov", "State-gov"),
    "marital": ("Married-civ-spouse", "Divorced", "Never-married", "Separated", "Widowed"),
    "occupation": (
        *("Exec-managerial", "Prof-specialty", "Craft-repair", "Adm-clerical", "Sales", "Other-service"),
        *("Machine-op-inspct", "Transport-moving", "Handlers-cleaners", "Farming-fishing", "Tech-support"),
        *("Protective-serv", "Priv-house-serv"),
    ),
    "relation": ("Husband", "Wife", "Own-child", "Not-in-family", "Unmarried", "Other-relative"),
}
_BANDS: Mapping[str, tuple[float, ...]] = {
    "age": (22, 25, 28, 31, 35, 40, 45, 50, 55, 60, 65),
    "years": (8, 9, 10, 11, 13, 14, 15),
    "hours": (20, 35, 40, 41, 46, 50, 56),
    "gain": (1, 3000, 5000, 7000, 10000),
    "loss": (1, 1600, 1820, 1980, 2160),
}


@dataclass(frozen=True)
class SurveyRecords:
    """inputs: (n, d) in [−1, 1], the constant 1 last. labels: (n,) 0 or 1."""

    inputs: Floats
    labels: Labels

    def __getitem__(self, rows: npt.NDArray[np.int64]) -> SurveyRecords:
        return SurveyRecords(self.inputs[rows], self.labels[rows])

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class SurveySplit:
    """Records that a run learns from, and others."""

    train: SurveyRecords
    test: SurveyRecords


def abalone(seed: int) -> SurveySplit:
    """Four fifths of 4,177 animals, drawn by the seed, and the rest."""
    return _dealt(_abalone(), seed)


def adult(seed: int) -> SurveySplit:
    """Four fifths of 48,842 persons, drawn by the seed, and the rest."""
    return _dealt(_adult(), seed)


def validation(split: SurveySplit, seed: int) -> SurveySplit:
    """A fifth of the training records instead of the test records."""
    return _dealt(split.train, 1_000_000 + seed)


def _dealt(records: SurveyRecords, seed: int) -> SurveySplit:
    order = np.random.default_rng(seed).permutation(len(records))
    test, train = np.split(order, [len(records) // 5])
    return SurveySplit(records[train], records[test])


@lru_cache(maxsize=1)
def _abalone() -> SurveyRecords:
    """Size (root of the weight), what shares of the weight are meat and shell, and whether it is an infant: the other
    measurements repeat these.
    """
    frame = _frame("abalone", {"abalone.data": 0}, _ABALONE)
    whole, shucked, shell = (frame[name].to_numpy(dtype=float) for name in ("whole", "shucked", "shell"))
    columns = [_scaled(np.cbrt(whole), 0.4, 1.3), _scaled(shucked / whole, 0.3, 0.6), _scaled(shell / whole, 0.2, 0.4)]
    columns.append((frame["sex"] == "I").to_numpy(dtype=float))
    return _records(columns, frame["rings"].to_numpy() > _YOUNG)


@lru_cache(maxsize=1)
def _adult() -> SurveyRecords:
    frame = _frame("adult", {"adult.data": 0, "adult.test": 1}, _ADULT).dropna(subset=["income"])
    columns = [(frame[name] == word).to_numpy(dtype=float) for name, words in _WORDS.items() for word in words]
    columns += [(frame["sex"] == "Male").to_numpy(dtype=float), (frame["race"] == "White").to_numpy(dtype=float)]
    columns += [(frame["country"] == "United-States").to_numpy(dtype=float)]
    for name, edges in _BANDS.items():
        band = np.searchsorted(edges, frame[name].to_numpy(dtype=float), side="right")
        columns += [(band == place).astype(float) for place in range(len(edges) + 1)]
    return _records(columns, frame["income"].str.startswith(">50K").to_numpy())


def _records(columns: list[Floats], label: npt.NDArray[Any]) -> SurveyRecords:
    return SurveyRecords(np.column_stack([*columns, np.ones(len(label))]), label.astype(np.int64))


def _scaled(values: Floats, low: float, high: float) -> Floats:
    return np.clip((values - low) / (high - low), 0, 1) * 2 - 1


def _frame(name: str, files: Mapping[str, int], columns: Any) -> Any:
    """The rows of all files below each other; `files`: name -> lines to pass over."""
    import pandas as pd

    folder = data_folder() / name
    if not folder.is_dir():
        raise DataMissing(f"{folder} is missing: set WARDROUND_DATA to the folder that holds {name}/")
    parts = [
        pd.read_csv(folder / file, names=list(columns), skipinitialspace=True, skiprows=passed)
        for file, passed in files.items()
    ]
    return pd.concat(parts, ignore_index=True)
