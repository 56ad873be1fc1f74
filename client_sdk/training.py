"""One round at one hospital: from the received weights to the update, private where the scheme asks for it.

Parallel: every local step draws a Poisson batch, clips each record's gradient, sums, adds noise and divides by a
public constant (Abadi et al. 2016, Algorithm 1). Client level: plain local steps, and the whole update is clipped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from client_sdk.errors import ConfigurationError, TrainingStopped
from client_sdk.gradients import ClippedSum, NonFiniteError, PerRecordGradients, UnsupportedLayer
from client_sdk.noise import add_noise
from client_sdk.protocol.central_noise import CentralNoise
from client_sdk.protocol.randomness import RandomSource
from client_sdk.protocol.settings import StudySettings
from client_sdk.protocol.tensors import Array
from client_sdk.sampling import poisson_batch
from client_sdk.tasks import Task, TaskDataset
from client_sdk.terms import PrivacyTerms
from client_sdk.weights import load_weights, weights_of

# The coordinator recomputes the norm in float64; this leaves room for the rounding to float32.
_CLIP_SAFETY = 1 - 2.0**-22


@dataclass(frozen=True)
class Contribution:
    """One round's result.

    update           parameter name -> float32: a gradient (fedsgd) or a difference of weights (fedavg)
    client_distance  what the whole client moves the sum, on the scale of the client level's clip norm, rounded up;
                     None where the study does not protect clients
    """

    update: dict[str, Array]
    client_distance: float | None


@dataclass(frozen=True)
class LocalTraining:
    """What a hospital needs to compute its rounds of one study.

    source  of batches and noise: a cryptographic one, outside simulations
    device  a torch device
    """

    task: Task
    dataset: TaskDataset
    settings: StudySettings
    source: RandomSource
    device: str = "cpu"

    def require_trainable(self) -> None:
        """Refuse a model that cannot be trained privately, before any round is paid for.

        Raises:
            ConfigurationError: a layer through which records reach each other, or no trainable parameter.
        """
        if self.settings.privacy.scheme == "client":
            return
        try:
            PerRecordGradients(self.task.model().eval(), self.task.loss)
        except (UnsupportedLayer, ValueError) as error:
            raise ConfigurationError(f"the task's model cannot be trained privately: {error}") from error

    def update(self, weights: Mapping[str, Array], terms: PrivacyTerms | None) -> dict[str, Array]:
        """The update alone; see `contribution`."""
        return self.contribution(weights, terms).update

    def contribution(
        self, weights: Mapping[str, Array], terms: PrivacyTerms | None, *, total_records: float | None = None
    ) -> Contribution:
        """What one round makes of the received weights.

        terms          where records have a Bayesian limit: takes in the norms of every record at every step
        total_records  N of all clients, where the study sums the papers' costs and N is known

        Raises:
            TrainingStopped: NaN or an infinity in weights, gradients or the update.
        """
        # No layer may draw at random: the norm that is measured must be the norm that is clipped.
        model = self.task.model().eval()
        load_weights(model, weights)
        model.to(self.device)
        try:
            if self.settings.privacy.scheme == "client":
                made = self._clipped(self._plain(model, weights))
            else:
                made = self._private(model, weights, terms, total_records)
        except NonFiniteError as error:
            raise TrainingStopped(error.where) from error
        except OverflowError as error:
            raise TrainingStopped("the noised sum") from error
        for name, array in made.update.items():
            if not np.isfinite(array).all():
                raise TrainingStopped(f"the update of parameter {name!r}")
        return made

    def _clipped(self, update: dict[str, Array]) -> Contribution:
        privacy = self.settings.privacy
        found = clipped(update, privacy.clip_norm)
        size = sum(array.size for array in found.values())
        central = CentralNoise(privacy.clip_norm, privacy.noise_multiplier, size)
        return Contribution(found, central.accounted_distance(_norm(found)))

    def _private(
        self,
        model: nn.Module,
        received: Mapping[str, Array],
        terms: PrivacyTerms | None,
        total_records: float | None,
    ) -> Contribution:
        privacy, training = self.settings.privacy, self.settings.training
        gradients = PerRecordGradients(model, self.task.loss)
        inputs, targets = self.dataset.inputs.to(self.device), self.dataset.targets.to(self.device)
        noisy: dict[str, Tensor] = {}
        distance: float | None = None
        norm = 0.0
        for _ in range(training.local_steps):
            batch = self._batch()
            part = gradients.clipped_sum(inputs[batch], targets[batch], clip_norm=privacy.clip_norm)
            if privacy.client_clip_norm is not None:
                part, norm = projected(part, privacy.client_clip_norm)
            summed = add_noise(part, noise_multiplier=privacy.noise_multiplier, source=self.source)
            rounding = summed.sensitivity - privacy.clip_norm
            if privacy.client_clip_norm is not None:
                # The noise covers clip_norm + rounding; both are scaled back to the plan's clip norm.
                scaled = (norm + rounding) * (privacy.clip_norm / summed.sensitivity) * (1 + 2.0**-50)
                distance = min(scaled, privacy.client_clip_norm)
            if terms is not None:
                norms = gradients.norms(inputs, targets).cpu().numpy()
                terms.measure(norms, rounding=rounding, total_records=total_records)
            noisy = {name: value / privacy.nominal_batch for name, value in summed.gradients.items()}
            if training.algorithm == "fedavg":
                _descend(model, noisy, training.learning_rate)
        found = _arrays(noisy) if training.algorithm == "fedsgd" else _difference(model, received)
        return Contribution(found, distance)

    def _plain(self, model: nn.Module, received: Mapping[str, Array]) -> dict[str, Array]:
        training = self.settings.training
        inputs, targets = self.dataset.inputs.to(self.device), self.dataset.targets.to(self.device)
        parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        mean: dict[str, Tensor] = {}
        for _ in range(training.local_steps):
            batch = self._batch()
            total = self.task.loss(model(inputs[batch]), targets[batch]).sum() / self.settings.privacy.nominal_batch
            if not bool(torch.isfinite(total)):
                raise TrainingStopped("the loss")
            found = torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
            mean = {
                name: torch.zeros_like(parameter) if gradient is None else gradient
                for (name, parameter), gradient in zip(parameters.items(), found, strict=True)
            }
            if training.algorithm == "fedavg":
                _descend(model, mean, training.learning_rate)
        if training.algorithm == "fedsgd":
            return _arrays(mean)
        return _difference(model, received)

    def _batch(self) -> Tensor:
        rate = self.settings.privacy.sampling_rate
        return torch.from_numpy(poisson_batch(len(self.dataset), rate, source=self.source)).to(self.device)


def clipped(update: Mapping[str, Array], clip_norm: float) -> dict[str, Array]:
    """The update scaled down to L2 norm clip_norm over all parameters together, if it is longer.

    Raises:
        TrainingStopped: NaN or an infinity: a comparison with NaN would let it pass unclipped.
    """
    norm = _norm(update)
    if not math.isfinite(norm):
        raise TrainingStopped("the update")
    factor = min(1.0, clip_norm * _CLIP_SAFETY / norm) if norm > 0 else 1.0
    return {name: (array.astype(np.float64) * factor).astype(np.float32) for name, array in update.items()}


def projected(part: ClippedSum, radius: float) -> tuple[ClippedSum, float]:
    """The sum moved to the nearest point of L2 norm at most `radius`, and that point's norm, rounded up.

    Projection on a ball never moves two points apart, so the sum's sensitivity to one record stays what it was.
    """
    norm = math.sqrt(sum(float(value.double().square().sum()) for value in part.gradients.values()))
    if not math.isfinite(norm):
        raise TrainingStopped("the clipped sum")
    if norm <= radius * _CLIP_SAFETY:
        return part, norm * (1 + 2.0**-40)
    factor = radius * _CLIP_SAFETY / norm
    return replace(part, gradients={name: value * factor for name, value in part.gradients.items()}), radius


def _norm(update: Mapping[str, Array]) -> float:
    return math.sqrt(sum(float(np.square(array, dtype=np.float64).sum()) for array in update.values()))


def _descend(model: nn.Module, gradients: Mapping[str, Tensor], learning_rate: float) -> None:
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, gradient in gradients.items():
            parameters[name].sub_(gradient, alpha=learning_rate)


def _arrays(tensors: Mapping[str, Tensor]) -> dict[str, Array]:
    return {name: tensor.detach().to("cpu", torch.float32).numpy().copy() for name, tensor in tensors.items()}


def _difference(model: nn.Module, received: Mapping[str, Array]) -> dict[str, Array]:
    return {name: array - received[name] for name, array in weights_of(model).items()}
