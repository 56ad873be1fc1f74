"""A study on records that are read when they are needed: joined, evaluated, checked and simulated as on any others."""

from __future__ import annotations

import io
import logging
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from client_sdk.errors import ConfigurationError
from client_sdk.guard.split import PatientSplit
from client_sdk.study.evaluated import EvaluatedPatients
from client_sdk.study.preparation import able, check_data
from private_learning.records import DataError, Examples, LazyExamples, load
from private_learning.training.weights import weights_of
from study_protocol.queries.kinds.evaluation import OUTCOME, PREDICTION, Evaluation
from study_protocol.randomness.source import SeededRandomness
from study_protocol.study.settings import StudySettings
from tests.factories.commands import run_offline
from tests.factories.coordinator_in_process import Coordinator
from tests.factories.hospitals import coordinator, hospital, plain_policy
from tests.factories.readers import Images
from tests.factories.settings import settings
from tests.factories.trainings import prepared_training
from wardround.cli.lead.templates import study_text, study_values

IMAGES = {"task": "cnn", "task_parameters": {"height": 6, "width": 6, "classes": 2, "filters": 2, "hidden": 4}}
STEPS = {"algorithm": "fedavg", "local_steps": 3, "learning_rate": 0.1}
COUNT = 60
_DRAW = np.random.default_rng(0)
PIXELS, LABELS = _DRAW.integers(0, 256, (COUNT, 6, 6), dtype=np.uint8), _DRAW.integers(0, 2, COUNT)
# Two images each, but for some who have one.
PATIENTS = [f"p{row // 2 if row < 40 else row}" for row in range(COUNT)]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


def opened(chosen: StudySettings) -> Coordinator:
    """Of a study that starts with the same weights whenever it is opened."""
    torch.manual_seed(2)
    return coordinator(chosen)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = ["file,patient"]
    for row, label in enumerate(LABELS):
        name = f"class{label}/{row:02d}.png"
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(PIXELS[row]).save(path)
        lines.append(f"{name},{PATIENTS[row]}")
    (tmp_path / "images" / "patients.csv").write_text("\n".join(lines))
    return tmp_path / "images"


def both(path: Path) -> tuple[Examples, LazyExamples]:
    here, there = load(path, lazy=False), load(path, lazy=True)
    assert isinstance(here, Examples)
    assert isinstance(there, LazyExamples)
    return here, there


def study(**options: Any) -> StudySettings:
    training = IMAGES | {"rows_per_patient": 2} | options.pop("training", {})
    values = {"expected_batch_size": 20.0, "sampling_rate": 0.5, "noise_multiplier": 1.0} | options
    return settings(training=training, **values)


@pytest.mark.quick("step")
@pytest.mark.parametrize("how", [{}, {"training": STEPS, "max_steps": 6, "bayesian": True}], ids=["step", "steps"])
def test_joining_with_a_folder_sends_the_bytes_of_one_in_memory(
    tmp_path: Path, folder: Path, how: dict[str, Any]
) -> None:
    sent: list[Any] = []
    for place, data in enumerate(both(folder)):
        other = opened(study(**how))
        site = hospital(other, tmp_path / str(place))
        policy = plain_policy(excluded_patients=["p3", "p59"])
        coins = SeededRandomness(3, allow_insecure=True)
        site.join("sepsis", None, data, policy=policy, dataset="scans", randomness=coins)
        sent.append(other.updates)
    assert sent[0]
    assert sent[0] == sent[1]


@pytest.mark.slow
def test_a_record_that_vanishes_in_mid_study_stops_the_hospital_and_the_round_is_done_on_return(
    tmp_path: Path, folder: Path
) -> None:
    here, there = both(folder)
    chosen, coins = study(training=STEPS, max_steps=6), SeededRandomness(3, allow_insecure=True)
    whole = opened(chosen)
    hospital(whole, tmp_path / "whole").join("sepsis", None, here, policy=plain_policy(), randomness=coins)
    reader = Images(here.inputs)
    data = LazyExamples.of(reader, here.labels, here.patients)
    other = opened(chosen)
    site = hospital(other, tmp_path / "mercy")

    def gone(_: object) -> None:
        reader.inputs = np.zeros(0)

    with pytest.raises(DataError, match="can no longer be read"):
        site.join("sepsis", None, data, policy=plain_policy(), randomness=coins, on_round=gone)
    assert [number for number, bodies in other.updates.items() if "mercy" in bodies] == [1]
    reader.inputs = here.inputs
    site.join("sepsis", None, data, policy=plain_policy(), randomness=coins)
    assert other.updates == whole.updates
    assert there.patients == here.patients


