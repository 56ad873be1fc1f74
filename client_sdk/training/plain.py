"""Gradients without noise, for the scheme whose noise the coordinator adds to whole updates."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from client_sdk.errors import TrainingStopped
from client_sdk.protocol.randomness.source import Purpose, RoundRandomness
from client_sdk.protocol.study.settings import StudySettings
from client_sdk.tasks import TaskDataset
from client_sdk.training.patients import Loss
from client_sdk.training.private import poisson_batch


class PlainGradients:
    """Mean gradients over Poisson batches, one after another; the denominator is public here too."""

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
        self._inputs, self._targets = dataset.inputs.to(device), dataset.targets.to(device)
        self._parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}

    def at(self, step: int) -> dict[str, Tensor]:
        """Parameter name -> mean gradient; `step` says which batch.

        Raises:
            TrainingStopped: the loss is NaN or infinite.
        """
        source = self._randomness.of(Purpose.SAMPLE, step=step)
        drawn = poisson_batch(len(self._inputs), self._privacy.sampling_rate, source=source)
        batch = torch.as_tensor(drawn).to(self._inputs.device)
        losses = self._loss(self._model(self._inputs[batch]), self._targets[batch])
        total = losses.sum() / self._privacy.expected_batch_size
        if not bool(torch.isfinite(total)):
            raise TrainingStopped("the loss")
        found = torch.autograd.grad(total, list(self._parameters.values()), allow_unused=True)
        # Torch's annotation leaves out the None of an unused parameter.
        some = cast("tuple[torch.Tensor | None, ...]", found)
        return {
            name: torch.zeros_like(parameter) if gradient is None else gradient
            for (name, parameter), gradient in zip(self._parameters.items(), some, strict=True)
        }

    def accounts(self) -> tuple[None, None]:
        """Nothing is charged here."""
        return None, None
