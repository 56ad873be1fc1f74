"""The interval of R², the share of a variance that predictors explain."""

from __future__ import annotations

import numpy as np

from study_protocol.queries.counting import Floats

# Of R²: where Fisher's transformation is still finite.
_MAX_EXPLAINED = 1 - 1e-9
_PLACES = 400
_TAIL = 0.025


def interval_of_explained(slopes: Floats, explained: Floats, covariance: Floats) -> tuple[float, float]:
    """Return the ends of the shares that the estimate does not contradict at 5 %.

    R² is the square of a length, and chance alone makes it longer. Draws around the estimate are all too long where
    little is explained. So each possible share is tried. The estimated vector is scaled to its length, and the draws
    around that say how often an estimate would be shorter. In the one-predictor case this is the test of a correlation
    in Fisher's scale (1915).

    Args:
        slopes: (1 + s, p) the estimate, then draws of noise and sampling together.
        explained: (1 + s,) R² of each, not cut.
        covariance: (p, p) of the predictors as estimated.
    """
    values, vectors = np.linalg.eigh(covariance)
    across = slopes @ (vectors * np.sqrt(np.maximum(values, 0.0)))
    lengths = np.arctanh(np.sqrt(np.clip(explained, 0.0, _MAX_EXPLAINED)))
    norms = np.linalg.norm(across, axis=1)
    directions = across / np.where(norms > 0, norms, 1.0)[:, None]
    scaled, length = directions * lengths[:, None], lengths[0]
    deviations = scaled[1:] - scaled[0]
    candidates = np.linspace(0.0, float(lengths.max()) + float(np.linalg.norm(deviations, axis=1).max()), _PLACES)
    along, square = deviations @ directions[0], (deviations**2).sum(axis=1)
    shorter = (candidates[:, None] ** 2 + 2 * candidates[:, None] * along + square <= length**2 * (1 + 1e-12)).mean(
        axis=1
    )
    longest, shortest = candidates[shorter >= _TAIL], candidates[shorter <= 1 - _TAIL]
    high = max(float(longest.max(initial=0.0)), float(length))
    low = min(float(shortest.min(initial=np.inf)), float(length))
    return float(np.tanh(low) ** 2), float(np.tanh(high) ** 2)
