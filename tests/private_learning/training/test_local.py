"""Private and plain local training against slow, independent computations."""

import logging
import math
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from torch import Tensor, nn

from client_sdk.errors import TrainingStopped
from private_learning.records import DataError, Table
from private_learning.tasks import Task, TaskDataset, load
from private_learning.training import LocalTraining, clipped
from private_learning.training.weights import load_weights, spec_of_model, weights_of
from study_protocol.randomness.source import SeededRandomness
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensors import Array
from tests.factories.hospitals import records
from tests.factories.settings import TASK_PARAMETERS, settings

CLIENT_LIMIT = {"level": "client", "definition": "classical", "epsilon": 50.0, "delta": 1e-5}
TASK = load("logistic-regression", TASK_PARAMETERS)
DATA = TASK.dataset(records(30))


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


def training(chosen: StudySettings, *, seed: int = 1, task: Task = TASK, data: TaskDataset = DATA) -> LocalTraining:
    return LocalTraining(task, data, chosen, SeededRandomness(seed, allow_insecure=True))


def start() -> dict[str, Array]:
    draw = np.random.default_rng(3)
    return {name: draw.normal(0, 1, a.shape).astype(np.float32) for name, a in weights_of(TASK.model()).items()}


def gradients(weights: Mapping[str, Array]) -> list[dict[str, Array]]:
    """Gradient of each record alone, by autograd on batches of one."""
    model = TASK.model()
    load_weights(model, weights)
    found: list[dict[str, Array]] = []
    for x, y in zip(DATA.inputs, DATA.targets, strict=True):
        model.zero_grad()
        TASK.loss(model(x[None]), y[None]).sum().backward()
        parameters = dict(model.named_parameters())
        found.append({n: p.grad.numpy().astype(np.float64) for n, p in parameters.items() if p.grad is not None})
    return found


def clipped_sum(weights: Mapping[str, Array], bound: float) -> dict[str, Array]:
    total = {name: np.zeros(array.shape) for name, array in weights.items()}
    for gradient in gradients(weights):
        norm = math.sqrt(sum(float((g**2).sum()) for g in gradient.values()))
        for name in total:
            total[name] += gradient[name] * min(1.0, bound / norm)
    return total


# So little noise that it vanishes beside float32, to compare the rest exactly.
SILENT = 1e-7


def test_one_gradient_is_the_clipped_sum_over_a_public_constant() -> None:
    chosen = settings(sampling_rate=1.0, noise_multiplier=SILENT, clip_norm=0.3, expected_batch_size=17.0)
    update = training(chosen).update(start(), None)
    for name, total in clipped_sum(start(), 0.3).items():
        # Clip factors stay 2^-14 below the bound; contributions that cancel keep that as an absolute difference.
        np.testing.assert_allclose(update[name], total / 17.0, rtol=0, atol=30 * 0.3 * 2**-14 / 17.0)
        assert update[name].dtype == np.float32


def test_several_local_steps_descend_one_after_another() -> None:
    how = {"algorithm": "fedavg", "local_steps": 3, "learning_rate": 0.5}
    chosen = settings(sampling_rate=1.0, noise_multiplier=SILENT, clip_norm=0.3, training=how)
    weights = start()
    for _ in range(3):
        total = clipped_sum(weights, 0.3)
        weights = {n: (w - 0.5 * total[n] / 20.0).astype(np.float32) for n, w in weights.items()}
    update = training(chosen).update(start(), None)
    for name, before in start().items():
        np.testing.assert_allclose(update[name], weights[name] - before, rtol=0, atol=3 * 30 * 0.3 * 2**-14 / 20.0)


def test_the_noise_is_what_the_study_promises() -> None:
    """Variance of noise alone: 600 coordinates; false alarm 2e-6 under a fixed seed."""
    chosen = settings(sampling_rate=1e-12, noise_multiplier=1.5, clip_norm=2.0, expected_batch_size=4.0)
    local = training(chosen, seed=5)
    drawn = np.concatenate(
        [
            np.concatenate([a.ravel() for a in local.update(start(), None, round_number=r).values()])
            for r in range(1, 201)
        ]
    )
    assert drawn.size == 600
    ratio = float((drawn.astype(np.float64) ** 2).sum()) / (1.5 * 2.0 / 4.0) ** 2
    assert chi2.ppf(1e-6, 600) < ratio < chi2.isf(1e-6, 600)


def test_an_empty_batch_is_noised_all_the_same() -> None:
    chosen = settings(sampling_rate=1e-12)
    update = training(chosen).update(start(), None)
    assert all(float(np.abs(array).min()) > 0 for array in update.values())


def test_another_round_has_other_noise() -> None:
    local = training(settings())
    first, second = (local.update(start(), None, round_number=round) for round in (1, 2))
    assert all((first[name] != second[name]).all() for name in first)


