"""Noised gradients of a hospital's records, and the bounds on whole updates and sums.

Gradients are noised (Abadi et al. 2016, Algorithm 1) and every step is charged to the accounts. For the scheme whose
noise the coordinator adds to whole updates, they are plain.

Batches are drawn by a cryptographic Poisson sampler. Gradients may be clipped around a released centre instead of zero
(centred clipping: Karimireddy, He & Jaggi 2021). Records that agree with the result of the last round then have little
to clip, and are charged for the little that they moved. For every centre one record moves the sum by at most the clip
norm, so the centre may be any function of released values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from private_learning.errors import TrainingStopped
from private_learning.gradients import ClippedSum, PerRecordGradients
from private_learning.gradients.inspection import trainable
from private_learning.gradients.slots import Slots, slots_for
from private_learning.tasks import TaskDataset
from private_learning.training.accounts import PatientAccount, SampleAccount
from private_learning.training.clip_bits import with_bits
from private_learning.training.noise import GridNoise, NoisySum
from private_learning.training.noise_ahead import NoiseAhead, Pieces
from private_learning.training.prefetch import PrefetchedBatches
from private_learning.training.views import Views
from study_protocol.randomness.source import Purpose, RandomSource, RoundRandomness
from study_protocol.study.privacy import Privacy
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensors import Array

Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
# The coordinator recomputes the norm in float64. This leaves room for the rounding to float32.
_CLIP_SAFETY = 1 - 2.0**-22


@dataclass(frozen=True, repr=False)
class Contribution:
    """One round's result.

    update           parameter name -> float32: a gradient (fedsgd) or a difference of weights (fedavg)
    client_distance  how far the whole client moves the sum, on the scale of the client level's clip norm, rounded up.
                     None where the study does not protect clients.
    """

    update: dict[str, Array]
    client_distance: float | None


class PrivateGradients:
    """One Poisson batch after another: clip each record's gradient, sum, add noise, divide by a public constant.

    gradients    of records as they lie in the dataset, from a model that draws no random numbers
    log_moments  where records have a Bayesian limit: takes in the norms of its accounting sample at every step, and
                 says which records are trained on
    individual   decides which patients may take part in a step, and is charged for it
    centre       parameter name -> tensor, released before. It is taken off every gradient before clipping.
    distance     after a step: how far this client's whole sum lies from zero, on the scale of client_clip_norm, rounded
                 up. None where the study does not protect clients.
    failed       how many records without a gradient added zero so far, in all steps. It stays in the hospital.
    """

    def __init__(
        self,
        gradients: PerRecordGradients,
        dataset: TaskDataset,
        settings: StudySettings,
        randomness: RoundRandomness,
        *,
        device: str = "cpu",
        log_moments: SampleAccount | None = None,
        individual: PatientAccount | None = None,
        total_records: float | None = None,
        centre: Mapping[str, Tensor] | None = None,
    ) -> None:
        privacy, model = settings.privacy, gradients.model
        # An adaptive clip norm: the settings are at that of the round.
        self._bits = privacy.clip_bits
        self._gradients, self._privacy, self._randomness = gradients, privacy, randomness
        # Known before any gradient: clip norm, size and multiplier are public and the same in every step.
        self._centre = None if centre is None else {name: value.to(device) for name, value in centre.items()}
        self._noise = noise_of_a_step(gradients, settings, self._centre)
        self._noise_ahead = NoiseAhead(self._noise.law, self._noise.coordinates, settings.training.local_steps)
        # They stay where they are: passes come to the device one by one.
        self._batches, self._targets = PrefetchedBatches(dataset.inputs), dataset.targets
        self._steps, self._coming = settings.steps_per_round, dict[int, Rows]()
        self._groups = layers(model) if settings.training.clipping == "per-layer" else None
        self._radius = settings.sum_radius or math.inf
        self._augmentation, self._grouped = settings.training.augmentation, dataset.grouped
        self._looks = randomness.of(Purpose.VIEWS)
        self._log_moments, self._individual, self._total_records = log_moments, individual, total_records
        self._trained = np.arange(len(dataset)) if log_moments is None else log_moments.trained
        self.distance: float | None = None
        self.failed = 0

    def at(self, step: int) -> dict[str, Tensor]:
        """Return parameter name -> noised mean gradient. `step` selects the batch and the noise.

        A record without a finite gradient adds zero and is charged at the clip norm.

        Raises:
            NonFiniteError: of the centre, which is public. No charge is made.
            OverflowError: the sum does not fit the noise's grid. It takes more than 2²⁸ records for each unit of the
                noise multiplier.
        """
        privacy, batch = self._privacy, self._batch(step)
        slots = Slots.random(privacy.expected_batch_size, self._randomness.of(Purpose.SLOTS, step=step))
        # One stream for all of a step: who is measured beside the batch has views of its own, drawn after the batch's.
        self._looks = self._randomness.of(Purpose.VIEWS, step=step)
        # Who may take part in the next step is not known before this one is charged.
        can_prefetch = self._individual is None and step < self._steps
        noise = self._noise_ahead.of_step(self._randomness.of(Purpose.NOISE, step=step))
        part = self._clipped(batch, slots, (lambda: self._foreseen(step + 1)) if can_prefetch else None)
        self.failed += part.failed
        norms, norm = part.norms.cpu().numpy(), 0.0
        # Before the noise: what this client adds is bounded, by a public number. Fewer records cannot reach it.
        if privacy.client_clip_norm is not None or len(batch) * privacy.clip_norm > self._radius:
            part, norm = projected(part, self._radius)
        if self._bits is not None:
            part = with_bits(part, self._bits)
        noised = self._noised(part, norm, noise)
        # Once the noised sum is there: an error above leaves no charge.
        self._charge(batch, norms, noised.sensitivity - self._noise.clip_norm)
        # By a public number: the size that was drawn depends on who is in the data.
        mean = {name: value / privacy.expected_batch_size for name, value in noised.gradients.items()}
        # Adding back what was released before is post-processing.
        return mean if self._centre is None else {name: value + self._centre[name] for name, value in mean.items()}

    def contribution(self, update: dict[str, Array]) -> Contribution:
        """Return the update of the round after its last step: a published histogram holds the sums with all steps."""
        if self._log_moments is not None:
            self._log_moments.publish(self._randomness.round, self._randomness.of(Purpose.HISTOGRAM))
        return Contribution(update, self.distance)

    def accounts(self) -> tuple[bytes | None, bytes | None]:
        """Return log-moments and individual sums, as their `to_bytes` give them."""
        log_moments = None if self._log_moments is None else self._log_moments.to_bytes()
        return log_moments, None if self._individual is None else self._individual.to_bytes()

    def _batch(self, step: int) -> Rows:
        """Return the rows of the step: those that were foreseen, once, or drawn now."""
        if step in self._coming:
            return self._coming.pop(step)
        coins = self._randomness.of(Purpose.SAMPLE, step=step)
        batch = self._trained[poisson_batch(len(self._trained), self._privacy.sampling_rate, source=coins)]
        # After the coins, which every record has: leaving one out does not change the other draws.
        return batch if self._individual is None else self._individual.admitted(batch, self._charged)

    def _foreseen(self, step: int) -> Rows:
        """Return the rows of the next step, drawn before its time."""
        self._coming = {step: self._batch(step)}
        return self._coming[step]

    def _charge(self, batch: Rows, norms: Floats, rounding: float) -> None:
        """Charge the step to the accounts. Their further norms are computed at the weights of this step.

        norms: (batch,), before clipping.
        """
        # The accounting sample is measured in every step, drawn or not: its running sums may miss none.
        rows = batch if self._log_moments is None else np.union1d(batch, self._log_moments.rows)
        if self._individual is not None and self._individual.needs_every_norm:
            rows = np.arange(len(self._targets))
        all_norms = self._norms_of(rows, batch, norms)
        if self._bits is not None:
            # How far a patient moves the whole vector, gradient and bit.
            all_norms = np.hypot(all_norms, self._bits.half)
        if self._log_moments is not None:
            self._log_moments.measure(
                all_norms[self._log_moments.rows], rounding=rounding, total_records=self._total_records
            )
        if self._individual is not None:
            charged = batch if self._individual.charges_only_drawn else rows
            self._individual.charge(charged, all_norms[charged], self._charged, rounding=rounding)

    @property
    def _charged(self) -> Privacy:
        """The settings by which accounts measure a step: their clip norm is the most that one patient changes."""
        return self._privacy.model_copy(update={"clip_norm": self._noise.clip_norm})

    def _clipped(self, rows: Rows, slots: Slots, then: Callable[[], Rows] | None = None) -> ClippedSum:
        return self._gradients.clipped_sum(
            self._batches.of(rows, then),
            self._targets[torch.as_tensor(rows)],
            clip_norm=self._privacy.clip_norm,
            centre=self._centre,
            groups=self._groups,
            slots=slots,
            views=self._views(),
        )

    def _views(self) -> Views | None:
        return None if self._augmentation is None else Views(self._augmentation, self._looks, grouped=self._grouped)

    def _noised(self, part: ClippedSum, norm: float, noise: Pieces) -> NoisySum:
        privacy = self._privacy
        noised = self._noise.completed(part, noise)
        if privacy.client_clip_norm is not None:
            # The noise covers clip_norm + rounding. Both are scaled back to the plan's clip norm.
            rounding = noised.sensitivity - privacy.clip_norm
            scaled = (norm + rounding) * (privacy.clip_norm / noised.sensitivity) * (1 + 2.0**-50)
            self.distance = min(scaled, privacy.client_clip_norm)
        return noised

    def _norms_of(self, rows: Rows, batch: Rows, norms: Floats) -> Floats:
        """Return (records,) norms of the rows, NaN elsewhere.

        The batch's are known already, at the same weights. Around a centre these are the distances to it, which are
        clipped.
        """
        all_norms = np.full(len(self._targets), np.nan)
        all_norms[batch] = norms
        rest = np.setdiff1d(rows, batch, assume_unique=True)
        if rest.size:
            # Passes of the same shape, without a sum, so that places need no law.
            slots = Slots(slots_for(self._privacy.expected_batch_size))
            # Norms alone need no weighted sum. Distances to a centre come only with one.
            if self._centre is None:
                rest_norms = self._gradients.norms(
                    self._batches.of(rest), self._targets[torch.as_tensor(rest)], slots=slots, views=self._views()
                )
            else:
                rest_norms = self._clipped(rest, slots).norms
            all_norms[rest] = rest_norms.cpu().numpy()
        return all_norms


def noise_of_a_step(
    gradients: PerRecordGradients, settings: StudySettings, centre: Mapping[str, Tensor] | None = None
) -> GridNoise:
    """Return the noise on a client's clipped sum.

    It follows from public numbers alone, and is the same in every step of every client.
    """
    privacy, bits = settings.privacy, settings.privacy.clip_bits
    numbers = sum(p.numel() for p in gradients.model.parameters() if p.requires_grad)
    return GridNoise.calibrated(
        privacy.clip_norm if bits is None else bits.joint_norm,
        numbers if bits is None else numbers + 1,
        noise_multiplier=privacy.noise_multiplier,
        rounding=sum_rounding(
            gradients,
            privacy.clip_norm,
            slots_for(privacy.expected_batch_size),
            radius=settings.sum_radius,
            centre=centre,
        ),
    )


def layers(model: nn.Module) -> Sequence[Sequence[str]]:
    """Return the names of the trainable parameters, grouped by the module that holds them: groups of `clipped_sum`."""
    groups: dict[str, list[str]] = {}
    for name in trainable(model):
        groups.setdefault(name.rpartition(".")[0], []).append(name)
    return list(groups.values())


def poisson_batch(records: int, sampling_rate: float, *, source: RandomSource) -> Rows:
    """Return indices, ascending, of the records drawn: each one independently with probability sampling_rate.

    The coin compares a 64-bit uniform word with ⌊sampling_rate · 2⁶⁴⌋, so the true rate is never above the stated one
    and less than 2⁻⁶⁴ below it. Empty batches happen, and must still be noised.

    Raises ValueError for a negative number of records or a rate outside [0, 1] (NaN and −0.0 included).
    """
    if records < 0:
        raise ValueError(f"records must be at least 0, got {records}")
    # −0.0 passes the comparison.
    if not 0.0 <= sampling_rate <= 1.0 or math.copysign(1.0, sampling_rate) < 0:
        raise ValueError(f"sampling_rate must lie in [0, 1], got {sampling_rate!r}")
    # 2⁶⁴ does not fit the word that is compared.
    if sampling_rate == 1.0:
        return np.arange(records, dtype=np.int64)
    # Exact: a float below 1 times a power of two only shifts the exponent. int() drops parts below 2⁻⁶⁴.
    threshold = np.uint64(int(math.ldexp(sampling_rate, 64)))
    return np.flatnonzero(source.words(records, np.uint64) < threshold).astype(np.int64)


def released_centre(
    settings: StudySettings, received: Mapping[str, Array], previous: Mapping[str, Array] | None
) -> dict[str, Tensor] | None:
    """Return the mean gradient that led from the `previous` released weights to the received ones.

    None: clip around zero.

    previous  parameter name -> weights, or None where the round before released none
    """
    if settings.training.clipping_centre == "zero" or previous is None:
        return None
    # Here the coordinator's optimiser is plain: new = old − rate · mean gradient.
    rate, prior = settings.training.optimiser.learning_rate, settings.training.prior
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite stops the step, by name
        centre = {name: (previous[name] - received[name]) / rate for name in received}
        if prior is not None:
            # The coordinator has added the prior's part, which is no record's.
            centre = {
                name: (way - prior.gradient(name, previous[name])).astype(way.dtype) for name, way in centre.items()
            }
    return {name: torch.as_tensor(way) for name, way in centre.items()}


def clipped(update: Mapping[str, Array], clip_norm: float) -> dict[str, Array]:
    """Return the update scaled down to L2 norm clip_norm over all parameters together, if it is longer.

    Raises:
        TrainingStopped: NaN or an infinity, as a comparison with NaN would let it pass unclipped.
    """
    norm = norm_of(update)
    if not math.isfinite(norm):
        raise TrainingStopped("the update")
    factor = min(1.0, clip_norm * _CLIP_SAFETY / norm) if norm > 0 else 1.0
    # In float64, so that the norm suffers one rounding only, to float32.
    return {name: (array.astype(np.float64) * factor).astype(np.float32) for name, array in update.items()}


def projected(part: ClippedSum, radius: float) -> tuple[ClippedSum, float]:
    """Return the sum moved to the nearest point of L2 norm at most `radius`, and that point's norm, rounded up.

    Projection on a ball never moves two points apart. The sum's sensitivity to one record therefore stays the same, but
    for `projection_rounding`. Its sensitivity to the whole client is the radius: docs/definitions/both-levels.md.

    Raises:
        TrainingStopped: NaN or an infinity.
    """
    norm = math.sqrt(sum(float(value.double().square().sum()) for value in part.gradients.values()))
    if not math.isfinite(norm):
        raise TrainingStopped("the clipped sum")
    if norm <= radius * _CLIP_SAFETY:
        return part, norm * norm_rounding(sum(value.numel() for value in part.gradients.values()))
    factor = radius * _CLIP_SAFETY / norm
    # In float64, which the noise's grid takes as it is: the product is not rounded to float32.
    return replace(part, gradients={name: value.double() * factor for name, value in part.gradients.items()}), radius


def norm_rounding(coordinates: int) -> float:
    """Return the factor that makes a computed norm no less than the exact one, for every order of adding squares."""
    return 1 + max(2.0**-40, (coordinates + 4) * 2.0**-53)


def projection_rounding(radius: float, coordinates: int) -> float:
    """Return how much farther apart than two sums their computed projections may lie: an L2 norm.

    In units of 2⁻⁵³ the norm is off by at most coordinates/2 + 2 of itself, in every order of adding its squares
    (Higham 2002, section 3.1). The factor is off by 2 more, the products by 1. This holds on either side, of the radius
    at most.
    """
    return radius * (coordinates + 12) * 2.0**-53


def sum_rounding(
    gradients: PerRecordGradients,
    clip_norm: float,
    capacity: int,
    *,
    radius: float | None,
    centre: Mapping[str, Tensor] | None = None,
) -> float:
    """Return how much farther than clip_norm two neighbouring sums may lie apart as computed, projected or not.

    capacity  slots of one batch
    radius    of `projected`, or None for no projection

    The projection is free until it needs more than the additions' bound has to spare.
    """
    added = gradients.rounding(clip_norm, capacity, centre)
    if radius is None:
        return added
    coordinates = sum(p.numel() for p in trainable(gradients.model).values())
    return added + max(0.0, projection_rounding(radius, coordinates) - gradients.spared(clip_norm))


def norm_of(update: Mapping[str, Array]) -> float:
    """L2 norm over all parameters together, in float64."""
    return math.sqrt(sum(float(np.square(array, dtype=np.float64).sum()) for array in update.values()))
