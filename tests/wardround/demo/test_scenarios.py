"""The demonstration's data: nobody is in two places, and files give back what was written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from private_learning.records import load as load_records
from private_learning.tasks import load
from tests.factories.demonstration import scenario_or_skip
from wardround.demo import scenarios
from wardround.demo.scenarios import DataMissing, Scenario


@pytest.fixture(params=["breast-cancer", "heart-disease", "mnist"])
def scenario(request: pytest.FixtureRequest) -> Scenario:
    return scenario_or_skip(request.param)


@pytest.mark.slow_cases("mnist")
def test_files_give_back_what_was_written(scenario: Scenario, tmp_path: Path):
    task = load(scenario.task, scenario.task_parameters)
    for name, records in scenario.hospitals.items():
        path = scenarios.write(records, tmp_path / name)
        again = load_records(path, patient_column="patient" if path.suffix == ".csv" else None)
        before, after = task.dataset(records), task.dataset(again)
        assert before.patients == after.patients
        torch.testing.assert_close(before.inputs, after.inputs)
        assert torch.equal(before.targets, after.targets)


@pytest.mark.parametrize("hospitals", [4, 5, 8])
@pytest.mark.parametrize("by_size", [True, False], ids=["by size", "at random"])
def test_every_patient_is_dealt_once_and_in_every_run_to_the_same_hospital(hospitals: int, by_size: bool):
    once, again = (scenarios.breast_cancer(hospitals=hospitals, by_size=by_size) for _ in range(2))
    everybody = [*once.evaluation.patients, *(p for r in once.hospitals.values() for p in r.patients)]
    assert sorted(map(int, everybody)) == list(range(569))
    assert list(once.hospitals) == list(scenarios.HOSPITALS[:hospitals])
    for name, records in once.hospitals.items():
        assert records.patients == again.hospitals[name].patients
    sizes = [len(records) for records in once.hospitals.values()]
    assert sizes == sorted(sizes, reverse=True)


def test_the_dealing_does_not_choose_the_evaluation_set():
    by_size, at_random = scenarios.breast_cancer(), scenarios.breast_cancer(by_size=False)
    assert by_size.evaluation.patients == at_random.evaluation.patients
    other = scenarios.breast_cancer(seed=1)
    assert other.hospitals["rural"].patients != by_size.hospitals["rural"].patients


def test_hospitals_see_tumours_of_their_own_size_with_some_overlap():
    measured = np.random.default_rng(0).permutation(100).astype(float)
    sharp = scenarios.by_tumour_size(measured, [40, 30, 20, 10], np.random.default_rng(0), overlap=0.0)
    spans = [(measured[rows].min(), measured[rows].max()) for rows in sharp]
    # From the smallest tumours to the largest: fourth, second, first, third.
    assert spans == [(40, 79), (10, 39), (80, 99), (0, 9)]
    mixed = scenarios.by_tumour_size(measured, [40, 30, 20, 10], np.random.default_rng(0))
    assert measured[mixed[1]].max() > measured[mixed[0]].min()
    assert sorted(np.concatenate(mixed)) == list(range(100))


@pytest.mark.parametrize(("which", "sizes"), [("breast-cancer", 569), ("heart-disease", 920)])
def test_every_patient_is_in_one_place(which: str, sizes: int):
    scenario = scenario_or_skip(which)
    everybody = [*scenario.evaluation.patients, *(p for r in scenario.hospitals.values() for p in r.patients)]
    assert len(everybody) == len(set(everybody)) == sizes
    assert scenario.patients + len(scenario.evaluation) == sizes


def test_the_real_hospitals_have_their_own_patients_only():
    scenario = scenario_or_skip("heart-disease")
    for site, records in scenario.hospitals.items():
        assert {patient.rsplit("-", 1)[0] for patient in records.patients} == {site}
    counts = {site: round(len(records) / 0.8) for site, records in scenario.hospitals.items()}
    assert counts == pytest.approx({"cleveland": 303, "hungarian": 294, "va": 200, "switzerland": 123}, abs=2)


def test_digits_of_different_clients_are_different():
    scenario = scenario_or_skip("mnist")
    inputs = np.concatenate([records.inputs for records in scenario.hospitals.values()])  # type: ignore[union-attr]
    assert len(np.unique(inputs, axis=0)) == len(inputs) == 160
    with pytest.raises(DataMissing, match="there are only 60000"):
        scenarios.mnist(7, 10_000)


def test_missing_files_say_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("WARDROUND_DATA", str(tmp_path))
    with pytest.raises(DataMissing, match="set WARDROUND_DATA"):
        scenarios.heart_disease()
