"""Public data sets as a hospital would have them on its disk, through every built-in task, as `join` begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import datasets

from client_sdk.guard.policy import SitePolicy
from client_sdk.study.preparation import check_data
from private_learning.records import DataError, load
from tests.factories.settings import settings
from wardround.demo.scenarios import data_folder

TABLES = {
    "breast cancer": datasets.load_breast_cancer,
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "digits": datasets.load_digits,
}


def study(task: str, parameters: dict[str, Any]) -> Any:
    return settings(training={"task": task, "task_parameters": parameters})


def ranges(frame: pd.DataFrame, label: str) -> dict[str, Any]:
    """Parameters for every column of a frame; a study would take public numbers."""
    described = {
        f"column.{name}": f"{frame[name].min() - 1}..{frame[name].max() + 1}" for name in frame.columns.drop(label)
    }
    return {"label": label, "classes": int(frame[label].max()) + 1, **described}


@pytest.mark.quick("commas-wine-logistic-regression", "semicolons and decimal commas-iris-logistic-regression")
@pytest.mark.parametrize("task", ["logistic-regression", "mlp"])
@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("european", [False, True], ids=["commas", "semicolons and decimal commas"])
def test_the_sets_that_come_with_scikit_learn_go_in_as_csv(
    tmp_path: Path, name: str, task: str, european: bool
) -> None:
    frame = TABLES[name](as_frame=True).frame
    path = tmp_path / "records.csv"
    if european:
        frame.to_csv(path, sep=";", decimal=",", encoding="utf-8-sig")
    else:
        frame.to_csv(path, index=False)
    chosen = study(task, ranges(frame, "target"))
    found = check_data(load(path), SitePolicy(), chosen)
    assert found == check_data(frame, SitePolicy(), chosen)
    assert (found.patients, found.labels) == (
        len(frame),
        {str(label): n for label, n in frame["target"].value_counts().sort_index().items()},
    )
    assert (found.unused, {use.missing for use in found.inputs}, {use.clipped for use in found.inputs}) == (
        (),
        {0},
        {0},
    )


@pytest.mark.parametrize(
    ("task", "parameters", "shape"),
    [
        ("cnn", {"height": 8, "width": 8, "classes": 10, "high": 12.0}, (-1, 8, 8)),
        ("last-layer", {"features": 64, "classes": 10, "bound": 60.0}, (-1, 64)),
    ],
    ids=["cnn", "last-layer"],
)
def test_arrays_go_into_the_other_tasks(tmp_path: Path, task: str, parameters: dict[str, Any], shape: Any) -> None:
    digits = datasets.load_digits()
    inputs = digits.data.reshape(shape)
    np.savez(tmp_path / "digits.npz", inputs=inputs, labels=digits.target)
    found = check_data(load(tmp_path / "digits.npz"), SitePolicy(), study(task, parameters))
    (use,) = found.inputs
    beyond = digits.data > 12 if task == "cnn" else np.linalg.norm(digits.data, axis=1) > 60
    assert (use.values, use.clipped) == (beyond.size, int(beyond.sum()))
    assert 0 < use.clipped < use.values
    assert sum(found.labels.values()) == len(digits.target)


def test_public_tables_of_hospitals_go_in_once_their_header_is_written(tmp_path: Path) -> None:
    folder = data_folder()
    if not (folder / "abalone" / "abalone.data").exists():
        pytest.skip("WARDROUND_DATA holds no abalone")
    header = "sex,length,diameter,height,whole,shucked,viscera,shell,rings\n"
    (tmp_path / "abalone.csv").write_text(header + (folder / "abalone" / "abalone.data").read_text())
    sizes = {f"column.{name}": "0..3" for name in header.split(",")[1:-1]}
    chosen = study("mlp", {"label": "rings", "classes": 30, "column.sex": "F|I|M", **sizes})
    found = check_data(load(tmp_path / "abalone.csv"), SitePolicy(), chosen)
    assert (found.patients, sum(found.labels.values())) == (4177, 4177)
    titled = (folder / "adult" / "adult.test").read_text()
    (tmp_path / "adult.csv").write_text(titled)
    with pytest.raises(DataError, match=r"line 1 has . cells and every other line 15: is there a header"):
        load(tmp_path / "adult.csv")
    words = ",".join([*"abcdefghijklmn", "income"]) + "\n"
    (tmp_path / "adult.csv").write_text(words + titled.partition("\n")[2])
    chosen = study("logistic-regression", {"label": "income", "label-values": "<=50K.|>50K.", "column.a": "17..90"})
    assert check_data(load(tmp_path / "adult.csv"), SitePolicy(), chosen).labels == {"<=50K.": 12435, ">50K.": 3846}


def test_zeros_are_missing_where_the_study_says_so() -> None:
    path = data_folder() / "heart_disease_4_hospitals" / "processed.switzerland.data"
    if not path.exists():
        pytest.skip("WARDROUND_DATA holds no heart_disease_4_hospitals")
    frame = pd.read_csv(path, na_values="?", header=None)
    frame = frame.rename(columns={4: "chol", 13: "num"})
    chol = {"label": "num", "classes": 5, "column.chol": "100..400; missing=240; missing-values=0"}
    (use,) = check_data(frame, SitePolicy(), study("logistic-regression", chol)).inputs
    # Nobody there measured cholesterol.
    assert (use.missing, use.clipped) == (123, 0)
    chol["column.chol"] = "100..400; missing=240"
    (use,) = check_data(frame, SitePolicy(), study("logistic-regression", chol)).inputs
    assert (use.missing, use.clipped) == (0, 123)
