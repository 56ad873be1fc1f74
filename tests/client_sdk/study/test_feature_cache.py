"""Features on a hospital's disk: sealed, believed only for what they were computed of, and computed anew otherwise."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from client_sdk.errors import ConfigurationError, KeyFileError
from client_sdk.study.feature_cache import FeatureCache
from client_sdk.study.preparation import check_data
from private_learning.records import Examples
from private_learning.tasks import TaskDataset
from private_learning.training.features import Features
from study_protocol.files.private import exposure
from study_protocol.study.settings import StudySettings
from tests.factories.hospitals import plain_policy
from tests.factories.parts import CNN, Backbone, backbone, images
from tests.factories.settings import settings
from tests.factories.trainings import prepared_training
from tests.harness.windows.system import let_others_in

Passes = list[int]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Passes:
    """How many data sets' features were computed so far; a single record is computed to see whether a file is right."""
    found: Passes = []
    computed = Features.of_dataset

    def counted(self: Features, dataset: TaskDataset) -> TaskDataset:
        found.extend([len(dataset)] * (len(dataset) > 1))
        return computed(self, dataset)

    monkeypatch.setattr(Features, "of_dataset", counted)
    return found


def study(file: Backbone, **training: Any) -> StudySettings:
    part = {"task": "cnn", "task_parameters": CNN, "trainable": "head", "backbone": {"sha256": file.sha256}}
    return settings(training=part | training)


def prepared(folder: Path, file: Backbone, records: Examples, *, chosen: StudySettings | None = None, **policy: Any):
    cache = FeatureCache(folder / "features")
    rules = plain_policy(**policy)
    return prepared_training(records, rules, chosen or study(file), backbone=file.path, cache=cache).dataset


def sealed(folder: Path) -> Path:
    (found,) = (folder / "features").glob("*.sealed")
    return found


def test_a_second_run_reads_what_the_first_has_computed(tmp_path: Path, passes: Passes) -> None:
    file, records = backbone(tmp_path), images(30)
    first = prepared(tmp_path, file, records)
    again = prepared(tmp_path, file, records)
    assert passes == [30]
    assert torch.equal(again.inputs, first.inputs)
    assert again.patients == first.patients
    alone = prepared_training(records, plain_policy(), study(file), backbone=file.path)
    assert torch.equal(alone.dataset.inputs, first.inputs)


def test_key_and_file_are_the_hospitals_own_and_hold_no_feature_in_the_clear(tmp_path: Path) -> None:
    file = backbone(tmp_path)
    dataset = prepared(tmp_path, file, images(30))
    for path in (sealed(tmp_path), tmp_path / "features" / "key"):
        assert exposure(path) is None
    assert exposure(tmp_path / "features") is None
    data = sealed(tmp_path).read_bytes()
    # Six bytes of a float and its neighbour: found by chance with probability 2⁻³³ or so.
    assert not any(row.numpy().tobytes()[:6] in data for row in dataset.inputs)


def _other_records(_: Path) -> dict[str, Any]:
    records = images(30)
    changed = records.inputs.copy()
    changed[4, 0, 0] += 0.01
    return {"records": replace(records, inputs=changed)}


def _one_left_out(_: Path) -> dict[str, Any]:
    return {"excluded_patients": ["patient-3"]}


def _swapped(_: Path) -> dict[str, Any]:
    return {"records": images(30).take(np.arange(30)[::-1].copy())}


def _damaged(folder: Path) -> dict[str, Any]:
    data = bytearray(sealed(folder).read_bytes())
    data[-1] ^= 1
    sealed(folder).write_bytes(bytes(data))
    return {}


def _cut(folder: Path) -> dict[str, Any]:
    sealed(folder).write_bytes(sealed(folder).read_bytes()[:-5])
    return {}


def _empty(folder: Path) -> dict[str, Any]:
    sealed(folder).write_bytes(b"")
    return {}


def _claims_much(folder: Path) -> dict[str, Any]:
    data = sealed(folder).read_bytes()
    sealed(folder).write_bytes(data.replace(b"[30, 4]", b"[99, 4]"))
    return {}


def _another_key(folder: Path) -> dict[str, Any]:
    (folder / "features" / "key").write_bytes(bytes(32))
    return {}


@pytest.mark.quick("cut")
@pytest.mark.parametrize(
    "change",
    [_other_records, _one_left_out, _swapped, _damaged, _cut, _empty, _claims_much, _another_key],
    ids=["a pixel", "a patient left out", "other order", "a bit", "cut", "empty", "another shape", "another hospital"],
)
def test_what_is_not_of_these_records_is_computed_anew(
    tmp_path: Path, passes: Passes, caplog: pytest.LogCaptureFixture, change: Any
) -> None:
    file = backbone(tmp_path)
    prepared(tmp_path, file, images(30))
    given = {"records": images(30)} | change(tmp_path)
    with caplog.at_level(logging.WARNING):
        found = prepared(tmp_path, file, **given)
    assert len(passes) == 2
    assert "computed anew" in caplog.text
    # And that replaces the file.
    assert torch.equal(prepared(tmp_path, file, **given).inputs, found.inputs)
    assert len(passes) == 2


def test_code_that_changed_under_its_name_is_noticed(
    tmp_path: Path, passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = backbone(tmp_path)
    first = prepared(tmp_path, file, images(30))
    made = Features._computed
    monkeypatch.setattr(Features, "_computed", lambda self, given: 2 * made(self, given))
    assert torch.equal(prepared(tmp_path, file, images(30)).inputs, 2 * first.inputs)
    assert len(passes) == 2


def test_another_study_has_a_file_of_its_own(tmp_path: Path, passes: Passes) -> None:
    prepared(tmp_path, backbone(tmp_path), images(30))
    other = backbone(tmp_path, seed=1)
    prepared(tmp_path, other, images(30))
    prepared(tmp_path, other, images(30), chosen=study(other, task_parameters=CNN | {"high": 2.0}))
    assert len(passes) == len(list((tmp_path / "features").glob("*.sealed"))) == 3
    # One that is put in another's place is of another study, and not believed.
    first, second, _ = sorted((tmp_path / "features").glob("*.sealed"))
    first.write_bytes(second.read_bytes())
    second.unlink()
    prepared(tmp_path, other, images(30))
    prepared(tmp_path, other, images(30), chosen=study(other, task_parameters=CNN | {"high": 2.0}))
    prepared(tmp_path, backbone(tmp_path), images(30))
    assert len(passes) >= 5


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = backbone(tmp_path)
    prepared(tmp_path, file, images(30))
    let_others_in(tmp_path / "features" / "key")
    with pytest.raises(KeyFileError, match="may be read by others"):
        prepared(tmp_path, file, images(30))


def test_a_folder_that_cannot_be_written_costs_time_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = backbone(tmp_path)
    (tmp_path / "features").write_text("a file where the folder would be")
    found = prepared(tmp_path, file, images(30))
    assert found.inputs.shape == (30, 4)
    assert "not stored for later runs" in caplog.text


def test_a_check_of_the_data_takes_the_backbone_and_writes_nothing(tmp_path: Path) -> None:
    file = backbone(tmp_path)
    found = check_data(images(30), plain_policy(), study(file), backbone=file.path)
    assert (found.patients, found.parameters) == (30, 15)
    assert [path.name for path in tmp_path.iterdir()] == [file.path.name]
    with pytest.raises(ConfigurationError, match="--backbone FILE"):
        check_data(images(30), plain_policy(), study(file))
