"""The local steps of one round, private or plain, and what they make of the received weights.

Schemes with noise here: every step releases a noised mean gradient. Client level: whole updates are clipped.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from private_learning.errors import ConfigurationError, TrainingStopped
from private_learning.gradients import DeviceLost, NonFiniteError, PerRecordGradients, UnsupportedLayer
from private_learning.gradients.choice import GradientChoice
from private_learning.gradients.generated import Shapes
from private_learning.tasks import Task, TaskDataset
from private_learning.tasks.inputs import Inputs
from private_learning.tasks.task import new_model
from private_learning.training.accounts import PatientAccount, SampleAccount
from private_learning.training.checkpoint import Checkpoint, Checkpoints
from private_learning.training.descent import Descent
from private_learning.training.devices import devices_of
from private_learning.training.generated import examples_of
from private_learning.training.gradients import Contribution, PrivateGradients, noise_of_a_step, released_centre
from private_learning.training.noise import GridNoise
from private_learning.training.patients import Loss, LossOfPatients, RowsOfPatients
from private_learning.training.per_record_results import each_alone
from private_learning.training.plain import PlainGradients
from private_learning.training.speed import SlowPath, slow_path
from private_learning.training.views import Views, require_views
from private_learning.training.weights import arrays_of, load_weights, spec_of_model, weight_out_of_bounds, weights_of
from study_protocol.randomness.source import Purpose, Randomness, RoundRandomness
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensors import Array, Spec

_LOG = logging.getLogger(__name__)
# What is found once and depends on no record.
_OF_THE_MODEL = ("spec", "_devices", "_model", "_buffers", "_of_records")


@dataclass(frozen=True)
class LocalTraining:
    """The model, the records and the settings with which a hospital computes its rounds of one study.

    dataset  one record per patient: `TaskDataset.by_patient`
    randomness  of batches and noise: a cryptographic one, outside simulations
    device   torch devices as `devices_of` reads them. The model lies on the first.
    checkpoint_seconds  at least so long between two checkpoints of a round of several local steps
    party    this client's name, by which its randomness is addressed
    bfloat16  the model computes in bfloat16. Norms, sums and noise stay in the parameters' own precision.

    Raises DataError when two records belong to one patient.
    """

    task: Task
    dataset: TaskDataset
    settings: StudySettings
    randomness: Randomness
    device: str = "cpu"
    checkpoint_seconds: float = 60.0
    party: str = "client"
    bfloat16: bool = False

    def __post_init__(self) -> None:
        self.dataset.require_one_record_per_patient()

    def require_trainable(self, choice: GradientChoice | None = None) -> GradientChoice | None:
        """Refuse a model or a loss that cannot be trained privately, before any round is charged.

        They are tried on generated records. Only shapes and types come from the dataset.

        choice  the choice that this method returned before the study's first round, which remains in force

        Returns:
            The method of the gradients in every round, or None where the study needs no record's gradient.

        Raises:
            ConfigurationError: records reach each other in the model or the loss, no trainable parameter, or `choice`
                no longer works.
        """
        augmentation, dataset = self.settings.training.augmentation, self.dataset
        if augmentation is not None:
            # Behind the axes of records and of their rows.
            axes = 2 if dataset.grouped else 1
            require_views(augmentation, dataset.inputs.shape[axes:], dataset.targets.shape[axes:], dataset.inputs.dtype)
        # Whole updates are clipped there, so records may meet in a layer.
        if self.settings.privacy.rules.clips_updates:
            return None
        with self._trainable(), self._computing():
            shapes = Shapes.of(dataset.inputs, dataset.targets)
            return self._gradients.confirm(shapes, views=self._views, choice=choice)

    def try_gradients(self, records: int) -> int:
        """Return how many of the first records have no finite gradient, or loss where whole updates are clipped.

        The number is for a person of this hospital. The trial draws, stores and charges no value, and starts no round.

        Raises:
            ConfigurationError: as `require_trainable`.
        """
        inputs, targets = self._first(records)
        with self._trainable(), self._computing():
            if self.settings.privacy.rules.clips_updates:
                return sum(not self._has_loss(inputs[i : i + 1], targets[i : i + 1]) for i in range(len(targets)))
            return int(torch.isinf(self._gradients.norms(inputs, targets)).sum())

    def _has_loss(self, inputs: Tensor, targets: Tensor) -> bool:
        model, loss = self._of_records
        try:
            with torch.no_grad():
                return bool(torch.isfinite(loss(model(inputs), targets)).all())
        # A user's code may raise any error for a record.
        except Exception:  # noqa: BLE001
            return False

    def slow_path(self) -> SlowPath | None:
        """Return the reason why private training of this model is slow, and the factor, on generated records.

        None for a model with closed forms.

        Raises:
            ConfigurationError: as `require_trainable`.
        """
        self.require_trainable()
        if self.settings.privacy.rules.clips_updates or self._gradients.method == "layerwise":
            return None
        with self._trainable(), self._computing():
            return slow_path(self._gradients, Shapes.of(self.dataset.inputs, self.dataset.targets), self._views)

    @cached_property
    def spec(self) -> Spec:
        """Names, shapes and types of the parameters that travel."""
        return spec_of_model(self._model)

    def noise(self, attempt: int | None = None) -> GridNoise:
        """Return that of one private step that clips around zero. attempt: as of `contribution`.

        Raises:
            ConfigurationError: as `require_trainable`.
        """
        self.require_trainable()
        return noise_of_a_step(self._gradients, self.settings.at_attempt(attempt))

    @cached_property
    def _model(self) -> nn.Module:
        """Return the model, made once. Every round loads the released weights into it."""
        # No layer may draw at random: the norm that is measured must be the norm that is clipped.
        model = new_model(self.task).eval().to(self._device)
        if self.settings.privacy.rules.clips_updates and self._device == "cpu":
            # Where autograd takes the gradient, pooling and convolutions of a processor are faster so.
            model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        return model

    @cached_property
    def _buffers(self) -> dict[str, Tensor]:
        """Return the buffers as the task made them: every round starts with them."""
        return {name: buffer.clone() for name, buffer in self._model.named_buffers()}

    @property
    def _of_rows(self) -> bool:
        """Whether a record is several rows to the model: those of a patient, or views."""
        return self.dataset.grouped or self.settings.training.augmentation is not None

    def _first(self, records: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of the first records, as the model is shown them."""
        # Copies: a model or a loss may change what it is given.
        inputs, targets = (of[:records].clone().to(self._device) for of in (self.dataset.inputs, self.dataset.targets))
        return (inputs, targets) if self._views is None else self._views.trial_views(inputs, targets)

    @property
    def _views(self) -> Views | None:
        """Return views that the model is tried on before the first round, without a random draw."""
        augmentation, source = self.settings.training.augmentation, self.randomness_in(0).of(Purpose.VIEWS)
        return None if augmentation is None else Views(augmentation, source, grouped=self.dataset.grouped)

    @cached_property
    def _of_records(self) -> tuple[nn.Module, Loss]:
        """Return model and loss for records as they lie in the dataset."""
        if not self._of_rows:
            return self._model, self.task.loss
        return RowsOfPatients(self._model), LossOfPatients(self.task.loss)

    @cached_property
    def _gradients(self) -> PerRecordGradients:
        """Return the gradients of the model. `require_trainable` confirms the choice, which holds in every round."""
        return PerRecordGradients(
            *self._of_records, further_devices=self._devices[1:], examples=examples_of(self.task, self.dataset)
        )

    @cached_property
    def _devices(self) -> tuple[str, ...]:
        return devices_of(self.device)

    @property
    def _device(self) -> str:
        """Return the model's own device."""
        return self._devices[0]

    @contextmanager
    def _trainable(self) -> Generator[None]:
        """Report a refusal within the context in the words of a hospital."""
        try:
            yield
        except (UnsupportedLayer, ValueError) as error:
            raise ConfigurationError(f"the task's model cannot be trained privately: {error}") from error

    @contextmanager
    def _computing(self) -> Generator[None]:
        """Compute products in the chosen precision, and report errors of a step in the words of a hospital."""
        kind = torch.device(self._device).type
        try:
            # Not cached: the weights change between two local steps.
            with torch.autocast(kind, torch.bfloat16, enabled=self.bfloat16, cache_enabled=False):
                yield
        except NonFiniteError as error:
            raise TrainingStopped(error.where) from error
        except OverflowError as error:
            raise TrainingStopped("the noised sum") from error
        except DeviceLost as error:
            raise ConfigurationError(str(error)) from error
        except torch.OutOfMemoryError as error:
            raise ConfigurationError(f"the memory of device {self.device!r} does not suffice for one pass") from error

    def of_client(self, party: str, dataset: TaskDataset) -> LocalTraining:
        """Return another client's part of the same study: its own records and streams, and this one's model and rules.

        The model is shared: the two may not compute at the same time.
        """
        training = replace(self, party=party, dataset=dataset)
        if training.dataset.grouped != self.dataset.grouped:
            raise ValueError("records of one study are grouped by patient everywhere, or nowhere")
        # Where whole updates are clipped no record's gradient is found, and there may be no way to.
        of_records = () if self.settings.privacy.rules.clips_updates else ("_gradients",)
        for name in (*_OF_THE_MODEL, *of_records):
            vars(training)[name] = getattr(self, name)
        return training

    def randomness_in(self, round_number: int) -> RoundRandomness:
        """Return this client's streams in one round, 0 for the time before the first."""
        return self.randomness.in_round(self.party, round_number)

    def checkpoints(self, path: Path, *belonging: str | bytes | None) -> Checkpoints | None:
        """Return the checkpoints of a round's steps, or None for rounds of one step.

        path       of the checkpoint's file
        belonging  all that the round depends on beside the records. A checkpoint of another round is erased.
        """
        if self.settings.steps_per_round == 1:
            return None
        # Patients who withdrew since are left out.
        patients = self.dataset.patients
        return Checkpoints.open(path, *belonging, *patients, every_seconds=self.checkpoint_seconds)

    def update(
        self, weights: Mapping[str, Array], log_moments: SampleAccount | None, *, round_number: int = 1
    ) -> dict[str, Array]:
        """Return the update alone, as of `contribution`."""
        return self.contribution(weights, log_moments, round_number=round_number).update

    def contribution(
        self,
        weights: Mapping[str, Array],
        log_moments: SampleAccount | None,
        *,
        round_number: int = 1,
        total_records: float | None = None,
        individual: PatientAccount | None = None,
        checkpoints: Checkpoints | None = None,
        previous: Mapping[str, Array] | None = None,
        clip_norm: float | None = None,
        attempt: int | None = None,
    ) -> Contribution:
        """Return the contribution of one round from the received weights.

        log_moments    where records have a Bayesian limit: takes in the norms of its accounting sample at every step,
                       and reads it through noise where the round is a checkpoint of disclosure `noised`
        round_number   addresses the randomness, and the learning rate may depend on it
        total_records  N of all clients, where the study sums the papers' costs and N is known
        individual     the patients' own sums: charged at every step, and decide which patients take part
        checkpoints    the step to begin at, with the saved state of both accounts, and the place to save progress
        previous       the weights released before these, where the study clips around the difference
        clip_norm      of this round, where the study's is adaptive. None: that of the settings
        attempt        the round's place in the study's noise schedule, if it has one: how much noise is drawn

        A record without a finite gradient adds zero and is charged in full. The log alone says how many there were.

        Raises:
            TrainingStopped: NaN or an infinity in the centre, or in an update whose steps were noised.
        """
        if checkpoints is not None and checkpoints.start is not None:
            _resume(checkpoints.start, log_moments, individual)
        self._load(weights)
        settings = self.settings.at_clip_norm(clip_norm).at_attempt(attempt)
        arguments = self.dataset, settings, self.randomness_in(round_number)
        with self._computing():
            if self.settings.privacy.rules.clips_updates:
                gradients = PlainGradients(*self._of_records, *arguments, device=self._device)
            else:
                gradients = PrivateGradients(
                    self._gradients,
                    *arguments,
                    device=self._device,
                    log_moments=log_moments,
                    individual=individual,
                    total_records=total_records,
                    centre=self._centre(weights, previous),
                )
            contribution = gradients.contribution(self._descended(weights, gradients, round_number, checkpoints))
        return _finite(contribution, gradients.failed, round_number)

    def predictions(self, weights: Mapping[str, Array], inputs: Inputs) -> NDArray[np.float64]:
        """Return (n, k) predictions of the model with these weights for (n, ...) rows.

        They are NaN where a score is not finite or the model fails. Each depends on its own row alone, to the last bit.
        This method draws, keeps and charges no value.
        """
        self._load(self.task.for_prediction(weights))

        def predicted(part: Tensor) -> Tensor:
            # Of the same shape as well: exponentials of the last few numbers are computed by other instructions.
            return self.task.predictions(self._model(part.to(self._device)).double().cpu())

        with torch.no_grad(), self._computing():
            return each_alone(predicted, inputs, self._model).numpy()

    def _load(self, weights: Mapping[str, Array]) -> None:
        """Load the weights into the model.

        Raises TrainingStopped, before a record is seen: a weight is not finite, or beyond the public bound.
        """
        name = weight_out_of_bounds(weights)
        if name is not None:
            raise TrainingStopped(f"the weights {name!r}")
        load_weights(self._model, weights)
        for name, buffer in self._model.named_buffers():
            buffer.copy_(self._buffers[name])

    def _centre(
        self, weights: Mapping[str, Array], previous: Mapping[str, Array] | None
    ) -> Mapping[str, Tensor] | None:
        centre = released_centre(self.settings, weights, previous)
        if centre is None or not self._of_rows:
            return centre
        return {f"model.{name}": value for name, value in centre.items()}

    def _descended(
        self,
        received: Mapping[str, Array],
        gradients: PrivateGradients | PlainGradients,
        round_number: int,
        checkpoints: Checkpoints | None,
    ) -> dict[str, Array]:
        """Run the local steps and return one gradient as it is (fedsgd), or the difference of weights (fedavg)."""
        training = self.settings.training
        if training.algorithm == "fedsgd":
            # The step itself is the coordinator's.
            return arrays_of(_of_model(gradients.at(1), self._of_rows))
        descent, done = Descent(self._model, self.settings, round_number), 0
        if checkpoints is not None and checkpoints.start is not None:
            done = checkpoints.start.step
            descent.restore(checkpoints.start.weights, checkpoints.start.optimiser)
        for step in range(done + 1, training.local_steps + 1):
            descent.step(_of_model(gradients.at(step), self._of_rows))
            # Not after the last step: the finished bytes follow at once.
            if checkpoints is not None and checkpoints.due and step < training.local_steps:
                checkpoints.write(Checkpoint(step, *descent.state(), *gradients.accounts()))
        return {name: array - received[name] for name, array in weights_of(self._model).items()}


def _finite(contribution: Contribution, failed: int, round_number: int) -> Contribution:
    if failed:
        _LOG.warning("round %d: %d drawn records have no gradient and count as zero", round_number, failed)
    for name, array in contribution.update.items():
        if not np.isfinite(array).all():
            raise TrainingStopped(f"the update of parameter {name!r}")
    return contribution


def _resume(start: Checkpoint, log_moments: SampleAccount | None, individual: PatientAccount | None) -> None:
    """Set the accounts to their state at the checkpoint."""
    if log_moments is not None and start.log_moments is not None:
        log_moments.resume(start.log_moments)
    if individual is not None and start.individual is not None:
        individual.resume(start.individual)


def _of_model(gradients: dict[str, Tensor], of_rows: bool) -> dict[str, Tensor]:
    # A model of several rows holds the model of one as its member.
    return {n.removeprefix("model."): g for n, g in gradients.items()} if of_rows else gradients
