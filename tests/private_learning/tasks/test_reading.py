"""Tables that are read on demand give every task the bytes that they give in memory, and say what is wrong by row."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from client_sdk.guard.policy import SitePolicy
from client_sdk.study.patients import AskedPatients
from client_sdk.study.preparation import check_data
from private_learning.records import DataError, LazyTable, Table, load
from private_learning.tasks import dataset_of
from private_learning.tasks import load as load_task
from private_learning.tasks.inputs import LazyInputs, joined
from private_learning.tasks.reading import inputs_of, inspected
from private_learning.tasks.registry import BUILT_IN
from private_learning.tasks.sequences import CodeSequences
from private_learning.tasks.tables import TableTask
from private_learning.training import LocalTraining
from private_learning.training.local import weights_of
from study_protocol.randomness.source import SeededRandomness
from tests.factories.made_up import made_up
from tests.factories.settings import settings
from wardround import StudySettings
from wardround.cli.lead.templates import study_values

arrow: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
parquet: Any = pytest.importorskip("pyarrow.parquet")

TASKS = {name: load_task(name, study_values(task=name)["training"]["task_parameters"]) for name in BUILT_IN}
OF_TABLES = [n for n, task in TASKS.items() if isinstance(task, TableTask) and not isinstance(task, CodeSequences)]
PATIENTS = 90


def stored(folder: Path, table: Table, size: int = 16) -> Path:
    """Several rows of a patient are rows of different groups; a column is beside that no task names."""
    cells = {name: column.tolist() for name, column in table.columns.items()}
    cells["who"] = [f"p{row % (len(table) * 2 // 3)}" for row in range(len(table))]
    cells["beside"] = [["a", "list"]] * len(table)
    path = folder / "records.parquet"
    parquet.write_table(arrow.table(cells), path, row_group_size=size)
    return path


def both(name: str, folder: Path, count: int = PATIENTS) -> tuple[LazyTable, Table]:
    """On demand, and in memory."""
    made = made_up(TASKS[name], count)
    assert isinstance(made, Table)
    lazy = load(stored(folder, made), patient_column="who", lazy=True)
    assert isinstance(lazy, LazyTable)
    return lazy, Table(made.columns, lazy.patients)


@pytest.mark.parametrize("name", OF_TABLES)
def test_a_row_becomes_the_same_whatever_is_read_with_it(name: str, tmp_path: Path) -> None:
    task, (lazy, table) = TASKS[name], both(name, tmp_path)
    found, whole = dataset_of(task, lazy), task.dataset(table)
    assert isinstance(found.inputs, LazyInputs)
    assert isinstance(whole.inputs, torch.Tensor)
    assert found.inputs.shape == whole.inputs.shape
    assert found.patients == whole.patients
    assert torch.equal(found.targets.nan_to_num(-7), whole.targets.nan_to_num(-7))
    everything = found.in_memory().inputs
    assert isinstance(everything, torch.Tensor)
    assert torch.equal(everything.view(torch.int32), whole.inputs.view(torch.int32))
    draw = np.random.default_rng(1)
    for count in (1, 2, 40):
        rows = torch.as_tensor(draw.integers(0, PATIENTS, count))
        assert torch.equal(found.inputs[rows].view(torch.int32), whole.inputs[rows].view(torch.int32))
    assert inspected(task, lazy) == task.inspect(table)
    of_patients, at_once = found.by_patient(2), whole.by_patient(2)
    assert torch.equal(of_patients.in_memory().inputs, at_once.inputs)  # pyright: ignore[reportArgumentType]


def study_of(name: str) -> StudySettings:
    steps = {"algorithm": "fedavg", "local_steps": 3, "learning_rate": 0.1, "rows_per_patient": 2}
    task = {"task": name, "task_parameters": study_values(task=name)["training"]["task_parameters"]}
    sizes = {"expected_batch_size": 20.0, "sampling_rate": 0.4, "noise_multiplier": 1.0, "max_steps": 6}
    return settings("parallel", training=steps | task, **sizes)


def test_a_check_says_of_rows_on_disk_what_it_says_of_rows_in_memory(tmp_path: Path) -> None:
    lazy, table = both("logistic-regression", tmp_path)
    chosen, rules = study_of("logistic-regression"), SitePolicy(excluded_patients=("p3",))
    found, whole = (check_data(records, rules, chosen) for records in (lazy, table))
    assert found.unused == ("beside",)
    assert found.excluded == 1
    assert (found.rows, found.patients, found.longest, found.labels, found.inputs) == (
        *(whole.rows, whole.patients, whole.longest, whole.labels, whole.inputs),
    )


def test_what_is_wrong_is_said_by_the_row_of_the_file(tmp_path: Path) -> None:
    task = load_task("logistic-regression", {"label": "y", "column.x": "0..1", "column.ward": "a|b"})
    cells = {"x": [0.5] * 40, "ward": ["a"] * 40, "y": [0, 1] * 20}
    path = tmp_path / "a.parquet"
    parts = {"y": (30, "row 31"), "x": (25, "row 26"), "ward": (33, "row 34")}
    for name, (row, words) in parts.items():
        wrong = {**cells, name: list(cells[name])}
        wrong[name][row] = {"y": 3, "x": None, "ward": "secret"}[name]
        parquet.write_table(arrow.table(wrong), path, row_group_size=8)
        lazy = load(path, lazy=True)
        for ask in (dataset_of,) if name == "y" else (dataset_of, inspected):
            with pytest.raises(DataError, match=words) as caught:
                ask(task, lazy)
            assert "secret" not in str(caught.value)
    parquet.write_table(arrow.table({"X1": [1.0], "ward": ["a"], "y": [0]}), path)
    with pytest.raises(DataError, match="lacks 1 of the study's columns: 'x'"):
        dataset_of(task, load(path, lazy=True))


def test_a_prediction_needs_no_labels(tmp_path: Path) -> None:
    task = load_task("logistic-regression", {"label": "y", "column.x": "0..1"})
    parquet.write_table(arrow.table({"x": np.linspace(0, 1, 9)}), tmp_path / "a.parquet")
    lazy, whole = (inputs_of(task, load(tmp_path / "a.parquet", lazy=how)) for how in (True, False))
    assert torch.equal(lazy[:], whole[:])


def test_two_files_make_one_data_set(tmp_path: Path) -> None:
    task = TASKS["logistic-regression"]
    each = [both("logistic-regression", tmp_path / side) for side in ("one", "other") if not (tmp_path / side).mkdir()]
    found = joined([dataset_of(task, lazy).inputs for lazy, _ in each])
    whole = torch.cat([task.inputs(table) for _, table in each])
    assert torch.equal(found[[100, 3, 170]], whole[[100, 3, 170]])


def test_questions_are_answered_of_the_whole_table(tmp_path: Path) -> None:
    parquet.write_table(arrow.table({"x": [1.0, 2.0, 3.0], "who": ["a", "b", "c"]}), tmp_path / "a.parquet")
    lazy = load(tmp_path / "a.parquet", patient_column="who", lazy=True)
    asked = AskedPatients.of(lazy, SitePolicy(excluded_patients=("b",)))
    assert asked.identifiers == ("a", "c")
    assert asked.records.columns["x"].tolist() == [1.0, 3.0]


def released(local: LocalTraining) -> list[bytes]:
    weights = {
        name: np.random.default_rng(1).normal(0, 0.3, array.shape).astype(np.float32)
        for name, array in weights_of(local.task.model()).items()
    }
    return [array.tobytes() for _, array in sorted(local.contribution(weights, None).update.items())]


@pytest.mark.quick("mlp")
@pytest.mark.parametrize("name", ["mlp", "discrete-survival", "bayesian-logistic-regression"])
def test_training_gives_the_same_bytes(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    found: list[list[bytes]] = []
    for records in both(name, tmp_path):
        dataset = dataset_of(TASKS[name], records).by_patient(2)
        randomness = SeededRandomness(3, allow_insecure=True)
        found.append(released(LocalTraining(TASKS[name], dataset, study_of(name), randomness)))
    assert found[0] == found[1]
