"""The prior's gradient: that of the divergence between normals, and added by whoever takes the step."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Normal, kl_divergence

from private_learning.tasks import load
from private_learning.training import LocalTraining
from private_learning.training.weights import weights_of
from server.domain.optimiser import begin, released
from study_protocol.randomness.source import SeededRandomness
from study_protocol.study.prior import Prior, prior_of
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensor_files import Arrays
from study_protocol.wire.tensors import Array
from tests.factories.hospitals import records
from tests.factories.settings import TASK_PARAMETERS, settings

NAME = "bayesian-logistic-regression"
PARAMETERS = TASK_PARAMETERS | {"prior-std": 0.5, "patients": 20}
PRIOR = Prior(0.5, 20.0)
TASK = load(NAME, PARAMETERS)
CLIENT_LIMIT = {"level": "client", "definition": "classical", "epsilon": 50.0, "delta": 1e-5}
SILENT = 1e-7


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


def weights() -> dict[str, Array]:
    rng = np.random.default_rng(3)
    return {
        name: rng.normal(-0.5, 0.3, array.shape).astype(np.float32) for name, array in weights_of(TASK.model()).items()
    }


def study(**options: Any) -> StudySettings:
    training = {"task": NAME, "task_parameters": PARAMETERS} | options.pop("training", {})
    return settings(training=training, sampling_rate=1.0, clip_norm=0.5, expected_clients=1.0, **options)


def test_it_is_the_gradient_of_the_divergence() -> None:
    mean, spread = (torch.tensor([[0.7, -2.0, 0.1]], dtype=torch.float64, requires_grad=True) for _ in range(2))
    (kl_divergence(Normal(mean, spread.exp()), Normal(0.0, 0.5)).sum() / 20).backward()
    for name, found in (("mean.weight", mean), ("spread.weight", spread)):
        assert found.grad is not None
        np.testing.assert_allclose(PRIOR.gradient(name, found.detach().numpy()), found.grad.numpy(), rtol=1e-12)


def test_only_studies_that_name_both_numbers_have_one() -> None:
    assert prior_of(PARAMETERS) == PRIOR
    assert prior_of(TASK_PARAMETERS | {"patients": 20}) is None
    for wrong in (0, -1.0, True, "many", 1e13, float("nan")):
        with pytest.raises(ValueError, match="patients of task_parameters"):
            prior_of({"prior-std": 0.5, "patients": wrong})
    assert study().training.prior == PRIOR
    assert settings().training.prior is None


def loss_gradient(at: dict[str, Array], clip: float) -> dict[str, Array]:
    """The clipped mean over 20 of the records' gradients, without the prior: one backward a record."""
    data, model = TASK.dataset(records(30)), TASK.model()
    total = {name: np.zeros(array.shape) for name, array in at.items()}
    for name, parameter in model.named_parameters():
        parameter.data = torch.tensor(at[name])
    for i in range(len(data)):
        model.zero_grad()
        TASK.loss(model(data.inputs[i : i + 1]), data.targets[i : i + 1]).sum().backward()
        own = {name: parameter.grad.double().numpy() for name, parameter in model.named_parameters()}  # type: ignore[union-attr]
        norm = np.sqrt(sum(float((part**2).sum()) for part in own.values()))
        for name, part in own.items():
            total[name] += part * min(1.0, clip / norm) / 20.0
    return total


def contribution(chosen: StudySettings, start: dict[str, Array]) -> dict[str, Array]:
    local = LocalTraining(TASK, TASK.dataset(records(30)), chosen, SeededRandomness(1, allow_insecure=True))
    return local.contribution(start, None).update


def test_fedavg_adds_it_in_the_local_step_after_clip_and_noise() -> None:
    training = {"algorithm": "fedavg", "local_steps": 1, "learning_rate": 0.3}
    start = weights()
    moved, mean = contribution(study(noise_multiplier=SILENT, training=training), start), loss_gradient(start, 0.5)
    for name, before in start.items():
        # The prior's part is 1 to 4 times as long as the clip allows a record: it was not clipped.
        expected = -0.3 * (mean[name] + PRIOR.gradient(name, before))
        np.testing.assert_allclose(moved[name], expected, rtol=2e-3, atol=2e-5)


@pytest.mark.parametrize("optimiser", ["plain", "momentum", "adam"])
def test_fedsgd_sends_gradients_without_it_and_the_coordinator_adds_it(optimiser: str) -> None:
    chosen = study(noise_multiplier=SILENT, training={"optimiser": {"name": optimiser, "learning_rate": 0.3}})
    start = weights()
    sent, mean = contribution(chosen, start), loss_gradient(start, 0.5)
    for name in start:
        np.testing.assert_allclose(sent[name], mean[name], rtol=2e-3, atol=2e-5)
    total = Arrays({name: array.astype(np.float64) for name, array in sent.items()})
    new, state = released(chosen, Arrays(start), total, begin())
    without = study(training={"optimiser": {"name": optimiser, "learning_rate": 0.3}, "task_parameters": {}})
    pulled = {name: sent[name] + PRIOR.gradient(name, before) for name, before in start.items()}
    same, other = released(without, Arrays(start), Arrays(pulled), begin())
    for name in start:
        np.testing.assert_allclose(new[name], same[name], rtol=1e-6)
    assert (state.moments is None) == (other.moments is None)


@pytest.mark.parametrize(
    "privacy",
    [
        {"scheme": "parallel"},
        {"scheme": "sequential", "masked": True},
        {"scheme": "joint", "masked": True},
        {"scheme": "client", "limits": [CLIENT_LIMIT]},
    ],
    ids=lambda privacy: privacy["scheme"],
)
@pytest.mark.parametrize("algorithm", ["fedsgd", "fedavg"])
def test_the_noise_and_the_charge_do_not_see_it(privacy: dict[str, Any], algorithm: str) -> None:
    """A prior of another width moves no gradient that is sent, and with it no noise, distance or charge."""
    if algorithm == "fedavg" and privacy["scheme"] in ("sequential", "joint"):
        pytest.skip("one noised gradient a round there")
    start, training = weights(), {"algorithm": algorithm}
    found: list[dict[str, Array]] = []
    for width in (0.5, 5.0):
        changed = training | {"task_parameters": PARAMETERS | {"prior-std": width}}
        found.append(contribution(study(training=changed, **privacy), start))
    for name, before in start.items():
        gap = Prior(0.5, 20.0).gradient(name, before) - Prior(5.0, 20.0).gradient(name, before)
        expected = np.zeros_like(gap) if algorithm == "fedsgd" else -gap
        if algorithm == "fedavg" and privacy["scheme"] == "client":
            continue  # the whole way is clipped there, the prior's part of it with the rest
        np.testing.assert_allclose(found[0][name] - found[1][name], expected, rtol=1e-3, atol=1e-6)
