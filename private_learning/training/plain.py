"""Plain gradients of whole batches, and the clipped update of a whole client: for the scheme that protects clients."""

from __future__ import annotations

import logging
import math

import numpy as np
import torch
from torch import Tensor, nn

from private_learning.errors import TrainingStopped
from private_learning.gradients.inspection import gradients_of, trainable
from private_learning.tasks import TaskDataset
from private_learning.training.gradients import Contribution, Rows, clipped, norm_of, poisson_batch
from private_learning.training.patients import Loss
from private_learning.training.prefetch import PrefetchedBatches, whole
from private_learning.training.views import Views
from study_protocol.randomness.source import Purpose, RoundRandomness
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensors import Array

_LOG = logging.getLogger(__name__)


class PlainGradients:
    """Mean gradients over Poisson batches, one after another. The denominator is public here too."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        dataset: TaskDataset,
        settings: StudySettings,
        randomness: RoundRandomness,
        *,
        device: str = "cpu",
    ) -> None:
        self._model, self._loss, self._randomness, self._privacy = model, loss, randomness, settings.privacy
        self._batches, self._targets, self._device = PrefetchedBatches(dataset.inputs), dataset.targets, device
        self._steps, self._coming = settings.steps_per_round, dict[int, Rows]()
        self._parameters = trainable(model)
        self._augmentation, self._grouped = settings.training.augmentation, dataset.grouped
        self.failed = 0

    def at(self, step: int) -> dict[str, Tensor]:
        """Return parameter name -> mean gradient. `step` selects the batch.

        A record without a finite gradient adds zero.
        """
        batch = self._batch(step)
        inputs = whole(self._batches.of(batch, (lambda: self._foreseen(step + 1)) if step < self._steps else None))
        inputs, targets = inputs.to(self._device), self._targets[torch.as_tensor(batch)].to(self._device)
        if self._augmentation is not None:
            looks = self._randomness.of(Purpose.VIEWS, step=step)
            inputs, targets = Views(self._augmentation, looks, grouped=self._grouped).of(inputs, targets, 0)
        gradients = self._gradient(inputs, targets)
        if gradients is not None:
            return gradients
        # One record after another is tried by itself. A loss that mixes the rest leaves a step of zeros.
        sound = [i for i in range(len(batch)) if self._gradient(inputs[i : i + 1], targets[i : i + 1]) is not None]
        self.failed += len(batch) - len(sound)
        gradients = self._gradient(inputs[sound], targets[sound]) if sound else None
        return gradients or {name: torch.zeros_like(p).detach() for name, p in self._parameters.items()}

    def _gradient(self, inputs: Tensor, targets: Tensor) -> dict[str, Tensor] | None:
        """Return parameter name -> gradient of the sum of losses over the public denominator.

        None: it fails, or is infinite. Copies are used, because a model may change its arguments.
        """
        try:
            losses = self._loss(self._model(inputs.clone()), targets.clone())
            total = losses.sum() / self._privacy.expected_batch_size
            gradients = gradients_of(total, self._parameters)
        except torch.OutOfMemoryError:
            raise
        # A user's code may raise anything for one record, which must not stop the round.
        except Exception:  # noqa: BLE001
            return None
        values = [total.detach(), *(value.sum() for value in gradients.values())]
        return gradients if all(math.isfinite(float(value)) for value in values) else None

    def _batch(self, step: int) -> Rows:
        """Rows of the step: those that were foreseen, once, or drawn now."""
        if step in self._coming:
            return self._coming.pop(step)
        source = self._randomness.of(Purpose.SAMPLE, step=step)
        return poisson_batch(len(self._targets), self._privacy.sampling_rate, source=source)

    def _foreseen(self, step: int) -> Rows:
        """Rows of the next step, drawn before its time."""
        self._coming = {step: self._batch(step)}
        return self._coming[step]

    def contribution(self, update: dict[str, Array]) -> Contribution:
        """Return the update clipped, or zero, charged in full, where it is not finite: no record may end a round."""
        privacy, number = self._privacy, self._randomness.round
        try:
            bounded = clipped(update, privacy.clip_norm)
            distance = norm_of(bounded)
        except TrainingStopped:
            _LOG.warning("round %d: the update is not finite. It counts as zero and is charged in full", number)
            bounded, distance = {name: np.zeros_like(array) for name, array in update.items()}, privacy.clip_norm
        # Accounted on the scale of the central noise, which leaves room for its grid.
        noise = privacy.noise_of_updates(sum(array.size for array in bounded.values()))
        return Contribution(bounded, None if noise is None else noise.accounted_distance(distance))

    def accounts(self) -> tuple[None, None]:
        """Return no accounts: this scheme charges none here."""
        return None, None