def test_a_clients_whole_update_stays_within_its_clip_norm() -> None:
    how = {"algorithm": "fedavg", "local_steps": 20, "learning_rate": 5.0}
    for bound in (0.01, 0.5):
        chosen = settings(scheme="client", limits=[CLIENT_LIMIT], clip_norm=bound, training=how)
        update = training(chosen).update(start(), None)
        norm = math.sqrt(sum(float((a.astype(np.float64) ** 2).sum()) for a in update.values()))
        assert bound * 0.999 < norm <= bound


def test_plain_training_is_gradient_descent_on_the_nominal_mean() -> None:
    chosen = settings(
        scheme="client", limits=[CLIENT_LIMIT], clip_norm=1e6, sampling_rate=1.0, expected_batch_size=30.0
    )
    update = training(chosen).update(start(), None)
    found = gradients(start())
    for name, array in update.items():
        np.testing.assert_allclose(array, sum(g[name] for g in found) / 30.0, rtol=1e-4, atol=1e-6)


def test_a_zero_update_is_not_scaled_up() -> None:
    zero = {"w": np.zeros(3, np.float32)}
    assert (clipped(zero, 1.0)["w"] == 0).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_number_in_an_update_is_never_clipped_to_something(bad: float) -> None:
    with pytest.raises(TrainingStopped):
        clipped({"w": np.array([1.0, bad], np.float32)}, 1.0)


@pytest.mark.parametrize("scheme", ["parallel", "client"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_bad_weights_stop_the_step(scheme: str, bad: float) -> None:
    limits = {"limits": [CLIENT_LIMIT]} if scheme == "client" else {}
    weights = start()
    weights["bias"] = np.array([bad], np.float32)
    with pytest.raises(TrainingStopped, match="nothing was sent"):
        training(settings(scheme=scheme, sampling_rate=1.0, **limits)).update(weights, None)


class Broken(Task):
    """A user's task whose loss is NaN for one of the records."""

    def model(self) -> nn.Module:
        return TASK.model()

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = TASK.loss(outputs, targets)
        return torch.where(outputs.squeeze(-1) > 0, torch.full_like(losses, math.nan), losses)

    def dataset(self, data: object) -> TaskDataset:
        return DATA

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        return {}


@pytest.mark.parametrize("scheme", ["parallel", "client"])
def test_a_record_whose_loss_is_nan_counts_as_zero_and_is_told_to_the_log_alone(
    scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "private_learning")
    limits = {"limits": [CLIENT_LIMIT]} if scheme == "client" else {}
    chosen = settings(scheme=scheme, sampling_rate=1.0, **limits)
    model = TASK.model()
    load_weights(model, start())
    above = model(DATA.inputs).detach().squeeze(-1) > 0
    assert 0 < int(above.sum()) < len(DATA)
    found = training(chosen, task=Broken()).update(start(), None)
    named = tuple(patient for patient, gone in zip(DATA.patients, above, strict=True) if not gone)
    sound = TaskDataset(DATA.inputs[~above], DATA.targets[~above], named)
    expected = training(chosen, data=sound).update(start(), None)
    for name in found:
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-6)
    assert f"{int(above.sum())} drawn records have no gradient" in caplog.text


def test_bad_data_and_two_rows_of_one_patient_never_reach_training() -> None:
    table = records(5)
    with pytest.raises(DataError, match="infinity"):
        TASK.dataset(Table.of({**table.columns, "age": [1.0, 2.0, math.inf, 4.0, 5.0]}))
    with pytest.raises(DataError, match="missing"):
        TASK.dataset(Table.of({**table.columns, "age": [1.0, 2.0, math.nan, 4.0, 5.0]}))
    twice = Table.of({**table.columns, "patient": ["a", "b", "a", "c", "d"]}, patient_column="patient")
    with pytest.raises(DataError, match="another"):
        training(settings(), data=TASK.dataset(twice))


def test_weights_go_into_a_model_and_come_out_again() -> None:
    model = TASK.model()
    load_weights(model, start())
    assert {n: (a.shape, a.dtype.name) for n, a in weights_of(model).items()} == spec_of_model(model)
    for name, array in weights_of(model).items():
        np.testing.assert_array_equal(array, start()[name])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("scheme", ["parallel", "client"])
def test_a_cuda_device_computes_the_same_update(scheme: str) -> None:
    limits = {"limits": [CLIENT_LIMIT], "clip_norm": 1e6} if scheme == "client" else {"noise_multiplier": SILENT}
    how = {"algorithm": "fedavg", "local_steps": 2, "learning_rate": 0.5}
    chosen = settings(scheme=scheme, sampling_rate=1.0, training=how, **limits)
    there = LocalTraining(TASK, DATA, chosen, SeededRandomness(1, allow_insecure=True), device="cuda")
    for name, array in there.update(start(), None).items():
        np.testing.assert_allclose(array, training(chosen).update(start(), None)[name], rtol=1e-3, atol=1e-5)
