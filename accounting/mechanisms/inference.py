"""The cost of draws from a fitted posterior: the sound release of a strongly convex fit, and variational inference as
the ICML paper (Triastcyn & Faltings 2020, section 5) and the thesis (section 5.5.3) print it.
"""

from __future__ import annotations

import math

import numpy as np

from accounting.errors import InvalidArgument
from accounting.mechanisms.divergence import Values
from accounting.values import FloatArray, check_array, check_count, check_nonnegative, check_positive

# A few float64 roundings, upwards.
_UP = 1 + 2.0**-48


def fit_distance(gradient_norms: Values, *, records: float, curvature: float, residual: float = 0.0) -> FloatArray:
    """How far one record moves a fit: ‖∇ℓ_i‖/(nΛ) + 2τ/Λ, rounded up. Of the shape of `gradient_norms`.

    F(w) = (1/n) Σ_i ℓ_i(w) + (Λ/2)‖w‖², each ℓ_i convex, n public. w and w′ are any points with ‖∇F(w)‖ ≤ τ with the
    record and ‖∇F′(w′)‖ ≤ τ without it.

    gradient_norms  ‖∇ℓ_i‖ ≥ 0 at one of the two fits, whichever. For every record and any data, a public bound on it
    records         n > 0, the public denominator
    curvature       Λ > 0
    residual        τ ≥ 0, a public bound that the solver certified

    Theorem. ‖w − w′‖ ≤ ‖∇ℓ_i‖/(nΛ) + 2τ/Λ. Proof. F and F′ = F − ℓ_i/n are Λ-strongly convex. With the gradient at w,
    Λ‖w − w′‖ ≤ ‖∇F′(w) − ∇F′(w′)‖ ≤ ‖∇F(w)‖ + ‖∇ℓ_i(w)‖/n + ‖∇F′(w′)‖. With the gradient at w′ likewise, from F.
    (Chaudhuri, Monteleoni & Sarwate 2011, Lemma 7, has it for exact minima.) Raises InvalidArgument.

    >>> float(fit_distance([2.0], records=1000, curvature=0.01, residual=1e-6)[0].round(6))
    0.2002
    """
    norms = check_array("gradient_norms", gradient_norms)
    n, strength = check_positive("records", records), check_positive("curvature", curvature)
    tau = check_nonnegative("residual", residual)
    with np.errstate(over="ignore"):
        return (norms / n + 2 * tau) / strength * _UP


def forgetful_ratio(*, steps: int, pull: float, shift: float) -> float:
    """Distance over noise of `steps` draws as printed: √T · a·g/h. Not sound.

    At each step of variational inference weights are drawn from N(θ, h²) and the hidden θ then moves. The printed
    accounting charges a draw with what the record did in one step, a·g/h, and forgets the steps before.

    steps  T draws, one after each step
    pull   a in (0, 1): step size times curvature, the share of its way to the optimum that θ goes in a step
    shift  g/h: how far the record moves the optimum, in standard deviations of a draw

    The true one is `accumulated_ratio`. 1/ratio is the noise multiplier of a Gaussian mechanism that tells as much.
    Raises InvalidArgument.
    """
    return math.sqrt(check_count("steps", steps)) * _pull(pull) * check_nonnegative("shift", shift)


def accumulated_ratio(*, steps: int, pull: float, shift: float) -> float:
    """Distance over noise of the same draws in truth: (g/h) √Σ_t (1 − (1 − a)^t)², rounded up. Arguments as above.

    On a quadratic loss the gap between the hidden parameters with and without the record obeys
    D_t = (1 − a) D_{t−1} + a·g, so that D_t = g(1 − (1 − a)^t), and the draw at step t tells it with noise h. Given the
    data all draws are independent: their losses add up.

    >>> round(accumulated_ratio(steps=200, pull=0.05, shift=0.05), 4)
    0.6543
    """
    ratios = -np.expm1(np.arange(1, check_count("steps", steps) + 1) * np.log1p(-_pull(pull)))
    return float(np.sqrt(np.square(ratios).sum())) * check_nonnegative("shift", shift) * (1 + 1e-12)


def _pull(value: float) -> float:
    pull = check_positive("pull", value)
    if pull >= 1:
        raise InvalidArgument("pull", f"must be below 1, not {pull!r}")
    return pull
