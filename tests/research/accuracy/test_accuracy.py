"""The accuracy experiment on breast cancer: what it says it spent is what it spent, and it learns."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant

from accounting import ClassicalAccountant
from research.accuracy import accuracy
from research.accuracy.accuracy_data import WORKLOADS
from research.accuracy.oriented_gradients import oriented_gradients
from study_protocol.randomness.source import SeededSource

CANCER = WORKLOADS["breast-cancer"]


@pytest.fixture(autouse=True)
def _results_file_untouched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> Iterator[None]:
    monkeypatch.setattr(accuracy, "RESULTS", tmp_path / "accuracy.json")
    # The command silences the seeded source; at_level puts the level back for the tests that come after.
    with caplog.at_level(logging.WARNING, logger="study_protocol.randomness.source"):
        yield


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_quick_run_prints_the_accounted_epsilon_and_beats_the_majority(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["accuracy", "--data", "breast-cancer", "--quick"])
    accuracy.main()
    assert not accuracy.RESULTS.exists()
    row = capsys.readouterr().out.strip().splitlines()[-1].split()
    epsilon, noise, private = (float(word) for word in row[:3])
    plan = accuracy.plan(CANCER, 1.0)
    assert epsilon == pytest.approx(plan.epsilon, abs=1e-3)
    assert noise == pytest.approx(plan.noise_multiplier, abs=1e-2)
    majority = sum(CANCER.split(seed).majority for seed in range(2)) / 2
    # Two fixed seeds: the outcome repeats. Chance would have to add 10 points to a model that learned nothing.
    assert private > 100 * (majority + 0.1)


def test_plan_is_what_the_accountants_say() -> None:
    plan = accuracy.plan(CANCER, 1.0)
    assert plan.epsilon <= 1.0
    ours = ClassicalAccountant(delta=accuracy.DELTA, method="pld")
    for _ in range(CANCER.steps):
        ours.step(noise_multiplier=plan.noise_multiplier, sampling_rate=CANCER.sampling_rate)
    assert plan.epsilon == ours.epsilon()
    theirs = PLDAccountant()
    event = PoissonSampledDpEvent(CANCER.sampling_rate, GaussianDpEvent(plan.noise_multiplier))
    theirs.compose(event, CANCER.steps)
    assert plan.epsilon == pytest.approx(theirs.get_epsilon(accuracy.DELTA), rel=1e-2)


def test_release_of_the_mean_is_charged() -> None:
    assert accuracy.plan(WORKLOADS["mnist"], 1.0).steps == WORKLOADS["mnist"].steps + 1
    assert CANCER.steps == accuracy.plan(CANCER, 1.0).steps


def test_every_image_is_mapped_by_itself_to_norm_one() -> None:
    images = torch.randint(0, 256, (7, 28, 28), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    images[3] = 9
    features = oriented_gradients(images)
    assert features.shape == (7, 8 * 7 * 7)
    # The grey image has an edge too: the border, where the blur meets zeros.
    torch.testing.assert_close(features.norm(dim=1), torch.ones(7))
    torch.testing.assert_close(oriented_gradients(images[2:3])[0], features[2])
    with pytest.raises(ValueError, match="28, 30"):
        oriented_gradients(torch.zeros(1, 28, 30))


def test_an_edge_is_counted_in_its_own_direction() -> None:
    image = torch.zeros(1, 28, 28)
    image[:, :, 14:] = 255
    # Dark left of bright: one of the two directions across the edge sees it, those along the edge see none.
    inner = oriented_gradients(image).reshape(8, 7, 7)[:, 3, 3].square()
    assert inner.argmax() in (0, 4)
    assert inner[2] < 1e-6 * inner.max()
    assert inner[6] < 1e-6 * inner.max()


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("name", ["breast-cancer", "wide"])
def test_with_next_to_no_noise_ours_and_opacus_walk_the_same_path(name: str) -> None:
    workload = CANCER if name == "breast-cancer" else replace(CANCER, hidden=8)
    split = CANCER.split(0)
    ends: list[dict[str, torch.Tensor]] = []
    for ours in (True, False):
        torch.manual_seed(3)
        model = workload.model(split.inputs.shape[1])
        source = SeededSource(0, allow_insecure=True)
        step = (
            accuracy.private_step(workload, model, 100.0, 1e-7, source)
            if ours
            else accuracy.opacus_step(workload, model, 100.0, 1e-7, 0)
        )
        for start in range(0, 400, 50):
            step(split.inputs[start : start + 50], split.targets[start : start + 50])
        ends.append({key: value.detach().clone() for key, value in model.named_parameters()})
    for a, b in zip(ends[0].values(), ends[1].values(), strict=True):
        # Our clip factor stays 2^-14 below the clip norm.
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
        assert float(a.abs().max()) > 0.01
