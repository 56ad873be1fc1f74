"""One noised step as one level sees it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from accounting.errors import InvalidArgument
from accounting.units import check_array


def total_noise(noise_stds: Sequence[float]) -> float:
    """√Σ s_j², rounded down: the noise of independent shares."""
    shares = check_array("noise_stds", noise_stds)
    if bool((shares <= 0).any()):
        raise InvalidArgument("noise_stds", "every share must be > 0")
    return math.sqrt(math.fsum(float(share) ** 2 for share in shares)) * (1 - 1e-15)
