"""The local steps of one round, private or plain, and what they make of the received weights.

Schemes with noise here: every step releases a noised mean gradient (`private`). Client level: plain local steps, and
the whole update is clipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from client_sdk.errors import ConfigurationError, TrainingStopped
from client_sdk.gradients import NonFiniteError, PerRecordGradients, UnsupportedLayer
from client_sdk.protocol.central_noise import CentralNoise
from client_sdk.protocol.randomness import RandomSource
from client_sdk.protocol.settings import StudySettings
from client_sdk.protocol.tensors import Array
from client_sdk.tasks import Task, TaskDataset
from client_sdk.terms import PrivacyTerms
from client_sdk.training.bounds import clipped, norm_of
from client_sdk.training.descent import Descent
from client_sdk.training.patients import Loss, RowsOfPatients, loss_of_patients
from client_sdk.training.plain import PlainGradients
from client_sdk.training.private import PrivateGradients
from client_sdk.weights import load_weights, weights_of


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

    dataset  one record per patient: `TaskDataset.by_patient`
    source   of batches and noise: a cryptographic one, outside simulations
    device   a torch device

    Raises DataError when two records belong to one patient.
    """

    task: Task
    dataset: TaskDataset
    settings: StudySettings
    source: RandomSource
    device: str = "cpu"

    def __post_init__(self) -> None:
        self.dataset.require_one_record_per_patient()

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
        self,
        weights: Mapping[str, Array],
        terms: PrivacyTerms | None,
        *,
        round: int = 1,
        total_records: float | None = None,
    ) -> Contribution:
        """What one round makes of the received weights.

        terms          where records have a Bayesian limit: takes in the norms of every record at every step
        round          its number, which the learning rate may depend on
        total_records  N of all clients, where the study sums the papers' costs and N is known

        Raises:
            TrainingStopped: NaN or an infinity in weights, gradients or the update.
        """
        # No layer may draw at random: the norm that is measured must be the norm that is clipped.
        model = self.task.model().eval()
        load_weights(model, weights)
        model.to(self.device)
        try:
            made = self._trained(model, weights, terms, round, total_records)
        except NonFiniteError as error:
            raise TrainingStopped(error.where) from error
        except OverflowError as error:
            raise TrainingStopped("the noised sum") from error
        for name, array in made.update.items():
            if not np.isfinite(array).all():
                raise TrainingStopped(f"the update of parameter {name!r}")
        return made

    def _trained(
        self,
        model: nn.Module,
        received: Mapping[str, Array],
        terms: PrivacyTerms | None,
        round: int,
        total_records: float | None,
    ) -> Contribution:
        seen, loss = self._of_records(model)
        if self.settings.privacy.scheme == "client":
            plain = PlainGradients(seen, loss, self.dataset, self.settings, self.source, device=self.device)
            return self._clipped(self._descended(model, received, plain.next, round))
        private = PrivateGradients(
            seen,
            loss,
            self.dataset,
            self.settings,
            self.source,
            device=self.device,
            terms=terms,
            total_records=total_records,
        )
        return Contribution(self._descended(model, received, private.next, round), private.distance)

    def _descended(
        self, model: nn.Module, received: Mapping[str, Array], gradients: Callable[[], dict[str, Tensor]], round: int
    ) -> dict[str, Array]:
        """The local steps: one gradient as it is (fedsgd), or the way they went (fedavg)."""
        training = self.settings.training
        if training.algorithm == "fedsgd":
            return _arrays(_of_model(gradients(), self.dataset))
        descent = Descent(model, self.settings, round)
        for _ in range(training.local_steps):
            descent.step(_of_model(gradients(), self.dataset))
        return {name: array - received[name] for name, array in weights_of(model).items()}

    def _of_records(self, model: nn.Module) -> tuple[nn.Module, Loss]:
        """Model and loss for records as they lie in the dataset."""
        if not self.dataset.grouped:
            return model, self.task.loss
        return RowsOfPatients(model), loss_of_patients(self.task.loss)

    def _clipped(self, update: dict[str, Array]) -> Contribution:
        privacy = self.settings.privacy
        found = clipped(update, privacy.clip_norm)
        size = sum(array.size for array in found.values())
        central = CentralNoise(privacy.clip_norm, privacy.noise_multiplier, size)
        return Contribution(found, central.accounted_distance(norm_of(found)))


def _of_model(gradients: dict[str, Tensor], dataset: TaskDataset) -> dict[str, Tensor]:
    # A model of patients holds the model of rows as its member.
    return {n.removeprefix("model."): g for n, g in gradients.items()} if dataset.grouped else gradients


def _arrays(tensors: Mapping[str, Tensor]) -> dict[str, Array]:
    return {name: tensor.detach().to("cpu", torch.float32).numpy().copy() for name, tensor in tensors.items()}
