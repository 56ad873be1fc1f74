"""Three data sets, dealt to hospitals, with a declared evaluation set that no guarantee covers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from accounting.values import FloatArray
from private_learning.records import Examples, Table, read_heart_disease, read_idx
from study_protocol.cells import Column

# Public ranges of the ten "worst" measurements: rounded from the data set's published summary. A real study takes the
# ranges that its instruments and textbooks give.
BREAST_CANCER = {
    "worst radius": "9..28",
    "worst texture": "15..40",
    "worst perimeter": "60..190",
    "worst area": "250..2250",
    "worst smoothness": "0.09..0.18",
    "worst compactness": "0.05..0.65",
    "worst concavity": "0..0.75",
    "worst concave points": "0..0.25",
    "worst symmetry": "0.2..0.45",
    "worst fractal dimension": "0.06..0.13",
}
# Adult reference ranges; where three of the four hospitals did not measure, a public constant stands in.
HEART_DISEASE = {
    "age": "30..75",
    "sex": "0|1",
    "cp": "1|2|3|4",
    "trestbps": "100..170; missing=130",
    "chol": "150..350; missing=240",
    "fbs": "0..1; missing=0",
    "restecg": "0|1|2; missing",
    "thalach": "80..190; missing=140",
    "exang": "0..1; missing=0",
    "oldpeak": "0..4; missing=1",
    "slope": "1|2|3; missing",
    "ca": "0..3; missing=0",
    "thal": "3|6|7; missing",
}


HOSPITALS = ("university", "city", "county", "rural", "island", "harbour", "valley", "border")
# How far a patient may come to another hospital than her tumour's size says: a standard deviation, as a share of all.
OVERLAP = 0.1


class DataMissing(Exception):
    """The files are not there; the text says what to set."""


@dataclass(frozen=True, repr=False)
class Scenario:
    """hospitals: name -> its training records, in order of size. evaluation: declared, outside the guarantee."""

    name: str
    source: str
    split: str
    hospitals: Mapping[str, Table | Examples]
    evaluation: Table | Examples
    task: str
    task_parameters: Mapping[str, Any]

    @property
    def patients(self) -> int:
        """Patients whose records train the model."""
        return sum(len(records) for records in self.hospitals.values())


def breast_cancer(seed: int = 0, hospitals: int = 4, *, by_size: bool = True) -> Scenario:
    """569 patients of scikit-learn's Wisconsin diagnostic set, unevenly dealt to made-up hospitals.

    by_size  by case mix, as `by_tumour_size` says; else at random

    Raises:
        DataMissing: fewer than 4 hospitals or more than 8.
    """
    from sklearn.datasets import load_breast_cancer  # pyright: ignore[reportMissingTypeStubs]

    bunch = cast(Any, load_breast_cancer())
    columns = {str(name): bunch.data[:, i] for i, name in enumerate(bunch.feature_names) if name in BREAST_CANCER}
    # scikit-learn writes malignant as 0.
    table = Table.of({**columns, "malignant": 1 - bunch.target, "patient": np.arange(569)}, patient_column="patient")
    random = np.random.default_rng(seed)
    order = random.permutation(569)
    held_out, training = order[:114], order[114:]
    if not 4 <= hospitals <= len(HOSPITALS):
        raise DataMissing(f"{hospitals} hospitals: the 455 patients are split among 4 to {len(HOSPITALS)}")
    if by_size:
        shares = by_tumour_size(columns["worst radius"][training], _sizes(hospitals, len(training)), random)
    else:
        shares = np.split(np.arange(len(training)), np.cumsum(_sizes(hospitals, len(training)))[:-1])
    return Scenario(
        name="breast-cancer",
        source="Wisconsin diagnostic breast cancer, 569 patients (comes with scikit-learn)",
        split=f"dealt {'by size of tumour' if by_size else 'at random'} to {hospitals} made-up hospitals",
        hospitals={name: table.take(training[rows]) for name, rows in zip(HOSPITALS[:hospitals], shares, strict=True)},
        evaluation=table.take(held_out),
        task="logistic-regression",
        task_parameters={"label": "malignant", **{f"column.{name}": text for name, text in BREAST_CANCER.items()}},
    )


def by_tumour_size(
    measured: FloatArray, sizes: Sequence[int], random: np.random.Generator, overlap: float = OVERLAP
) -> list[np.ndarray]:
    """Deal patients by the size of their tumours: every one to exactly one hospital.

    The first, largest hospital sees the middle, where benign and malignant are hard to tell apart: doubtful cases are
    referred to it. The others see smaller and larger tumours in turn, ever further out.

    measured  one number for every patient: the radius of the largest cell nuclei stands for the size
    sizes     patients of every hospital; together all of them
    overlap   standard deviation of the noise on a patient's rank, as a share of all patients; 0: sharp borders

    Returns the positions of every hospital's patients, hospitals in the order of `sizes`.
    """
    ranks = np.argsort(np.argsort(measured, kind="stable"), kind="stable") / len(measured)
    dealt = np.argsort(ranks + overlap * random.normal(size=len(measured)), kind="stable")
    # 3, 1, 0, 2 for four hospitals: from the smallest tumours to the largest.
    hospitals = range(len(sizes))
    outwards = [*reversed(hospitals[1::2]), *hospitals[::2]]
    ends = np.cumsum([sizes[hospital] for hospital in outwards])[:-1]
    parts = dict(zip(outwards, np.split(dealt, ends), strict=True))
    return [parts[hospital] for hospital in hospitals]


def _sizes(hospitals: int, patients: int) -> list[int]:
    """Patients of each hospital: in the proportion n : n − 1 : … : 1, but for four hospitals."""
    if hospitals == 4:
        return [205, 118, 82, patients - 405]
    ends = np.cumsum(np.arange(hospitals, 0, -1)) * patients // (hospitals * (hospitals + 1) // 2)
    return [int(size) for size in np.diff(ends, prepend=0)]


def heart_disease(seed: int = 0) -> Scenario:
    """The four hospitals of the UCI heart disease set; a fifth of each hospital's patients is the evaluation set."""
    folder = data_folder() / "heart_disease_4_hospitals"
    random = np.random.default_rng(seed)
    hospitals: dict[str, Table] = {}
    held_out: list[Table] = []
    for site in ("cleveland", "hungarian", "va", "switzerland"):
        table = read_heart_disease(_existing(folder / f"processed.{site}.data"))
        order = random.permutation(len(table))
        hospitals[site] = table.take(order[len(order) // 5 :])
        held_out.append(table.take(order[: len(order) // 5]))
    return Scenario(
        name="heart-disease",
        source=f"UCI heart disease, {sum(map(len, [*hospitals.values(), *held_out]))} patients of four real hospitals",
        split="the site is the split",
        hospitals=hospitals,
        evaluation=_concatenate(held_out),
        task="logistic-regression",
        task_parameters={"label": "disease", **{f"column.{name}": text for name, text in HEART_DISEASE.items()}},
    )


def mnist(clients: int, records: int, seed: int = 0) -> Scenario:
    """`clients` hospitals with `records` handwritten digits each; evaluation on 2,000 digits of the test set.

    A linear classifier on centred pixels of unit norm: under a small budget it beats a network.
    """
    folder = data_folder() / "mnist"
    images, labels = (read_idx(_existing(folder / f"train-{part}-ubyte.gz")) for part in ("images-idx3", "labels-idx1"))
    if clients * records > len(labels):
        raise DataMissing(f"{clients} clients with {records} digits each: there are only {len(labels)}")
    order = np.random.default_rng(seed).permutation(len(labels))[: clients * records].reshape(clients, records)
    everything = Examples.of(_centred(images), labels)
    test_images, test_labels = (folder / f"t10k-{part}-ubyte.gz" for part in ("images-idx3", "labels-idx1"))
    test = Examples.of(_centred(read_idx(test_images)), read_idx(test_labels))
    return Scenario(
        name="mnist",
        source=f"MNIST, {clients * records} handwritten digits",
        split=f"dealt at random to {clients} clients, every digit a patient of its own",
        hospitals={f"client-{i + 1}": everything.take(order[i]) for i in range(clients)},
        evaluation=test.take(np.arange(2000)),
        task="last-layer",
        task_parameters={"features": 784, "classes": 10, "bound": 1.0},
    )


def _centred(images: np.ndarray) -> np.ndarray:
    # 0.13 is about the grey of handwriting on paper: a public constant, not this data's mean.
    return images.reshape(len(images), -1).astype(np.float32) / 255 - np.float32(0.13)


def data_folder() -> Path:
    """Where the data sets that do not come with a package lie: WARDROUND_DATA, or ../shared/data."""
    return Path(os.environ.get("WARDROUND_DATA") or Path(__file__).resolve().parents[2] / ".." / "shared" / "data")


def write(records: Table | Examples, path: Path) -> Path:
    """Records as a file that a hospital process reads; returns the path with its ending."""
    if isinstance(records, Examples):
        path = path.with_suffix(".npz")
        np.savez(path, inputs=records.inputs, labels=records.labels, patients=np.array(records.patients))
        return path
    import pandas  # pyright: ignore[reportMissingTypeStubs]

    path = path.with_suffix(".csv")
    columns: dict[str, object] = {name: column.tolist() for name, column in records.columns.items()}
    frame = cast(Any, pandas.DataFrame({"patient": records.patients, **columns}))
    frame.to_csv(path, index=False)
    return path


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise DataMissing(f"{path} is missing: set WARDROUND_DATA to the folder that holds {path.parent.name}/")
    return path


def _concatenate(tables: list[Table]) -> Table:
    columns = {name: Column.joined([table.columns[name] for table in tables]) for name in tables[0].columns}
    return Table(columns, tuple(patient for table in tables for patient in table.patients))
