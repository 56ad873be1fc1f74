"""Admission of updates: the form that an update must have to be taken."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from accounting.errors import InvalidArgument
from accounting.plan.report import CumulativeMoments
from server.domain.errors import Rejected
from study_protocol.study.central_noise import CLIP_TOLERANCE, EXACT, CentralNoise
from study_protocol.study.privacy import Privacy
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensor_files import ReadableTensors, read
from study_protocol.wire.tensors import TERMS, UPDATE, Array, Spec, prefixed, terms_spec

# Numbers that are copied to float64 at once: 8 MiB, for tensors of any size.
_CHUNK = 1 << 20
# Each of n additions, in any order, loses at most 2⁻⁵³ of the sum (Higham 2002, section 3.1). Twice that covers the
# roundings of the squares, of their sum and of the root.
_LOST = _CHUNK * 2.0**-52


@dataclass(frozen=True)
class Findings:
    """The numbers of an update that the coordinator keeps beside its bytes.

    distance     scheme client: its norm on the scale of the clip norm, rounded up. None where hospitals add the noise
    log_moments  parallel with a Bayesian limit: the client's own cumulative log-moment bounds, nats
    """

    distance: float | None
    log_moments: CumulativeMoments | None


def update_spec(settings: StudySettings, model: Spec) -> Spec:
    """Return the update alone."""
    return prefixed(settings.privacy.sent(model), UPDATE)


def body_spec(settings: StudySettings, model: Spec) -> Spec:
    """Return the tensors that an update's body must hold: the update, and the log-moments where the study has some."""
    if not expects_log_moments(settings):
        return update_spec(settings, model)
    orders = settings.privacy.bayesian.orders if settings.privacy.bayesian else ()
    return update_spec(settings, model) | terms_spec(len(orders))


def expects_log_moments(settings: StudySettings) -> bool:
    """Return whether hospitals report their cumulative bounds beside the update."""
    privacy = settings.privacy
    return privacy.estimates_records and privacy.masking is None


def coordinates(model: Spec) -> int:
    """Number of parameters."""
    return sum(math.prod(shape) for shape, _ in model.values())


def mechanism(settings: StudySettings, model: Spec) -> CentralNoise | None:
    """Return the coordinator's own noise, if the study has any."""
    return central_noise(settings.privacy, coordinates(model))


def central_noise(privacy: Privacy, coordinates: int) -> CentralNoise | None:
    """Return the coordinator's mechanism. None where the hospitals add the noise themselves."""
    return privacy.noise_of_updates(coordinates) if privacy.rules.central else None


def examine(settings: StudySettings, model: Spec, body: ReadableTensors, longest: float) -> Findings:
    """Walk once over the tensors of a body whose names and shapes are checked already.

    Args:
        longest: the result of `longest_update`. It is not used where whole updates are clipped.

    Raises:
        Rejected: `clip-exceeded`, `norm-exceeded`, `invalid-request` (log-moments that cannot be costs).
        TensorError: `not-finite`.
    """
    squares, log_moments = list[float](), dict[str, Array]()
    for name, _, values in read(body, _CHUNK):
        if name.startswith(TERMS):
            log_moments[name.removeprefix(TERMS)] = values
        else:
            squares.append(_square(values))
    # Once, over all tensors: the clip norm is that of the whole update.
    norm, noise = _norm(squares), mechanism(settings, model)
    if noise is None and not norm <= longest:
        bound = "the clipped sum, projected on sum_radius, and its noise do not come so far"
        raise Rejected("norm-exceeded", f"the update's norm is above the study's bound: {bound}. Look for the reason")
    return Findings(_distance(noise, norm), _moments(log_moments))


def examine_answer(body: ReadableTensors) -> None:
    """Check a hospital's part of a query: whole numbers that add up exactly.

    Raises:
        Rejected: `invalid-request`.
        TensorError: `not-finite`.
    """
    for _, _, values in read(body, _CHUNK):
        if bool((np.rint(values) != values).any()) or bool((np.abs(values) > EXACT / 2).any()):
            raise Rejected("invalid-request", "the parts of an answer are whole numbers below 2^52, in grid steps")


__all__ = ["CLIP_TOLERANCE", "EXACT", "CentralNoise", "central_noise"]


def _square(values: Array) -> float:
    """Return the squared norm of a piece, too small by less than `_LOST` of itself."""
    # Float32 squares may overflow, and float64 ones may not. Not a product of vectors, which starts threads.
    return float(np.square(values, dtype=np.float64).sum())


def _norm(squares: Sequence[float]) -> float:
    """Return the square root of their sum, never below the exact norm."""
    return math.nextafter(math.sqrt(math.fsum(squares) * (1 + _LOST)), math.inf)


def _distance(noise: CentralNoise | None, norm: float) -> float | None:
    if noise is None:
        return None
    if not noise.admits(norm):
        raise Rejected("clip-exceeded", "the update's norm is above the study's clip norm: clip it and send again")
    return noise.accounted_distance(norm)


def _moments(log_moments: dict[str, Any]) -> CumulativeMoments | None:
    if not log_moments:
        return None
    try:
        return CumulativeMoments(
            float(log_moments["filter"][0]), tuple(float(value) for value in log_moments["moments"])
        )
    except InvalidArgument as error:
        raise Rejected("invalid-request", f"log-moments/{error.argument} cannot be a privacy cost") from error
