"""The coordinator's own mechanism, if the study has one."""

from __future__ import annotations

from client_sdk.protocol.randomness.central_noise import CLIP_TOLERANCE, EXACT, CentralNoise
from client_sdk.protocol.study.settings import Privacy

__all__ = ["CLIP_TOLERANCE", "EXACT", "CentralNoise", "central_noise"]


def central_noise(privacy: Privacy, coordinates: int) -> CentralNoise | None:
    """The coordinator's mechanism; None where the hospitals add the noise themselves."""
    if not privacy.rules.central:
        return None
    return CentralNoise(privacy.clip_norm, privacy.noise_multiplier, coordinates)
