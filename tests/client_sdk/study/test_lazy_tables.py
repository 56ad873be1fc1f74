"""A study on a table that is read row group by row group: joined, asked, evaluated, checked, simulated as others."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from client_sdk.guard.split import PatientSplit
from client_sdk.study.preparation import able, check_data
from private_learning.records import DataError, LazyTable, Table, load
from private_learning.training.weights import weights_of
from study_protocol.queries.kinds import Moments
from study_protocol.queries.kinds.evaluation import OUTCOME, PREDICTION, Evaluation
from study_protocol.randomness.source import SeededRandomness
from study_protocol.study.settings import StudySettings
from tests.factories.commands import run_offline
from tests.factories.hospitals import coordinator, hospital, plain_policy
from tests.factories.settings import settings
from wardround.cli.lead.templates import study_text, study_values

pyarrow: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
parquet: Any = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

TASK = {
    "task": "logistic-regression",
    "task_parameters": {"label": "ill", "column.age": "18..90", "column.rate": "40..180; missing=70"},
}
COUNT = 60
_DRAW = np.random.default_rng(0)
COLUMNS: dict[str, Any] = {
    "age": _DRAW.integers(18, 91, COUNT),
    # Text that says numbers, which questions read as such.
    "rate": [None if row % 9 == 4 else str(rate) for row, rate in enumerate(_DRAW.integers(40, 181, COUNT).tolist())],
    "ill": _DRAW.integers(0, 2, COUNT),
    "beside": ["x"] * COUNT,
    # Two rows each, but for some who have one.
    "who": [f"p{row // 2 if row < 40 else row}" for row in range(COUNT)],
}


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "records"
    folder.mkdir()
    whole = pyarrow.table(COLUMNS)
    parquet.write_table(whole.slice(0, 25), folder / "0.parquet", row_group_size=7)
    parquet.write_table(whole.slice(25), folder / "1.parquet", row_group_size=11)
    return folder


def both(path: Path) -> tuple[Table, LazyTable]:
    here, there = (load(path, patient_column="who", lazy=lazy) for lazy in (False, True))
    assert type(here) is Table
    assert isinstance(there, LazyTable)
    return here, there


def study(**options: Any) -> StudySettings:
    training = TASK | {"rows_per_patient": 2} | options.pop("training", {})
    return settings(training=training, expected_batch_size=20.0, sampling_rate=0.5, noise_multiplier=1.0, **options)


def test_joining_with_a_folder_of_files_sends_the_bytes_of_a_table_in_memory(tmp_path: Path, path: Path) -> None:
    sent: list[Any] = []
    for place, data in enumerate(both(path)):
        torch.manual_seed(2)
        other = coordinator(study())
        site = hospital(other, tmp_path / str(place))
        policy = plain_policy(excluded_patients=["p3", "p59"])
        coins = SeededRandomness(3, allow_insecure=True)
        site.join("sepsis", None, data, policy=policy, dataset="stays", randomness=coins)
        sent.append(other.updates)
    assert sent[0]
    assert sent[0] == sent[1]


def test_questions_and_an_evaluation_say_what_they_say_of_a_table_in_memory(path: Path) -> None:
    chosen = study(statistics={"max_queries": 5, "max_cells": 100}, evaluation={"share": 0.4})
    evaluation = Evaluation.model_validate(
        {"kind": "evaluation", "model": 1, "prediction": "binary", "noise_multiplier": 6.0}
    )
    question = Moments.model_validate(
        {
            "kind": "moments",
            "numbers": [{"column": "rate", "low": 40.0, "high": 180.0}],
            "rows": "mean",
            "noise_multiplier": 6.0,
        }
    )
    found: list[Any] = []
    for data in both(path):
        split = PatientSplit(bytes(range(32)), 0.4)
        made = able(None, data, plain_policy(excluded_patients=["p3"]), chosen, None, "cpu", 60.0, "m", "1", split)
        one, asked = made.evaluated, made.patients
        assert one is not None
        assert asked is not None
        weights = weights_of(one.training.task.model())
        draw = np.random.default_rng(1)
        weights = {name: draw.normal(0, 1, array.shape).astype(np.float32) for name, array in weights.items()}
        columns = one.columns(evaluation, weights)
        # As text: NaN equals nothing.
        answers = {name: repr(list(column)) for name, column in asked.columns(question).items()}
        found.append((one.identifiers, columns[PREDICTION].tolist(), columns[OUTCOME].tolist(), answers))
    assert len(found[0][0]) > 5
    assert found[0][3]
    assert found[0] == found[1]


def test_a_check_counts_what_it_counts_in_memory(path: Path) -> None:
    here, there = (check_data(data, plain_policy(excluded_patients=["p3", "p59"]), study()) for data in both(path))
    assert here == there
    assert (here.rows, here.excluded, here.longest, here.unused) == (60, 2, 2, ("beside",))


def test_a_file_that_changes_in_mid_study_stops_the_hospital(tmp_path: Path, path: Path) -> None:
    _, there = both(path)
    steps = {"algorithm": "fedavg", "local_steps": 3, "learning_rate": 0.1}
    other = coordinator(study(training=steps, max_steps=6))
    site = hospital(other, tmp_path / "mercy")

    def changed(_: object) -> None:
        # What is kept of the file would hide it.
        there.columns.stored._begin()  # pyright: ignore
        with (path / "0.parquet").open("ab") as file:
            file.write(b" ")

    with pytest.raises(DataError, match="has changed since it was opened"):
        site.join("sepsis", None, there, policy=plain_policy(), on_round=changed)
    assert [number for number, bodies in other.updates.items() if "mercy" in bodies] == [1]


def test_the_commands_take_a_table_either_way(tmp_path: Path, path: Path) -> None:
    values = study_values()
    values["training"] = values["training"] | TASK | {"rows_per_patient": 2}
    values["privacy"] = values["privacy"] | {"max_steps": 2, "expected_batch_size": 8.0}
    chosen = tmp_path / "study.toml"
    chosen.write_text(study_text(values))
    options = ["--patient-column", "who", "--json"]
    ways = ("--lazy", "--in-memory")
    checked = [run_offline("data", "check", path, "--settings", chosen, way, *options) for way in ways]
    assert checked[0] == checked[1]
    assert checked[0]["rows"] == COUNT
    dealt = ["--data", path, "--clients", "4", "--backend", "loop", "--no-baselines"]
    simulated = [run_offline("simulate", chosen, *dealt, way, *options) for way in ways]
    assert simulated[0] == simulated[1]
    each: list[str | Path] = []
    for client in range(4):
        own = tmp_path / f"ward{client}.parquet"
        parquet.write_table(pyarrow.table(COLUMNS).slice(10 * client, 10), own, row_group_size=4)
        each += ["--data", own]
    simulated = [
        run_offline("simulate", chosen, *each, "--backend", "loop", "--no-baselines", way, *options) for way in ways
    ]
    assert simulated[0] == simulated[1]
