"""Weights that overflow for one patient alone: which rounds are completed says nothing of whether the patient is there.

Over real HTTP with four hospitals. A hospital that stopped whenever the patient is drawn would lose its rounds, and
only those: the coordinator that made the weights would read membership off the rounds (δ ≥ the sampling rate).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from private_learning import tasks
from private_learning.records import Table
from private_learning.training.weights import weights_of
from study_protocol.study.bounds import MAX_WEIGHT
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensors import Array
from tests.factories.asking import drive, enrolled
from tests.factories.hospitals import records
from tests.factories.live_coordinator import Live, live
from tests.factories.settings import TASK_PARAMETERS, limit, settings
from tests.factories.studies import FakeClock

pytestmark = pytest.mark.timeout(600)
NAMES = ("alpha", "beta", "gamma", "delta")
TASK = {"task": "mlp", "task_parameters": {**TASK_PARAMETERS, "hidden": 2, "layers": 4}}
AGE = 50.0


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path / "home", time_of_day=FakeClock(), long_poll_seconds=0.2) as coordinator:
        yield coordinator


def study(rounds: int) -> StudySettings:
    # So small a rate that the weights stay what they are.
    training = {**TASK, "optimiser": {"learning_rate": 1e-30}}
    limits = [limit("instance", epsilon=1e6)]
    return settings(training=training, limits=limits, max_steps=rounds, schedule={"min_clients": 4})


def with_patient(table: Table) -> Table:
    """The same records and one patient more, of exactly this age."""
    patient = {"age": AGE, "rate": 5.0, "ill": 1.0}
    columns = {name: [*table.columns[name], value] for name, value in patient.items()}
    columns["patient"] = [*table.patients, "target"]
    return Table.of(columns, patient_column="patient")


def crafted() -> dict[str, Array]:
    """Weights within the bound: every unit is flat for all but the patient, for whom slopes multiply beyond float32."""
    task = tasks.load(TASK["task"], TASK["task_parameters"])
    (age, *_), *_ = task.dataset(with_patient(records(1))).inputs[-1:].tolist()
    weights = {name: np.zeros_like(array) for name, array in weights_of(task.model()).items()}
    names = [name for name in weights if name.endswith("weight")]
    for name in names:
        weights[name][0, 0] = MAX_WEIGHT
    weights[names[0].replace("weight", "bias")][0] = -MAX_WEIGHT * age
    return weights


def completed(
    here: Live, home: Path, monkeypatch: pytest.MonkeyPatch, study_name: str, rounds: int, *, patient: bool
) -> list[str]:
    """How each round ended, in their order."""
    monkeypatch.setattr("tests.factories.asking.weights_of", lambda _: crafted())

    def data(seed: int) -> Table:
        return with_patient(records(seed=seed)) if patient and seed == 0 else records(seed=seed)

    sites = enrolled(here, home, study(rounds), names=NAMES, data=data, study=study_name)
    for site in sites:
        site.start()
    drive(here, lambda: not any(site.is_alive() for site in sites), sites=sites, seconds=240.0)
    assert [site.outcome.rounds_refused for site in sites] == [0] * len(NAMES)
    found: list[Any] = [here.operator("GET", f"/v1/studies/{study_name}/rounds/{n + 1}").json() for n in range(rounds)]
    assert {client["state"] for each in found for client in each["clients"]} == {"received"}
    return [each["state"] for each in found]


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_the_same_rounds_are_completed_with_and_without_the_patient(
    here: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, rounds: int
) -> None:
    caplog.set_level(logging.WARNING)
    without = completed(here, tmp_path / "without", monkeypatch, "without", rounds, patient=False)
    assert "have no gradient" not in caplog.text
    among = completed(here, tmp_path / "with", monkeypatch, "with", rounds, patient=True)
    # That the weights do what they are made for is seen in the hospital alone: not drawn in all rounds once in 2³.
    if rounds > 3:
        assert "1 drawn records have no gradient" in caplog.text
    assert without == among == ["released"] * rounds
