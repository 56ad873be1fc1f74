"""Tables for `research.synthesis.judge`, cut at public edges and categories, a patient a row.

Adult, diabetes-130 and heart disease are the tables that the method was tuned on, by parts of their training records.
The held-out ones were looked at after it was frozen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from private_learning.records import Table
from research.accuracy import defaults_tables as tables
from study_protocol.queries.variables import Variable
from wardround.demo.scenarios import heart_disease

Cells = NDArray[np.int64]
# Of every hundred records, so many are held out where the data set names no test records of its own.
_HELD_OUT = 20
# Bins of a number of which only a range is known.
_BINS = 10
Cut = str | Sequence[float]
"""Categories `a|b|c`, a range `low..high` in bins of equal width, or edges."""
_MEDICINES = ("metformin", "glipizide", "glyburide", "pioglitazone", "rosiglitazone", "insulin")

ADULT: Mapping[str, Cut] = {
    "age": (25, 35, 45, 55, 65),
    "workclass": ("Private|Self-emp-not-inc|Self-emp-inc|Federal-gov|Local-gov|State-gov|Without-pay|Never-worked"),
    "weight": (100_000, 200_000, 300_000),
    "education": (
        "Bachelors|Some-college|11th|HS-grad|Prof-school|Assoc-acdm|Assoc-voc|9th|7th-8th|12th|Masters|1st-4th|10th|"
        "Doctorate|5th-6th|Preschool"
    ),
    # Primary school, years of high school, and degrees.
    "years": (5, 8, 9, 10, 11, 13, 14, 15),
    "marital": tables.ADULT["marital"],
    "occupation": (
        "Tech-support|Craft-repair|Other-service|Sales|Exec-managerial|Prof-specialty|Handlers-cleaners|"
        "Machine-op-inspct|Adm-clerical|Farming-fishing|Transport-moving|Priv-house-serv|Protective-serv|Armed-Forces"
    ),
    "relationship": tables.ADULT["relationship"],
    "race": tables.ADULT["race"],
    "sex": tables.ADULT["sex"],
    "gain": (1, 3000, 5000, 7000, 10_000, 15_000),
    "loss": (1, 1600, 1800, 2000, 2300),
    "hours": (20, 30, 35, 40, 41, 50, 60),
    "country": (
        "United-States|Mexico|Philippines|Germany|Canada|Puerto-Rico|El-Salvador|India|Cuba|England|Jamaica|South|China|"
        "Italy|Dominican-Republic|Vietnam|Guatemala|Japan|Poland|Columbia|Taiwan|Haiti|Iran|Portugal|Nicaragua|Peru|"
        "France|Greece|Ecuador|Ireland|Hong|Cambodia|Trinadad&Tobago|Laos|Thailand|Yugoslavia|"
        "Outlying-US(Guam-USVI-etc)|Honduras|Hungary|Scotland|Holand-Netherlands"
    ),
}
STAYS: Mapping[str, Cut] = {
    "race": "Caucasian|AfricanAmerican|Hispanic|Asian|Other",
    "gender": "Male|Female",
    "age": tables.STAYS["age"],
    "admission_type_id": "|".join(map(str, range(1, 9))),
    "admission_source_id": "1|2|3|4|5|6|7|9|17|20",
    "time_in_hospital": tuple(range(2, 15)),
    "medical_specialty": "InternalMedicine|Emergency/Trauma|Family/GeneralPractice|Cardiology|Surgery-General",
    "num_lab_procedures": tuple(range(10, 100, 10)),
    "num_procedures": tuple(range(1, 7)),
    "num_medications": (5, 8, 10, 12, 14, 16, 18, 20, 22, 25, 30, 40),
    "number_outpatient": (1, 2, 3, 5, 10),
    "number_emergency": (1, 2, 3, 5),
    "number_inpatient": (1, 2, 3, 4, 6),
    # Chapters of ICD-9. A code with a letter is missing.
    "diag_1": (140, 240, 250, 251, 390, 460, 520, 580, 630, 710, 780, 800),
    "number_diagnoses": tuple(range(2, 11)),
    "max_glu_serum": "None|Norm|>200|>300",
    "A1Cresult": "None|Norm|>7|>8",
    **dict.fromkeys(_MEDICINES, "No|Steady|Up|Down"),
    "change": "No|Ch",
    "diabetesMed": "No|Yes",
}
HEART: Mapping[str, Cut] = {
    "age": (40, 45, 50, 55, 60, 65),
    "sex": "0|1",
    "cp": "1|2|3|4",
    "trestbps": (110, 120, 130, 140, 150, 160),
    "chol": (200, 240, 280, 320),
    "fbs": "0|1",
    "restecg": "0|1|2",
    "thalach": (100, 120, 140, 160),
    "exang": "0|1",
    "oldpeak": (0.1, 1, 2, 3),
    "slope": "1|2|3",
    "ca": "0|1|2|3",
    "thal": "3|6|7",
}


@dataclass(frozen=True)
class Split:
    """train, test: (n, columns) cells of each variable. The last variable is the outcome, of categories 0 and 1."""

    variables: tuple[Variable, ...]
    train: Cells
    test: Cells

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(variable.labels) for variable in self.variables)

    @property
    def outcome(self) -> int:
        return len(self.variables) - 1

    def validation(self, seed: int) -> Split:
        """The training records alone, a quarter of them in place of the test set: what the method is tuned on."""
        order = np.random.default_rng([seed, 3]).permutation(len(self.train))
        test, train = np.split(order, [len(order) // 4])
        return Split(self.variables, self.train[train], self.train[test])


def variables_of(cuts: Mapping[str, Cut]) -> tuple[Variable, ...]:
    """The columns, and then the outcome."""
    return tuple(_variable(name, cut) for name, cut in {**cuts, "outcome": "0|1"}.items())


def _variable(column: str, cut: Cut) -> Variable:
    if not isinstance(cut, str):
        return Variable(column=column, edges=tuple(cut))
    text = cut.split(";")[0]
    if ".." in text:
        low, high = map(float, text.split(".."))
        return Variable(column=column, edges=tuple(np.linspace(low, high, _BINS + 1)[1:-1].tolist()))
    return Variable(column=column, categories=tuple(text.split("|")), missing_values=("?",))


def _cells(variables: Sequence[Variable], columns: Mapping[str, Any]) -> Cells:
    records = Table.of({variable.column: columns[variable.column] for variable in variables})
    return np.column_stack([variable.places(records.columns) for variable in variables])


def _split(cuts: Mapping[str, Cut], columns: Mapping[str, Any], labels: Any, seed: int) -> Split:
    variables = variables_of(cuts)
    cells = _cells(variables, {**columns, "outcome": np.asarray(labels, np.float64)})
    order = np.random.default_rng(seed).permutation(len(cells))
    test, train = np.split(order, [len(cells) * _HELD_OUT // 100])
    return Split(variables, cells[train], cells[test])


def _adult(_: int) -> Split:
    variables = variables_of(ADULT)
    frames = [tables.census(name) for name in tables.ADULT_FILES]
    parts = [
        _cells(variables, dict(frame) | {"outcome": frame["income"].str.startswith(">50K").to_numpy(np.float64)})
        for frame in frames
    ]
    return Split(variables, *parts)


def _stays(seed: int) -> Split:
    frame = tables.stays()
    columns = dict(frame) | {"diag_1": pd.to_numeric(frame["diag_1"], errors="coerce")}
    return _split(STAYS, columns, frame["readmitted"] != "NO", seed)


def _heart(seed: int) -> Split:
    scenario, variables = heart_disease(seed), variables_of(HEART)
    parts = [table for table in (*scenario.hospitals.values(), scenario.evaluation) if isinstance(table, Table)]
    cells = [_cells(variables, {**part.columns, "outcome": part.columns["disease"]}) for part in parts]
    return Split(variables, np.concatenate(cells[:-1]), cells[-1])


def _held_out(cuts: Mapping[str, Cut], load: Callable[[], tuple[Any, ...]]) -> Callable[[int], Split]:
    return lambda seed: _split(cuts, *load()[:2], seed)


TUNED: Mapping[str, Callable[[int], Split]] = {"adult": _adult, "diabetes-130": _stays, "heart": _heart}
HELD_OUT: Mapping[str, Callable[[int], Split]] = {
    "abalone": _held_out(tables.ABALONE, tables.of_abalone(10)),
    "pneumonia": _held_out(tables.SQUARES, tables.pneumonia),
    "eICU": _held_out(
        tables.INTENSIVE,
        tables.of_intensive(tables.INTENSIVE, lambda frame: frame["hospitaldischargestatus"] == "Expired"),
    ),
    "breast cancer": _held_out(tables.CELLS, tables.cells),
    "progression": _held_out(tables.PROGRESSION, tables.of_bundle("diabetes", tables.PROGRESSION)),
}
SPLITS = {**TUNED, **HELD_OUT}
