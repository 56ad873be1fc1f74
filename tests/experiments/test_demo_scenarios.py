"""The demonstration's data: nobody is in two places, and files give back what was written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from accounting.budget.budget import Budget
from client_sdk.data import load as load_records
from client_sdk.protocol.study.plan_of import plan_of
from client_sdk.tasks import load
from experiments.demo import scenarios
from experiments.demo.scenarios import DataMissing, Scenario
from experiments.demo.settings import settings


def _make(which: str) -> Scenario:
    makers: dict[str, Callable[[], Scenario]] = {
        "breast-cancer": scenarios.breast_cancer,
        "heart-disease": scenarios.heart_disease,
        "mnist": lambda: scenarios.mnist(4, 40),
    }
    try:
        return makers[which]()
    except DataMissing as error:
        pytest.skip(str(error))


@pytest.fixture(params=["breast-cancer", "heart-disease", "mnist"])
def scenario(request: pytest.FixtureRequest) -> Scenario:
    return _make(request.param)


def test_files_give_back_what_was_written(scenario: Scenario, tmp_path: Path):
    task = load(scenario.task, scenario.task_parameters)
    for name, records in scenario.hospitals.items():
        path = scenarios.write(records, tmp_path / name)
        again = load_records(path, patient_column="patient" if path.suffix == ".csv" else None)
        before, after = task.dataset(records), task.dataset(again)
        assert before.patients == after.patients
        torch.testing.assert_close(before.inputs, after.inputs)
        assert torch.equal(before.targets, after.targets)


@pytest.mark.parametrize("scheme", ["parallel", "client"])
def test_the_first_round_of_every_study_fits_its_budget(scenario: Scenario, scheme: str):
    chosen = settings(scenario, scheme)  # type: ignore[arg-type]
    budget = Budget.open(plan_of(chosen))
    assert budget.authorise().allowed
    assert settings(scenario, scheme, epsilon=5.5).privacy.limits[0].epsilon == 5.5  # type: ignore[arg-type]


@pytest.mark.parametrize(("which", "sizes"), [("breast-cancer", 569), ("heart-disease", 920)])
def test_every_patient_is_in_one_place(which: str, sizes: int):
    scenario = _make(which)
    everybody = [*scenario.evaluation.patients, *(p for r in scenario.hospitals.values() for p in r.patients)]
    assert len(everybody) == len(set(everybody)) == sizes
    assert scenario.patients + len(scenario.evaluation) == sizes


def test_the_real_hospitals_have_their_own_patients_only():
    scenario = _make("heart-disease")
    for site, records in scenario.hospitals.items():
        assert {patient.rsplit("-", 1)[0] for patient in records.patients} == {site}
    counts = {site: round(len(records) / 0.8) for site, records in scenario.hospitals.items()}
    assert counts == pytest.approx({"cleveland": 303, "hungarian": 294, "va": 200, "switzerland": 123}, abs=2)


def test_digits_of_different_clients_are_different():
    scenario = _make("mnist")
    inputs = np.concatenate([records.inputs for records in scenario.hospitals.values()])  # type: ignore[union-attr]
    assert len(np.unique(inputs, axis=0)) == len(inputs) == 160
    with pytest.raises(DataMissing, match="there are only 60000"):
        scenarios.mnist(7, 10_000)


def test_missing_files_say_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("WARDROUND_DATA", str(tmp_path))
    with pytest.raises(DataMissing, match="set WARDROUND_DATA"):
        scenarios.heart_disease()
