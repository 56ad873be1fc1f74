"""A released point around which gradients are clipped (centred clipping: Karimireddy, He & Jaggi 2021).

Records that agree with what the last round found keep little to clip, and are charged for the little that they moved.
Whatever the centre is, one record moves the sum by at most the clip norm: it may be any function of what was released.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from client_sdk.protocol.study.settings import StudySettings
from client_sdk.protocol.wire.tensors import Array


def released_centre(
    settings: StudySettings, received: Mapping[str, Array], previous: Mapping[str, Array] | None
) -> dict[str, Tensor] | None:
    """The mean gradient that led from the `previous` released weights to the received ones; None: clip around zero.

    previous  parameter name -> weights; None where the round before released none
    """
    if settings.training.clipping_centre == "zero" or previous is None:
        return None
    rate = settings.training.optimiser.learning_rate
    with np.errstate(over="ignore"):  # an infinity stops the step, by name
        return {name: torch.as_tensor((previous[name] - received[name]) / rate) for name in received}
