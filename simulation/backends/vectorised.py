"""Thousands of clients with linear models, in blocks: what `forked` computes one by one, up to float rounding.

Batches and noise come from one stream a round instead of one for every client, and gradients are added in float64. The
law of every number is that of the service. Its bytes are not. Charges are made by the same functions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from client_sdk.errors import ConfigurationError, TrainingStopped, WardroundError
from client_sdk.guard.log_moments import LogMomentBounds
from client_sdk.secure_sum.delivery import ring_vectors_of
from private_learning.gradients.inspection import trainable
from private_learning.gradients.losses import signal_of
from private_learning.training import Contribution
from private_learning.training.descent import Descent
from private_learning.training.gradients import norm_rounding
from private_learning.training.noise import GridNoise
from server.domain.admission import Findings, examine
from simulation.backends.base import Done, UpdateLayout, WordSums
from simulation.backends.linear import ClientBatches, LinearRecords, Rows, Stacked, blocks
from simulation.local_work import Accounts, ClientStopped, ClientTask, LocalWork, Orders
from study_protocol.randomness.source import COORDINATOR, Purpose
from study_protocol.secure_sum.parameters import UPDATE as UPDATE_VECTOR
from study_protocol.secure_sum.vectors import RingVector
from study_protocol.study.settings import StudySettings
from study_protocol.wire import tensors
from study_protocol.wire.tensor_files import Arrays, ReadableTensors
from study_protocol.wire.tensors import Array

# As `private_learning.training.gradients` clips, so that float32 never passes the clip norm.
_WITHIN = 1 - 2.0**-22
Floats = NDArray[np.float64]


def reason_against(work: LocalWork) -> str | None:
    """Return why this study cannot be vectorised, or None where it can."""
    training, model = work.settings.training, work.training.task.model()
    if type(model) is not nn.Linear or set(trainable(model)) != {"weight", "bias"}:
        return f"task {training.task}: its model is not one linear layer with a bias"
    if signal_of(work.training.task.loss) is None:
        return f"task {training.task}: the derivative of its loss is not known in closed form"
    if work.population.dataset.grouped:
        return "training.rows_per_patient: patients with several rows"
    if work.settings.privacy.adaptive_clip is not None:
        return "privacy.adaptive_clip: a norm that moves"
    if training.clipping != "flat" or training.clipping_centre != "zero":
        return "training.clipping and training.clipping_centre: only whole gradients are clipped here, around zero"
    return None


class Vectorised:
    """A backend for linear models.

    Raises ConfigurationError: the study cannot be vectorised. The text says why.
    """

    exact = False

    def __init__(self, work: LocalWork) -> None:
        reason, signal = reason_against(work), signal_of(work.training.task.loss)
        if reason is not None or signal is None:
            raise ConfigurationError(f"{reason}: take the backend forked")
        self._work, self._settings = work, work.settings
        self._layout = UpdateLayout.of(work.training.spec)
        self._records = LinearRecords(work.population.dataset, signal)
        # By their multiplier, which differs between the stages of a noise schedule only.
        self._noises: dict[float, GridNoise] = {}

    def run(self, orders: Orders, tasks: Sequence[ClientTask]) -> Done:
        round = _Round(self._work, self._layout, self._records, self._noise(orders.attempt), orders)
        client_rows = [self._work.population.rows[task.place] for task in tasks]
        # A client's records and its model are there at once.
        for block in blocks(client_rows, self._work.population.dataset.inputs.shape[1] + self._layout.size):
            round.take(tasks[block], client_rows[block])
        return round.done()

    def _noise(self, attempt: int | None) -> GridNoise | None:
        privacy = self._settings.at_attempt(attempt).privacy
        if privacy.rules.clips_updates:
            return None
        if privacy.noise_multiplier not in self._noises:
            self._noises[privacy.noise_multiplier] = self._work.training.noise(attempt)
        return self._noises[privacy.noise_multiplier]

    def close(self) -> None:
        """Nothing was started."""


@dataclass(repr=False)
class _Steps:
    """A block of clients on their way: their models, and what a step charges."""

    models: Stacked
    moments: list[LogMomentBounds | None]
    distances: list[float | None]


class _Round:
    """One round, block by block."""

    def __init__(
        self, work: LocalWork, layout: UpdateLayout, records: LinearRecords, noise: GridNoise | None, orders: Orders
    ) -> None:
        self._work, self._layout, self._records, self._noise, self._orders = work, layout, records, noise, orders
        self._settings: StudySettings = work.settings.at_attempt(orders.attempt)
        streams = work.training.randomness.in_round(COORDINATOR, orders.round)
        self._sample_source, self._noise_source = streams.of(Purpose.SAMPLE), streams.of(Purpose.NOISE)
        self._sums, self._findings = WordSums(orders.vectors), list[Findings]()
        self._accounts: list[Accounts | None] = []
        self._rows: list[NDArray[np.float32]] = []
        self._total = np.zeros(layout.size)
        # Where the sum is noised on a grid every update is rounded to it first. Elsewhere floats are added.
        central = self._settings.privacy.noise_of_updates(layout.size)
        self._spacing = None if central is None else central.spacing
        self._central = central

    def take(self, tasks: Sequence[ClientTask], client_rows: Sequence[Rows]) -> None:
        """The next clients."""
        names = [self._work.population.names[task.place] for task in tasks]
        steps = self._begun(tasks, client_rows, names)
        updates = self._descended(steps, client_rows)
        finite = np.isfinite(updates).all(axis=1)
        if not finite.all():
            raise ClientStopped.by(TrainingStopped("the update"), names[int(np.argmin(finite))], self._orders.round)
        if self._central is not None:
            updates, steps.distances = self._clipped(updates)
        self._keep(tasks, client_rows, steps, updates)

    def done(self) -> Done:
        """Return the results of the round's clients."""
        return Done(self._updates(), tuple(self._findings), self._sums.totals, tuple(self._accounts))

    def _begun(self, tasks: Sequence[ClientTask], client_rows: Sequence[Rows], names: Sequence[str]) -> _Steps:
        weights = self._orders.weights
        models = Stacked(torch.as_tensor(weights["weight"]), torch.as_tensor(weights["bias"]), len(tasks))
        moments: list[LogMomentBounds | None] = [None] * len(tasks)
        if self._settings.privacy.estimates_records:
            moments = [self._moments(task, name) for task, name in zip(tasks, names, strict=True)]
        return _Steps(models, moments, [None] * len(tasks))

    def _moments(self, task: ClientTask, name: str) -> LogMomentBounds | None:
        training = self._work.training.of_client(name, self._work.population.records_of(task.place))
        try:
            return self._work.log_moments(training, task.accounts)
        except WardroundError as error:
            raise ClientStopped.by(error, name, self._orders.round) from error

    # -- local steps

    def _descended(self, steps: _Steps, client_rows: Sequence[Rows]) -> NDArray[np.float32]:
        """(clients, coordinates): gradients (fedsgd), or the way that the local steps went (fedavg)."""
        training = self._settings.training
        trained = [
            rows if moments is None else rows[moments.trained]
            for rows, moments in zip(client_rows, steps.moments, strict=True)
        ]
        if training.algorithm == "fedsgd":
            return self._flat(self._gradient(steps, client_rows, trained))
        descent = Descent(steps.models, self._settings, self._orders.round)
        for _ in range(training.local_steps):
            descent.step(self._gradient(steps, client_rows, trained))
        start = {name: torch.as_tensor(self._orders.weights[name]) for name in ("weight", "bias")}
        return self._flat({name: p.detach() - start[name] for name, p in steps.models.named_parameters()})

    def _gradient(self, steps: _Steps, client_rows: Sequence[Rows], trained: Sequence[Rows]) -> dict[str, Tensor]:
        """Parameter name -> (clients, …) float32 mean gradients, noised where clients noise them. Charged."""
        privacy, noise = self._settings.privacy, self._noise
        batches = ClientBatches.poisson(trained, privacy.sampling_rate, self._sample_source)
        gradients = self._records.gradients(steps.models, batches, None if noise is None else privacy.clip_norm)
        total = np.concatenate([gradients.bias.flatten(1).numpy(), gradients.weight.flatten(1).numpy()], axis=1)
        if noise is not None:
            self._charge(steps, client_rows, noise)
            total = self._noised(self._within_radius(total, batches, steps, noise), noise)
        mean = torch.as_tensor(total).float() / privacy.expected_batch_size
        outputs = gradients.bias.shape[1]
        return {"bias": mean[:, :outputs], "weight": mean[:, outputs:].reshape(gradients.weight.shape)}

    def _within_radius(self, total: Floats, batches: ClientBatches, steps: _Steps, noise: GridNoise) -> Floats:
        """Sums moved to the ball that bounds a client, as `private_learning.training.gradients.projected` does."""
        privacy, radius = self._settings.privacy, self._settings.sum_radius or math.inf
        norms = np.sqrt(np.square(total).sum(axis=1))
        bounded = privacy.client_clip_norm is not None
        far = (norms > radius * _WITHIN) & (bounded | (batches.sizes.numpy() * privacy.clip_norm > radius))
        factors = np.where(far, radius * _WITHIN / np.where(far, norms, 1.0), 1.0)
        if bounded and privacy.client_clip_norm is not None:
            rounding = noise.sensitivity - privacy.clip_norm
            norms = np.where(far, radius, norms * norm_rounding(total.shape[1]))
            scaled = (norms + rounding) * (privacy.clip_norm / noise.sensitivity) * (1 + 2.0**-50)
            steps.distances = [min(float(norm), privacy.client_clip_norm) for norm in scaled]
        return total * factors[:, None]

    def _noised(self, total: Floats, noise: GridNoise) -> Floats:
        """Rounded to the grid, with every client's own noise: consecutive draws of one stream."""
        units = np.rint(total / noise.spacing)
        units += noise.law.sample(units.size, self._noise_source).reshape(units.shape)
        return units * noise.spacing

    def _charge(self, steps: _Steps, client_rows: Sequence[Rows], noise: GridNoise) -> None:
        if not any(steps.moments):
            return
        rounding = noise.sensitivity - self._settings.privacy.clip_norm
        norms = self._records.norms(steps.models, ClientBatches.whole(client_rows)).numpy()
        for moments, row in zip(steps.moments, norms, strict=True):
            if moments is not None:
                measured = row[moments.rows]
                moments.measure(measured, rounding=rounding, total_records=self._orders.total_records)

    def _flat(self, values: Mapping[str, Tensor]) -> NDArray[np.float32]:
        parts = [values[name].reshape(len(values[name]), -1) for name in sorted(self._work.training.spec)]
        return torch.cat(parts, dim=1).float().numpy()

    # -- what leaves a client

    def _clipped(self, updates: NDArray[np.float32]) -> tuple[NDArray[np.float32], list[float | None]]:
        """Whole updates within the clip norm, and their distances as they are accounted."""
        privacy, central = self._settings.privacy, self._central
        norms = np.sqrt(np.square(updates, dtype=np.float64).sum(axis=1))
        factors = np.minimum(1.0, privacy.clip_norm * _WITHIN / np.where(norms > 0, norms, 1.0))
        clipped = (updates * factors[:, None]).astype(np.float32)
        if central is None or privacy.bayesian is None:
            return clipped, [None] * len(clipped)
        reached = np.sqrt(np.square(clipped, dtype=np.float64).sum(axis=1))
        return clipped, [central.accounted_distance(float(norm)) for norm in reached]

    def _keep(
        self, tasks: Sequence[ClientTask], client_rows: Sequence[Rows], steps: _Steps, updates: NDArray[np.float32]
    ) -> None:
        for place, moments in enumerate(steps.moments):
            if moments is None:
                self._accounts.append(None)
                continue
            streams = self._work.training.randomness.in_round(self._name(tasks[place]), self._orders.round)
            moments.publish(self._orders.round, streams.of(Purpose.HISTOGRAM))
            self._accounts.append(Accounts(moments.to_bytes()))
        if self._orders.vectors:
            self._mask(tasks, client_rows, steps, updates)
        if not any(spec.name == UPDATE_VECTOR for spec in self._orders.vectors):
            self._add(steps, updates)

    def _name(self, task: ClientTask) -> str:
        return self._work.population.names[task.place]

    def _mask(
        self, tasks: Sequence[ClientTask], client_rows: Sequence[Rows], steps: _Steps, updates: NDArray[np.float32]
    ) -> None:
        """The words of every client, by the hospital's own function."""
        is_size_known = self._orders.total_records is not None
        for place, task in enumerate(tasks):
            name = self._name(task)
            contribution = Contribution(self._tensors_of(updates[place]), steps.distances[place])
            try:
                words: Mapping[str, RingVector] = ring_vectors_of(
                    self._settings.privacy,
                    self._work.training.spec,
                    self._orders.vectors,
                    contribution,
                    steps.moments[place],
                    records=0 if is_size_known or task.reported else len(client_rows[place]),
                    randomness=self._work.training.randomness.in_round(name, self._orders.round),
                )
            except TrainingStopped as stopped:
                raise ClientStopped.by(stopped, name, self._orders.round) from stopped
            self._sums.add(words)

    def _add(self, steps: _Steps, updates: NDArray[np.float32]) -> None:
        """In the clear: what the coordinator finds, where a limit asks for it, and the sum."""
        if self._settings.privacy.bayesian is not None:
            self._findings += self._findings_of(steps, updates)
        if self._settings.robustness.aggregation != "mean":
            self._rows.append(updates)
            return
        exact = updates.astype(np.float64)
        if self._spacing is not None:
            # Integers: their sum is the one of any order.
            exact = np.rint(exact / self._spacing) * self._spacing
        self._total += exact.sum(axis=0)

    def _findings_of(self, steps: _Steps, updates: NDArray[np.float32]) -> list[Findings]:
        if self._central is not None:
            return [Findings(distance, None) for distance in steps.distances]
        bodies = [{tensors.UPDATE + name: value for name, value in self._tensors_of(row).items()} for row in updates]
        if not self._orders.vectors:
            bodies = [
                body | ({} if moments is None else moments.tensors())
                for body, moments in zip(bodies, steps.moments, strict=True)
            ]
        spec, longest = self._work.training.spec, self._orders.longest
        return [examine(self._settings, spec, Arrays(body), longest) for body in bodies]

    def _tensors_of(self, row: NDArray[np.float32]) -> dict[str, Array]:
        """Parameter name -> its numbers in one update."""
        named_tensors: dict[str, Array] = {}
        for name, (shape, _) in self._work.training.spec.items():
            start = self._layout.starts[tensors.UPDATE + name]
            named_tensors[name] = row[start : start + math.prod(shape)].reshape(shape)
        return named_tensors

    def _updates(self) -> list[ReadableTensors]:
        rows: list[NDArray[Any]] = [row for block in self._rows for row in block]
        return self._layout.updates(rows or [self._total])