def test_an_evaluation_says_what_it_says_of_records_in_memory(folder: Path) -> None:
    chosen = study(statistics={"max_queries": 5, "max_cells": 100}, evaluation={"share": 0.4})
    question = Evaluation.model_validate(
        {"kind": "evaluation", "model": 1, "prediction": "binary", "noise_multiplier": 6.0}
    )
    found: list[Any] = []
    for data in both(folder):
        split = PatientSplit(bytes(range(32)), 0.4)
        one = able(None, data, plain_policy(), chosen, None, "cpu", 60.0, "mercy", "1", split).evaluated
        assert isinstance(one, EvaluatedPatients)
        weights = weights_of(one.training.task.model())
        draw = np.random.default_rng(1)
        weights = {name: draw.normal(0, 1, array.shape).astype(np.float32) for name, array in weights.items()}
        columns = one.columns(question, weights)
        found.append((one.identifiers, columns[PREDICTION].tolist(), columns[OUTCOME].tolist()))
    assert len(found[0][0]) > 5
    assert found[0] == found[1]


def test_a_check_counts_what_it_counts_in_memory_and_reads_everything(folder: Path) -> None:
    chosen = study(training={"task_parameters": IMAGES["task_parameters"] | {"high": 200.0}})
    policy = plain_policy(excluded_patients=["p3", "p59"])
    here, there = (check_data(data, policy, chosen) for data in both(folder))
    assert here == there
    assert (here.rows, here.excluded, here.longest) == (60, 2, 2)
    next((folder / "class1").glob("*.png")).write_bytes(b"\x89PNG")
    with pytest.raises(DataError, match="1 of 60 files"):
        load(folder, lazy=True)


def test_a_pixel_that_is_no_number_stops_the_check(folder: Path) -> None:
    here, _ = both(folder)
    spoiled = here.inputs.astype(np.float32)
    spoiled[41, 0, 0] = np.nan
    lazy = LazyExamples.of(Images(spoiled), here.labels, here.patients)
    with pytest.raises(DataError, match="1 of 1 records hold NaN"):
        check_data(lazy, plain_policy(), study())


def test_exclusions_need_names_of_patients(folder: Path) -> None:
    (folder / "patients.csv").unlink()
    _, there = both(folder)
    with pytest.raises(ConfigurationError, match="records name none"):
        prepared_training(there, plain_policy(excluded_patients=["p1"]), study())


def _settings(path: Path, **training: Any) -> Path:
    values = study_values()
    values["training"] = values["training"] | IMAGES | training
    values["privacy"] = values["privacy"] | {"max_steps": 2, "expected_batch_size": 8.0}
    path.write_text(study_text(values))
    return path


@pytest.mark.slow
def test_the_commands_take_a_folder_either_way(tmp_path: Path, folder: Path) -> None:
    chosen = _settings(tmp_path / "study.toml", rows_per_patient=2)
    checked = [
        run_offline("data", "check", folder, "--settings", chosen, way, "--json") for way in ("--lazy", "--in-memory")
    ]
    assert checked[0] == checked[1]
    assert checked[0]["rows"] == 60
    simulated = [
        "simulate",
        chosen,
        "--data",
        folder,
        "--clients",
        "4",
        "--backend",
        "loop",
        "--no-baselines",
        "--json",
    ]
    here, there = (run_offline(*simulated, "--json", way) for way in ("--in-memory", "--lazy"))
    assert here == there


def test_a_simulation_takes_a_file_for_each_client(tmp_path: Path) -> None:
    files: list[Path] = []
    for place in range(4):
        path = tmp_path / f"ward{place}.tar"
        with tarfile.open(path, "w") as archive:
            for row in range(15 * place, 15 * place + 15):
                written = io.BytesIO()
                Image.fromarray(PIXELS[row]).save(written, "PNG")
                for ending, data in (("png", written.getvalue()), ("cls", str(LABELS[row]).encode())):
                    entry = tarfile.TarInfo(f"{row}.{ending}")
                    entry.size = len(data)
                    archive.addfile(entry, io.BytesIO(data))
        files.append(path)
    options = [part for path in files for part in ("--data", path)]
    chosen = _settings(tmp_path / "study.toml")
    simulated = ["simulate", chosen, *options, "--backend", "loop", "--no-baselines", "--json"]
    here, there = (run_offline(*simulated, way) for way in ("--in-memory", "--lazy"))
    assert here == there
