"""The parameters of a round's secure-sum session, from the study's settings and the sampled cohort."""

from __future__ import annotations

import math

from client_sdk.protocol.secure_sum.layout import vectors_of
from client_sdk.protocol.secure_sum.messages import (
    Deadlines,
    SessionParameters,
    least_survivors,
    least_threshold,
)
from client_sdk.protocol.study.settings import StudySettings
from client_sdk.protocol.wire.tensors import Spec


def enough(settings: StudySettings, sampled: int) -> bool:
    """Whether a cohort of this size can reach its survivors at all."""
    masking = settings.privacy.masking
    if masking is None:
        return True
    return sampled >= max(3, masking.min_survivors, least_threshold(sampled, masking.colluders))


def session_parameters(
    settings: StudySettings,
    model: Spec,
    *,
    study: str,
    round: int,
    sampled: int,
    roster: str,
    model_sha256: str,
    session: bytes,
    now: float,
) -> SessionParameters:
    """What the coordinator signs. Deadlines count from `now`, whole seconds rounded up.

    Raises:
        ValueError: the study sums nothing under masks.
    """
    masking = settings.privacy.masking
    if masking is None:
        raise ValueError("masking: this study sums nothing under masks")
    threshold = least_threshold(sampled, masking.colluders)
    start, step = math.ceil(now), math.ceil(masking.step_deadline_seconds)
    # Training lies between the shares and the masked vectors.
    masked = start + 2 * step + math.ceil(settings.schedule.round_deadline_seconds)
    return SessionParameters(
        study=study,
        round=round,
        session=session,
        roster=roster,
        model=model_sha256,
        clients=sampled,
        colluders=masking.colluders,
        threshold=threshold,
        neighbours=sampled - 1,
        min_survivors=max(masking.min_survivors, least_survivors(sampled, masking.colluders, threshold)),
        vectors=vectors_of(settings, model, sampled),
        deadlines=Deadlines(keys=start + step, shares=start + 2 * step, masked=masked),
        expires=masked + math.ceil(masking.expiry_seconds),
    )
