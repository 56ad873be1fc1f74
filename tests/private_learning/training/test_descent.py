"""What is done to noised gradients: optimisers, learning rates and layers, against slow or independent computations."""

import logging
import math
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn

from private_learning.gradients import PerRecordGradients
from private_learning.tasks import load
from private_learning.training import LocalTraining
from private_learning.training.descent import Descent
from private_learning.training.gradients import PrivateGradients, layers
from private_learning.training.weights import weights_of
from study_protocol.randomness.source import SeededRandomness
from study_protocol.study.settings import StudySettings
from study_protocol.study.training import LearningRateSchedule
from tests.factories.hospitals import records
from tests.factories.settings import TASK_PARAMETERS, settings

SILENT = 1e-7
TASK = load("logistic-regression", TASK_PARAMETERS)
DATA = TASK.dataset(records(30))
FEDAVG = {"algorithm": "fedavg", "local_steps": 4, "learning_rate": 0.3}
CLIENT_LIMIT = {"level": "client", "definition": "classical", "epsilon": 50.0, "delta": 1e-5}


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


def study(max_steps: int = 400, **training: Any) -> StudySettings:
    how = FEDAVG | training
    return settings(training=how, sampling_rate=1.0, noise_multiplier=SILENT, clip_norm=0.5, max_steps=max_steps)


def update(chosen: StudySettings, round: int = 1) -> np.ndarray:
    start = {"weight": np.array([[0.3, -0.2]], np.float32), "bias": np.array([0.1], np.float32)}
    local = LocalTraining(TASK, DATA, chosen, SeededRandomness(1, allow_insecure=True))
    found = local.contribution(start, None, round_number=round).update
    return np.concatenate([found["bias"].ravel(), found["weight"].ravel()]).astype(np.float64)


def mean_gradient(point: np.ndarray) -> np.ndarray:
    """The clipped sum over 20, in numpy: bias first."""
    x = np.column_stack([np.ones(len(DATA)), DATA.inputs.numpy().astype(np.float64)])
    each = (1 / (1 + np.exp(-x @ point)) - DATA.targets.numpy())[:, None] * x
    norms = np.linalg.norm(each, axis=1)
    return (each * np.minimum(1.0, 0.5 / norms)[:, None]).sum(0) / 20.0


def by_hand(name: str, rate: float, steps: int = 4, proximal: float = 0.0) -> np.ndarray:
    """Polyak's momentum and Adam (Kingma & Ba 2015, Algorithm 1) as they stand in the papers."""
    begin = np.array([0.1, 0.3, -0.2])
    point, first, second = begin.copy(), np.zeros(3), np.zeros(3)
    for t in range(1, steps + 1):
        gradient = mean_gradient(point) + proximal * (point - begin)
        if name == "momentum":
            first = 0.8 * first + gradient
            point = point - rate * first
        elif name == "adam":
            first, second = 0.8 * first + 0.2 * gradient, 0.95 * second + 0.05 * gradient**2
            point = point - rate * (first / (1 - 0.8**t)) / (np.sqrt(second / (1 - 0.95**t)) + 1e-8)
        else:
            point = point - rate * gradient
    return point - begin


