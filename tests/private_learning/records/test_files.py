"""Records from image folders, data sets, MedMNIST and the heart disease files; what is wrong in them is counted."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import Dataset

from private_learning.records import DataError, Table, load, records_of
from private_learning.tasks import load as load_task
from private_learning.tasks.dataset import ABSENT
from private_learning.training import LocalTraining
from private_learning.training.weights import weights_of
from study_protocol.cells import column_of
from study_protocol.randomness.source import SeededRandomness
from study_protocol.wire.tensors import decode
from tests.factories.hospitals import coordinator, hospital, plain_policy, records
from tests.factories.settings import settings
from wardround.demo.scenarios import data_folder


def test_intensive_care_stays_become_patients() -> None:
    """eICU's demo: 2520 stays of 1841 patients, who may come back up to 24 times."""
    path = data_folder() / "eicu_demo" / "patient.csv.gz"
    if not path.exists():
        pytest.skip("WARDROUND_DATA holds no eicu_demo")
    stays = load(path, patient_column="uniquepid")
    assert isinstance(stays, Table)
    columns = {
        "weight": stays.columns["admissionweight"],
        "female": stays.columns["gender"],
        "died": column_of(stays.columns["hospitaldischargestatus"] == "Expired"),
    }
    about = {"column.weight": "30..200; missing=80", "column.female": "Female|Male; missing", "label": "died"}
    known = [i for i, gender in enumerate(columns["female"]) if gender in ("Female", "Male", None)]
    rows = load_task("logistic-regression", about).dataset(Table(columns, stays.patients).take(known))
    with pytest.raises(DataError, match="rows_per_patient"):
        rows.by_patient(1)
    for most in (5, 30):
        patients = rows.by_patient(most)
        # Also where nobody has so many: no patient sets the shape of the others.
        assert patients.inputs.shape[:2] == (len(set(rows.patients)), most)
        counts = np.unique(rows.patients, return_counts=True)[1]
        assert int((patients.targets != ABSENT).sum()) == int(np.minimum(counts, most).sum())


class Wards(Dataset[Any]):
    """Items as given."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


@pytest.mark.parametrize("kind", ["frame", "data set"])
def test_excluded_patients_are_left_out_whatever_the_records_came_from(tmp_path: Path, kind: str) -> None:
    """The list of the site policy, through the whole participation: the same update as without these records."""
    table = records(12)
    if kind == "frame":
        frame = pd.DataFrame({**table.columns, "patient": table.patients})
        given: Any = Table.of(frame, patient_column="patient")
        chosen = settings(sampling_rate=1.0, max_steps=1)
        task = load_task(chosen.training.task, chosen.training.task_parameters)
    else:
        parameters = {"features": 2, "classes": 2, "bound": 5.0}
        chosen = settings(
            training={"task": "last-layer", "task_parameters": parameters}, sampling_rate=1.0, max_steps=1
        )
        task = load_task("last-layer", parameters)
        x = torch.tensor(np.column_stack([table.columns["age"] / 100, table.columns["rate"] / 10]))
        given = Wards(list(zip(x, table.columns["ill"], table.patients, strict=True)))
    other, rules = coordinator(chosen), plain_policy(excluded_patients=["p3", "p7", "p11"])

    def randomness() -> SeededRandomness:
        return SeededRandomness(1, allow_insecure=True)

    hospital(other, tmp_path).join("sepsis", None, given, policy=rules, dataset="icu", randomness=randomness())
    sent = decode(other.updates[1]["mercy"], other._update_spec())
    kept = [i for i in range(12) if i not in (3, 7, 11)]
    rest = records_of(given).take(kept)
    alone = LocalTraining(task, task.dataset(rest), chosen, randomness(), party="mercy")
    for name, array in alone.update(weights_of(task.model()), None).items():
        np.testing.assert_array_equal(sent[f"update/{name}"], array)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("records.xlsx", "a workbook is read through a snapshot: `wardround data snapshot"),
        ("records.doc", "a text table .* is expected"),
        ("a.npz", "belongs to tables"),
        ("a.csv", "a.csv is a folder. Name the file in it"),
        ("b.csv", "b.csv: there is no such file or folder in /"),
        ("gone", "gone: there is no such file or folder in /"),
        ("empty.csv", "empty.csv: the file is empty"),
    ],
)
def test_what_cannot_be_a_file_of_records_is_said_in_words(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "a.csv").mkdir()
    (tmp_path / "empty.csv").touch()
    for other in ("records.xlsx", "records.doc", "a.npz"):
        (tmp_path / other).write_bytes(b"x")
    with pytest.raises(DataError, match=words):
        load(tmp_path / name, patient_column="who")


def test_a_program_s_own_table_goes_where_a_path_does() -> None:
    frame = pd.DataFrame({"who": ["a", "b"], "x": [1, 2]})
    for given in (frame, {"who": ["a", "b"], "x": [1, 2]}):
        table = load(given, patient_column="who")
        assert isinstance(table, Table)
        assert (table.patients, table.columns["x"].tolist()) == (("a", "b"), [1.0, 2.0])
