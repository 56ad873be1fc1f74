"""The bits of an adaptive clip norm beside the clipped gradients of a step (`study_protocol.study.adaptive_clip`)."""

from __future__ import annotations

from dataclasses import replace

import torch

from private_learning.gradients import ClippedSum
from study_protocol.study.adaptive_clip import CLIP_BITS, ClipBits


def with_bits(part: ClippedSum, bits: ClipBits) -> ClippedSum:
    """Return the sum with the sum of the bits as one more number. One record moves both by at most `joint_norm`.

    A record without a gradient counts as longer than the norm. Each bit depends on the norm of its record alone, as the
    clipped gradient does, and sums of bits are exact: `rounding` stays that of the gradients.
    """
    below = int((part.norms <= part.clip_norm).sum())
    device = next(iter(part.gradients.values())).device
    total = torch.tensor([bits.total(below, len(part.norms))], dtype=torch.float64, device=device)
    return replace(part, gradients=part.gradients | {CLIP_BITS: total}, clip_norm=bits.joint_norm)