@pytest.mark.parametrize("name", ["plain", "momentum", "adam"])
def test_optimisers_take_the_steps_of_their_papers(name: str) -> None:
    chosen = study(local_optimiser={"name": name, "momentum": 0.8, "second_momentum": 0.95})
    np.testing.assert_allclose(update(chosen), by_hand(name, 0.3), rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("name", ["plain", "momentum", "adam"])
def test_the_proximal_term_is_part_of_the_steps_of_every_optimiser(name: str) -> None:
    chosen = study(proximal=2.0, local_optimiser={"name": name, "momentum": 0.8, "second_momentum": 0.95})
    expected = by_hand(name, 0.3, proximal=2.0)
    assert np.abs(expected - by_hand(name, 0.3)).max() > 0.02
    np.testing.assert_allclose(update(chosen), expected, rtol=2e-3, atol=2e-4)


def test_proximal_steps_on_a_quadratic_are_its_closed_form() -> None:
    """½‖w − a‖² + µ/2·‖w − w₀‖²: after K steps w₀ + (a − w₀)(1 − (1 − η(1 + µ))^K)/(1 + µ)."""
    model = nn.Linear(3, 1, bias=False).double()
    start, goal = model.weight.detach().clone(), torch.tensor([[3.0, -1.0, 0.5]], dtype=torch.float64)
    descent = Descent(model, study(proximal=1.5, learning_rate=0.2), 1)
    for _ in range(7):
        descent.step({"weight": model.weight.detach() - goal})
    expected = start + (goal - start) * (1 - (1 - 0.2 * 2.5) ** 7) / 2.5
    torch.testing.assert_close(model.weight.detach(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("scheme", ["client", "client-distributed"])
def test_a_whole_update_with_a_proximal_term_is_clipped_to_the_same_norm(scheme: str) -> None:
    """The term is in steps on gradients without noise there. The clip comes after all of them, and bounds the same."""
    free, drawn = (
        update(settings(scheme, training=FEDAVG | more, clip_norm=0.02, noise_multiplier=SILENT, max_steps=8))
        for more in ({}, {"proximal": 2.0})
    )
    for found in (free, drawn):
        assert np.linalg.norm(found) == pytest.approx(0.02, rel=1e-3)
    assert np.linalg.norm(free - drawn) > 1e-4


def test_a_proximal_term_of_zero_is_none_to_the_last_bit() -> None:
    noised = settings(training=FEDAVG | {"proximal": 0.0}, max_steps=8)
    without = settings(training=FEDAVG, max_steps=8)
    assert noised.digest() == without.digest()
    np.testing.assert_array_equal(update(noised), update(without))


def test_the_proximal_term_comes_after_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a drawn record a step is its noise: the steps are -rate times the noises, the older the more drawn."""
    noises: list[np.ndarray] = []
    compute = PrivateGradients.at

    def recorded(self: PrivateGradients, step: int) -> dict[str, torch.Tensor]:
        gradient = compute(self, step)
        noises.append(np.concatenate([gradient["bias"].ravel(), gradient["weight"].ravel()]))
        return gradient

    monkeypatch.setattr(PrivateGradients, "at", recorded)
    empty = {"sampling_rate": 1e-9, "noise_multiplier": 1.0, "max_steps": 8}
    free, drawn = (update(settings(training=FEDAVG | more, **empty)) for more in ({}, {"proximal": 2.0}))
    np.testing.assert_array_equal(noises[:4], noises[4:])
    np.testing.assert_allclose(free, -0.3 * np.sum(noises[:4], axis=0), rtol=0, atol=1e-6)
    shares = np.array([0.4**3, 0.4**2, 0.4, 1.0])[:, None]
    np.testing.assert_allclose(drawn, -0.3 * np.sum(shares * noises[:4], axis=0), rtol=0, atol=1e-6)


def test_an_optimiser_is_new_in_every_round() -> None:
    chosen = study(local_optimiser={"name": "momentum"})
    local = LocalTraining(TASK, DATA, chosen, SeededRandomness(1, allow_insecure=True))
    start = weights_of(TASK.model())
    first, second = (local.contribution(start, None, round_number=r).update for r in (1, 2))
    for name, array in first.items():
        np.testing.assert_allclose(array, second[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("round", [1, 2, 37, 100])
@pytest.mark.parametrize(
    "schedule",
    [{"name": "constant"}, {"name": "step", "every": 12, "factor": 0.4}, {"name": "cosine", "final": 0.1}],
)
def test_learning_rates_are_those_of_torchs_schedulers(round: int, schedule: dict[str, Any]) -> None:
    optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=2.0)
    scheduler = {
        "constant": lambda: torch.optim.lr_scheduler.ConstantLR(optimiser, factor=1.0),
        "step": lambda: torch.optim.lr_scheduler.StepLR(optimiser, 12, 0.4),
        "cosine": lambda: torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 100, 0.2),
    }[schedule["name"]]()
    for _ in range(round - 1):
        optimiser.step()
        scheduler.step()
    chosen = LearningRateSchedule.model_validate(schedule)
    assert 2.0 * chosen.share(round, 100) == pytest.approx(optimiser.param_groups[0]["lr"], rel=1e-9)


def test_rounds_after_abandoned_ones_keep_the_last_rate() -> None:
    cosine = LearningRateSchedule(name="cosine")
    assert cosine.share(101, 100) == cosine.share(150, 100) == cosine.share(100, 100) > 0
    assert LearningRateSchedule(name="step", every=1).share(10_000, 100) == 0.0


def test_a_rounds_number_sets_its_learning_rate() -> None:
    # 400 steps in rounds of 4: 100 rounds; round 51 stands in the middle of the cosine.
    chosen = study(learning_rate_schedule={"name": "cosine"})
    np.testing.assert_allclose(update(chosen, round=51), by_hand("plain", 0.15), rtol=2e-3, atol=2e-4)
    chosen = study(learning_rate_schedule={"name": "step", "every": 2, "factor": 0.5})
    np.testing.assert_allclose(update(chosen, round=3), by_hand("plain", 0.15), rtol=2e-3, atol=2e-4)


def test_noise_is_the_same_whatever_follows_it() -> None:
    """An optimiser is post-processing: momentum 0 is plain, to the last bit, and draws nothing."""
    plain = settings(training=FEDAVG, max_steps=8)
    still = settings(training=FEDAVG | {"local_optimiser": {"name": "momentum", "momentum": 0.0}}, max_steps=8)
    np.testing.assert_array_equal(update(plain), update(still))


@pytest.mark.parametrize(
    "training", [{"local_optimiser": {"name": "adam"}}, {"learning_rate_schedule": {"name": "cosine"}}]
)
def test_fedsgd_takes_no_local_steps_and_says_so(training: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="belong to fedavg"):
        settings(training=training)


@pytest.mark.parametrize(
    "training",
    [
        {"local_optimiser": {"name": "lion"}},
        {"local_optimiser": {"name": "momentum", "momentum": 1.0}},
        {"local_optimiser": {"name": "momentum", "momentum": -0.0}},
        {"local_optimiser": {"name": "adam", "stability": math.inf}},
        {"learning_rate_schedule": {"name": "step", "factor": 0.0}},
        {"learning_rate_schedule": {"name": "step", "every": 0}},
        {"learning_rate_schedule": {"name": "cosine", "final": math.nan}},
        {"rows_per_patient": 0},
        {"clipping": "adaptive"},
    ],
)
def test_bad_settings_are_refused(training: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        settings(training=FEDAVG | training)


def test_layers_are_clipped_apart_and_records_stay_within_the_clip_norm() -> None:
    torch.manual_seed(3)
    task = load("mlp", {"label": "ill", "column.age": "0..100", "column.rate": "0..10", "hidden": 5})
    model, data = task.model().eval(), task.dataset(records(25))
    groups = layers(model)
    assert groups == [["0.weight", "0.bias"], ["2.weight", "2.bias"]]
    chosen = settings(
        training={"task": "mlp", "clipping": "per-layer"}, clip_norm=0.3, sampling_rate=1.0, noise_multiplier=SILENT
    )
    local = LocalTraining(task, data, chosen, SeededRandomness(1, allow_insecure=True))
    found = local.update(weights_of(model), None)
    expected = {name: np.zeros(tuple(p.shape)) for name, p in model.named_parameters()}
    bound = 0.3 / math.sqrt(2)
    whole = PerRecordGradients(model, task.loss).norms(data.inputs, data.targets).numpy()
    for i, (x, y) in enumerate(zip(data.inputs, data.targets, strict=True)):
        model.zero_grad()
        task.loss(model(x[None]), y[None]).sum().backward()
        gradient = {n: p.grad.numpy().astype(np.float64) for n, p in model.named_parameters() if p.grad is not None}
        square = 0.0
        for group in groups:
            norm = math.sqrt(sum(float((gradient[n] ** 2).sum()) for n in group))
            square += min(norm, bound) ** 2
            for n in group:
                expected[n] += gradient[n] * min(1.0, bound / norm)
        # What the accounts charge, the whole norm cut at the clip norm, is never less than what the record adds.
        assert math.sqrt(square) <= min(whole[i], 0.3) * (1 + 1e-6)
    for name, array in found.items():
        np.testing.assert_allclose(array, expected[name] / 20.0, rtol=0, atol=25 * 0.3 * 2**-13 / 20.0)


def test_whole_updates_have_no_layers_to_clip() -> None:
    with pytest.raises(ValidationError, match="per-layer"):
        settings(scheme="client", limits=[CLIENT_LIMIT], training={"clipping": "per-layer"})
