"""How well numbers order records: areas under curves, and the concordance of survival times."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import scipy.stats  # pyright: ignore[reportMissingTypeStubs]
from numpy.typing import NDArray

_ranks: Any = cast(Any, scipy.stats).rankdata  # It comes without annotations.
Floats = NDArray[np.float64]
# So many comparisons at once: 16 MiB of booleans.
_BLOCK = 1 << 24


def area(score: Floats, positive: NDArray[np.bool_]) -> float:
    """Under the receiver operating curve: the chance that a positive scores above a negative, ties half.

    Mann and Whitney 1947: it is their U over the number of pairs. Both kinds must be there.
    """
    inside, count = int(positive.sum()), len(positive)
    above = float(_ranks(score)[positive].sum()) - inside * (inside + 1) / 2
    return above / (inside * (count - inside))


def concordance(risk: Floats, time: Floats, event: NDArray[np.bool_]) -> float | None:
    """Return Harrell's C (Harrell et al. 1982).

    It is a share of the pairs whose order is known. In that share the patient who died earlier had the higher risk, and
    ties count half. None where no pair's order is known.

    The order of i before j is known where i has an event and time_i < time_j, or the same time and j is censored.
    """
    right, pairs = 0.0, 0
    dead = np.flatnonzero(event)
    for some in np.array_split(dead, max(1, -(-len(dead) * len(time) // _BLOCK))):
        event_times = time[some, None]
        comparable = (event_times < time) | ((event_times == time) & ~event)
        higher = np.where(risk[some, None] > risk, 1.0, 0.5 * (risk[some, None] == risk))
        right += float(higher[comparable].sum())
        pairs += int(comparable.sum())
    return right / pairs if pairs else None


def brier_at_end(survival: Floats, time: Floats, event: NDArray[np.bool_], end: float) -> float | None:
    """Return the mean squared distance of the predicted survival until `end` and the outcome (Graf et al. 1999).

    Records that were censored before count zero, and the others for as many as them. Their weight is one over the
    Kaplan-Meier estimate that no record has been censored yet, just before their event, or before the end. None where
    that is 0.

    survival: (n,) probabilities. time: (n,), at most `end`. A record with time `end` and no event lived through.
    """
    alive = (time >= end) & ~event
    censored = ~event & ~alive
    censored_times, at = np.unique(time[censored], return_counts=True)
    # A death at the same time comes first.
    at_risk = np.array([int(np.sum((time > u) | ((time == u) & ~event))) for u in censored_times])
    free = np.concatenate([[1.0], np.cumprod(1 - at / np.maximum(at_risk, 1))])
    weight = free[np.searchsorted(censored_times, time, side="left")]
    is_counted = ~censored
    if not (weight[is_counted] > 0).all():
        return None
    return float(np.sum(np.square(survival - alive)[is_counted] / weight[is_counted])) / len(time)
