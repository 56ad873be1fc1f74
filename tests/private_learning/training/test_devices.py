"""What a hospital may name as its device, and that a round's bytes do not depend on how many there are."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from client_sdk.errors import ConfigurationError
from private_learning.gradients import PerRecordGradients
from private_learning.records import Examples
from private_learning.tasks import load
from private_learning.training import LocalTraining
from private_learning.training.devices import devices_of
from private_learning.training.weights import weights_of
from study_protocol.randomness.source import SeededRandomness
from study_protocol.study.settings import StudySettings
from tests.factories.hospitals import coordinator, hospital, plain_policy, records
from tests.factories.settings import settings

IMAGES = {"height": 8, "width": 8, "channels": 1, "filters": 4, "hidden": 8, "classes": 3, "low": 0.0, "high": 1.0}
TASK = load("cnn", IMAGES)
LEVEL = {"level": "client", "definition": "classical", "epsilon": 50.0, "delta": 1e-5}


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


def study(**privacy: Any) -> StudySettings:
    """Two local steps over some 380 of 400 records: three passes each."""
    how = {"algorithm": "fedavg", "local_steps": 2, "learning_rate": 0.5, "task": "cnn", "task_parameters": IMAGES}
    return settings(training=how, sampling_rate=0.95, expected_batch_size=380.0, max_steps=20, **privacy)


def update(chosen: StudySettings, rows: int = 1, **more: Any) -> Mapping[str, np.ndarray]:
    draw = np.random.default_rng(5)
    patients = [f"p{i // rows}" for i in range(400 * rows)]
    examples = Examples.of(draw.random((400 * rows, 8, 8)), draw.integers(0, 3, 400 * rows), patients)
    data = TASK.dataset(examples).by_patient(rows)
    torch.manual_seed(6)
    weights = weights_of(TASK.model())
    training = LocalTraining(TASK, data, chosen, SeededRandomness(7, allow_insecure=True), **more)
    return training.update(weights, None)


def same(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in one | other)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 2], ids=["one row a patient", "two rows"])
def test_a_round_on_two_devices_has_the_bytes_of_one(rows: int) -> None:
    assert same(update(study(), rows), update(study(), rows, device="cpu,cpu"))


@pytest.mark.slow
def test_bfloat16_changes_the_model_s_products_and_keeps_the_round() -> None:
    exact, coarse = update(study(), device="cpu"), update(study(), bfloat16=True)
    assert not same(exact, coarse)
    assert same(coarse, update(study(), bfloat16=True, device="cpu,cpu"))
    # Noise is the same exact integers: what differs is bfloat16's 8 bits of clipped sums.
    size = np.sqrt(sum(float(np.square(value).sum()) for value in exact.values()))
    apart = np.sqrt(sum(float(np.square(exact[name] - coarse[name]).sum()) for name in exact))
    assert 0 < apart < 0.05 * size


def test_bfloat16_follows_the_weights_of_every_local_step() -> None:
    """Autocast keeps what it has cast, unless told otherwise: a second step would begin where the first one did."""
    level = {"limits": [LEVEL], "clip_norm": 1e6, "scheme": "client"}
    chosen = study(**level)
    (torch.manual_seed(6), weights := weights_of(TASK.model()))
    whole = update(chosen, bfloat16=True)
    parts = [np.linalg.norm(whole[name]) for name in weights]
    exact = update(chosen)
    assert all(
        np.linalg.norm(whole[name] - exact[name]) < 0.1 * part for name, part in zip(weights, parts, strict=True)
    )


def test_a_device_that_runs_out_of_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")

    monkeypatch.setattr(PerRecordGradients, "clipped_sum", full)
    with pytest.raises(ConfigurationError, match="memory of device 'cpu' does not suffice"):
        update(study())


def test_whatever_is_there() -> None:
    assert devices_of("auto") == (("cuda",) if torch.cuda.is_available() else ("cpu",))
    assert devices_of("cpu") == ("cpu",)
    assert devices_of("cpu, cpu") == ("cpu", "cpu")


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("meta,cpu", "one kind"),
        ("meta,meta", "stands there twice"),
        ("tape", "device 'tape' cannot be used here"),
        ("", "device '' cannot be used here"),
        ("cpu,", "device 'cpu,' cannot be used here"),
        ("cuda:99" if torch.cuda.is_available() else "cuda:all", "cannot be used here"),
    ],
    ids=["two kinds", "one twice", "no device", "nothing", "a comma at the end", "no such GPU"],
)
def test_devices_that_cannot_be_used_are_refused(named: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        devices_of(named)


def test_a_hospital_takes_part_with_two_devices(tmp_path: Path) -> None:
    other = coordinator()
    outcome = hospital(other, tmp_path).join(
        "sepsis", None, records(), device="cpu,cpu", policy=plain_policy(), dataset="icu"
    )
    assert outcome.rounds_sent == len(other.updates) > 0
