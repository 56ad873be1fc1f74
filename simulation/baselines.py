"""The baselines of a study's accuracy, on the same records: without noise, pooled, and one hospital alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from client_sdk.errors import TrainingStopped
from private_learning.tasks import Task, TaskDataset
from private_learning.tasks.inputs import in_memory, parts
from private_learning.training.patients import Loss, LossOfPatients, RowsOfPatients
from simulation.population import Population
from study_protocol.study.settings import StudySettings

BATCH, STEPS = 128, 400
# Of the weights of standardised inputs: too small to be seen where a minimum is, and where classes can be parted by a
# plane there would be none without.
DECAY = 1e-6
MOST_ITERATIONS = 500
# Of so many clients each is trained alone. Of more, as many of them.
_MOST_ALONE = 20
# Beside its largest value, a deviation that is rounding alone.
_CONSTANT = 1e-9
# Noise that moves no model, on a grid that sums of any batch fit. And a limit that it keeps.
_QUIET, _ANY = 1e-3, 1e30


def fitted(task: Task, dataset: TaskDataset, seed: int = 0, *, steps: int = STEPS) -> nn.Module:
    """A model trained on all records without privacy: a linear one to its optimum.

    steps: of mini-batches, for all others

    Raises:
        TrainingStopped: its weights are not finite.
    """
    with torch.random.fork_rng(devices=[]):  # pyright: ignore[reportUnknownMemberType]
        torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]
        model = task.model()
        loss = LossOfPatients(task.loss) if dataset.grouped else task.loss
        if isinstance(model, nn.Linear):
            _by_quasi_newton(model, loss, dataset)
        else:
            _by_adam(RowsOfPatients(model) if dataset.grouped else model, loss, dataset, seed, steps)
    if not all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters()):
        raise TrainingStopped("training without privacy")
    return model.eval()


def _by_quasi_newton(layer: nn.Linear, loss: Loss, dataset: TaskDataset) -> None:
    """L-BFGS on all records: the loss of a linear model has one minimum, which no seed decides.

    Inputs are standardised and turned to their principal axes, each stretched to unit variance. So the encoding of the
    columns and their correlations change neither the minimum nor the number of steps to it. The weights of standardised
    inputs bear a decay of `DECAY`, which moves the minimum only where it lies at infinity.
    """
    # Every iteration needs them all.
    inputs = in_memory(dataset.inputs).double()
    rows, has_bias = inputs.flatten(0, -2), "bias" in dict(layer.named_parameters())
    centre = rows.mean(0) if has_bias else torch.zeros_like(rows[0])
    deviation = (rows - centre).square().mean(0).sqrt()
    # An input that is the same for all has no weight.
    scale = torch.where(deviation > _CONSTANT * rows.abs().amax(0), 1 / deviation, 0.0)
    standard = (rows - centre) * scale
    variances, axes = _principal(standard.T @ standard / len(standard))
    stretch = (variances.clamp(min=0) + DECAY).rsqrt()
    turned = (standard @ (axes * stretch)).view_as(inputs)
    weights = torch.zeros_like(layer.weight, dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(layer.out_features, dtype=torch.float64, requires_grad=has_bias)
    learnt = [weights, bias] if has_bias else [weights]
    optimiser = torch.optim.LBFGS(learnt, max_iter=MOST_ITERATIONS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        # A loss may know no other precision than the model's.
        outputs = nn.functional.linear(turned, weights, bias).to(layer.weight.dtype)
        decay = DECAY / 2 * (weights * stretch).square().sum()
        value = loss(outputs, dataset.targets).double().mean() + decay
        value.backward()  # pyright: ignore[reportUnknownMemberType]
        return value

    optimiser.step(closure)  # pyright: ignore[reportUnknownMemberType]
    with torch.no_grad():
        solution = weights @ (axes * stretch).T * scale
        layer.weight.copy_(solution)
        if has_bias:
            layer.bias.copy_(bias - solution @ centre)


def _principal(covariance: Tensor) -> tuple[Tensor, Tensor]:
    variances, axes = np.linalg.eigh(covariance.numpy())
    return torch.as_tensor(variances), torch.as_tensor(axes)


def _by_adam(model: nn.Module, loss: Loss, dataset: TaskDataset, seed: int, steps: int) -> None:
    """Adam on mini-batches."""
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.003)
    for _ in range(steps):
        batch = torch.randint(len(dataset), (min(BATCH, len(dataset)),), generator=generator)
        optimiser.zero_grad()
        value = loss(model(dataset.inputs[batch]), dataset.targets[batch]).mean()
        value.backward()  # pyright: ignore[reportUnknownMemberType]
        optimiser.step()  # pyright: ignore[reportUnknownMemberType]


@dataclass(frozen=True)
class Baselines:
    """Metrics on the test records, by name, without privacy.

    pooled  one model on all records, which is not allowed in practice
    alone   of each client by itself, or of some
    most_frequent  accuracy of always saying the most frequent class. None where targets are not classes
    """

    pooled: dict[str, float]
    alone: tuple[dict[str, float], ...]
    most_frequent: float | None


def baselines(task: Task, population: Population, test: TaskDataset, seed: int) -> Baselines:
    """Trained here and now. Raises TrainingStopped."""

    def measured(dataset: TaskDataset) -> dict[str, float]:
        return metrics_of(task, fitted(task, dataset, seed), test)

    count = len(population)
    places = range(count)
    if count > _MOST_ALONE:
        sampled_places = np.random.default_rng([seed, 3]).permutation(count)[:_MOST_ALONE]
        places = sorted(int(place) for place in sampled_places)
    frequent = None
    if not test.targets.is_floating_point() and test.targets.ndim == 1:
        labels = population.dataset.targets.flatten()
        # Rows that fill up a patient who has fewer have no label.
        counts = torch.bincount(labels[labels >= 0])
        frequent = (test.targets == int(counts.argmax())).double().mean().item()
    single_client_metrics = tuple(measured(population.records_of(place)) for place in places)
    return Baselines(measured(population.everybody()), single_client_metrics, frequent)


def metrics_of(task: Task, model: nn.Module, test: TaskDataset) -> dict[str, float]:
    """Return the task's metrics of a model on test records."""
    with torch.no_grad():
        return task.metrics(torch.cat([model(part) for part in parts(test.inputs)]), test.targets)


def without_noise(settings: StudySettings, rounds: int) -> StudySettings:
    """The same rounds, clip norms and optimisers, in the clear and with a thousandth of a clip norm's noise.

    If one noise protects patients and hospitals, the hospitals' own clip is left out.
    """
    values = settings.as_json()
    level = "client" if settings.privacy.rules.clips_updates else "instance"
    privacy = values["privacy"] | {
        "scheme": "client" if level == "client" else "parallel",
        "central_noise": "coordinator" if level == "client" else None,
        "limits": [{"level": level, "definition": "classical", "epsilon": _ANY, "delta": 1e-5}],
        "client_clip_norm": None,
        "noise_multiplier": _QUIET,
        "max_steps": rounds * settings.steps_per_round,
        "bayesian": None,
        "disclosure": "plain",
        "histogram_noise": None,
        "accounting_sample": None,
        "masking": None,
    }
    values |= {"privacy": privacy, "beyond_bounds": True}
    for section in ("statistics", "evaluation", "monitoring"):
        values.pop(section, None)
    return StudySettings.model_validate(values)
