"""From gradient norms to the distances that are accounted: never below what a record moved the noised sum."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

# Per-record norms are sums in float32; this covers their rounding, as the clip factors do.
_NORM_SLACK = 1 + 2.0**-14


def accounted(norms: npt.NDArray[np.float64], *, clip_norm: float, rounding: float) -> npt.NDArray[np.float64]:
    """Distances for noise of noise_multiplier · clip_norm, rounded up, at most clip_norm.

    norms     before clipping, finite; clipped together or layer by layer, a record adds at most min(norm, clip_norm)
    rounding  L2 norm that rounding to the noise's grid can add to a contribution; the noise covers clip_norm + rounding
    """
    contribution = np.minimum(norms * _NORM_SLACK, clip_norm) + rounding
    # Scaling both back to the clip norm keeps their ratio, and the top stays it.
    scaled = np.nextafter(contribution * (clip_norm / (clip_norm + rounding)), np.inf)
    return np.minimum(scaled, clip_norm)
