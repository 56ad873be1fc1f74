"""The clip norm of the next round, where the study's norm is adaptive. Pure: it follows from noised values alone."""

from __future__ import annotations

from study_protocol.study.adaptive_clip import CLIP_BITS
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensor_files import ReadableTensors


def next_clip_norm(settings: StudySettings, norm: float | None, total: ReadableTensors) -> float | None:
    """Return the norm of the rounds that start from a new model, or None if the study's norm is constant.

    Args:
        settings: at the place of the round in a noise schedule, with the first clip norm.
        norm: of the round that made the model.
        total: the noised sum of the round's updates, on their own scale.
    """
    adaptive = settings.privacy.adaptive_clip
    bits = settings.at_clip_norm(norm).privacy.clip_bits
    if adaptive is None or bits is None or norm is None:
        return None
    share = bits.share(float(total.piece(CLIP_BITS, 0, 1)[0]), settings.privacy.expected_clients)
    return adaptive.next_norm(norm, share, settings.privacy.clip_norm)
