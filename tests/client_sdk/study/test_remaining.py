"""A patient who objected has no effect: nothing of the patient's rows is read, whatever stands in them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from client_sdk.errors import ConfigurationError
from client_sdk.guard.split import PatientSplit
from client_sdk.study.patients import AskedPatients
from client_sdk.study.preparation import able, check_data
from client_sdk.study.remaining import remaining
from private_learning.records import DataError, Examples, Histories, LazyExamples, Records, Table, load
from private_learning.training.weights import weights_of
from study_protocol.queries.kinds import Moments
from study_protocol.queries.kinds.evaluation import OUTCOME, PREDICTION, Evaluation
from study_protocol.study.settings import StudySettings
from tests.factories.hospitals import plain_policy
from tests.factories.settings import settings
from tests.factories.trainings import prepared_training

TABLE = {
    "task": "logistic-regression",
    "task_parameters": {"label": "ill", "column.age": "18..90", "column.rate": "40..180; missing=70"},
}
IMAGES = {"task": "cnn", "task_parameters": {"height": 6, "width": 6, "classes": 2, "filters": 2, "hidden": 4}}
GONE = plain_policy(excluded_patients=["gone"])
HEAD = "who,age,rate,ill"
ROWS = [f"p{row},{20 + row},{60 + row},{row % 2}" for row in range(12)]
BROKEN = ["gone,<18,high,maybe", "gone,,,", "GONE,1e400,-inf,7"]


def study(training: dict[str, Any], **options: Any) -> StudySettings:
    return settings(training=training, expected_batch_size=10.0, sampling_rate=0.5, noise_multiplier=1.0, **options)


def made(records: Records, chosen: StudySettings) -> tuple[tuple[str, ...], bytes, bytes]:
    dataset = prepared_training(records, GONE, chosen).dataset.in_memory()
    assert isinstance(dataset.inputs, torch.Tensor)
    return dataset.patients, dataset.inputs.numpy().tobytes(), dataset.targets.numpy().tobytes()


def read(folder: Path, rows: Sequence[str], kind: str) -> Records:
    (folder / "records.csv").write_text("\n".join([HEAD, *rows, ""]))
    if kind == "csv":
        return load(folder / "records.csv", patient_column="who")
    arrow: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet: Any = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    cells = zip(*(row.split(",") for row in rows), strict=True)
    table = arrow.table(
        {name: [cell or None for cell in own] for name, own in zip(HEAD.split(","), cells, strict=True)}
    )
    parquet.write_table(table, folder / "records.parquet", row_group_size=5)
    return load(folder / "records.parquet", patient_column="who", lazy=kind == "lazy")


@pytest.mark.parametrize("kind", ["csv", "parquet", "lazy"])
def test_broken_cells_of_a_patient_who_objected_change_no_bit(tmp_path: Path, kind: str) -> None:
    chosen = study(TABLE)
    whole = made(read(tmp_path, ROWS, kind), chosen)
    assert len(whole[0]) == 12
    spoiled = read(tmp_path, [*BROKEN[:1], *ROWS[:5], *BROKEN[1:], *ROWS[5:]], kind)
    assert made(spoiled, chosen) == whole
    found = check_data(spoiled, GONE, chosen)
    assert (found.rows, found.excluded, found.patients, found.unmatched) == (15, 2, 12, "")
    assert [use.values for use in found.inputs] == [12, 12]
    assert found.inputs == check_data(read(tmp_path, ROWS, kind), plain_policy(), chosen).inputs


@pytest.mark.parametrize("kind", ["csv", "lazy"])
def test_nobody_is_asked_or_evaluated_who_objected(tmp_path: Path, kind: str) -> None:
    chosen = study(TABLE, statistics={"max_queries": 5, "max_cells": 100}, evaluation={"share": 0.5})
    moments = {"kind": "moments", "numbers": [{"column": "rate", "low": 40.0, "high": 180.0}], "noise_multiplier": 6.0}
    evaluation = {"kind": "evaluation", "model": 1, "prediction": "binary", "noise_multiplier": 6.0}
    answers: list[Any] = []
    for rows in (ROWS, [*ROWS[:5], *BROKEN, *ROWS[5:]]):
        split = PatientSplit(bytes(range(32)), 0.5)
        found = able(None, read(tmp_path, rows, kind), GONE, chosen, None, "cpu", 60.0, "m", "1", split)
        assert found.evaluated is not None
        assert found.patients is not None
        assert found.training is not None
        weights = {name: np.ones_like(array) for name, array in weights_of(found.training.task.model()).items()}
        columns = found.evaluated.columns(Evaluation.model_validate(evaluation), weights)
        asked = found.patients.columns(Moments.model_validate(moments | {"rows": "mean"}))
        answers.append(
            (
                *(found.evaluated.identifiers, found.patients.identifiers, found.training.dataset.patients),
                *(columns[name].tobytes() for name in (PREDICTION, OUTCOME)),
                {name: column.tobytes() for name, column in asked.items()},
            )
        )
    assert len(answers[0][0]) + len(answers[0][2]) == len(answers[0][1]) == 12
    assert answers[0] == answers[1]
    alone = AskedPatients.of(read(tmp_path, [*ROWS, *BROKEN], kind), GONE)
    assert alone.identifiers == answers[0][1]


@dataclass(frozen=True)
class Scans:
    """Images of which some cannot be read at all."""

    inputs: NDArray[Any]
    broken: frozenset[int]
    reads: list[int] = field(default_factory=list[int])

    def __len__(self) -> int:
        return len(self.inputs)

    def read(self, rows: NDArray[Any]) -> NDArray[Any]:
        self.reads.extend(rows.tolist())
        if self.broken & set(rows.tolist()):
            raise OSError("a broken file")
        return self.inputs[rows]


def test_no_image_of_a_patient_who_objected_is_ever_read() -> None:
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (20, 6, 6), dtype=np.uint8)
    patients = ["gone" if row in (0, 7, 19) else f"p{row}" for row in range(20)]
    kept = [row for row, patient in enumerate(patients) if patient != "gone"]
    labels = np.where(np.array(patients) == "gone", 5, np.arange(20) % 2)
    scans = Scans(pixels, frozenset({0, 7, 19}))
    lazy = LazyExamples.of(scans, labels, patients)
    chosen = study(IMAGES, statistics={"max_queries": 5, "max_cells": 100}, evaluation={"share": 0.4})
    alone = Examples.of(pixels[kept], labels[kept], [patients[row] for row in kept])
    assert made(lazy, chosen) == made(alone, chosen)
    found = check_data(lazy, GONE, chosen)
    assert (found.rows, found.excluded, found.patients, found.labels) == (20, 1, 17, {"0": 9, "1": 8})
    able(None, lazy, GONE, chosen, None, "cpu", 60.0, "mercy", "1", PatientSplit(bytes(range(32)), 0.4))
    assert set(scans.reads) == set(kept)
    with pytest.raises(DataError):
        prepared_training(lazy, plain_policy(), chosen)


def test_events_of_a_patient_who_objected_go_too(caplog: pytest.LogCaptureFixture) -> None:
    patients = Table.of({"who": ["a", "gone", "b"], "died": [0, "x", 1]}, patient_column="who")
    events = {
        "drugs": Table.of({"who": ["gone", "a", "late"], "day": ["?", 1, 2]}, patient_column="who"),
        "stays": Table.of({"who": ["gone"], "day": [1]}, patient_column="who"),
    }
    rules = plain_policy(excluded_patients=["gone", "late"])
    found = remaining(Histories.with_events(patients, events), rules)
    assert isinstance(found.records, Histories)
    assert found.records.patients == ("a", "b")
    assert {name: table.patients for name, table in found.records.events.items()} == {"drugs": ("a",), "stays": ()}
    # The other one is in a table of events alone.
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert (found.excluded, found.unmatched) == (1, ())


def test_a_list_that_matches_nobody_is_a_loud_warning(caplog: pytest.LogCaptureFixture) -> None:
    records = Table.of({"who": ["a", "b"], "x": [1, 2]}, patient_column="who")
    found = remaining(records, plain_policy(excluded_patients=["who", "c"]))
    assert found.records is records
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1
    text = warnings[0].getMessage()
    assert "no patient is left out: no entry of the exclusion list matches" in text
    assert "(entries 1, 2 of excluded_patients)" in text
    with pytest.raises(DataError, match="every patient of these records is on the exclusion list"):
        remaining(records, plain_policy(excluded_patients=["A", "B"]))
    with pytest.raises(ConfigurationError, match="records name none"):
        remaining(Table.of({"x": [1, 2]}), plain_policy(excluded_patients=["row-0"]))
