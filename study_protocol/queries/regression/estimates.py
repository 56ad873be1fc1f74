"""What is read off the noised gradient and information of a regression: the next point, or estimates with intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from study_protocol.queries.counting import Floats


@dataclass(frozen=True, repr=False)
class Released:
    """The noised sums at `at`, on the scaled design.

    at           (D,) coefficients
    gradient     (D,) Σ w·r·u with noise of deviation gradient_noise in each
    information  (D, D) Σ w·v·u·uᵀ with noise of deviation information_noise on its diagonal, 1/√2 of it elsewhere
    noised       (D, D) where the information has noise. It has none where it is zero by design: between hospitals
    """

    at: Floats
    gradient: Floats
    information: Floats
    gradient_noise: float
    information_noise: float
    noised: NDArray[np.bool_]

    @property
    def floor(self) -> float:
        """The largest eigenvalue that noise alone has: about s√(2D), s the deviation on its diagonal (Wigner 1955)."""
        widest = int(self.noised.sum(axis=1).max())
        return self.information_noise * math.sqrt(2 * widest)

    @property
    def smallest(self) -> float:
        return float(np.linalg.eigvalsh(self.information)[0])

    @property
    def definite(self) -> Floats:
        """The information with no eigenvalue below `floor`: a fixed public rule."""
        values, vectors = np.linalg.eigh(self.information)
        return np.asarray((vectors * np.maximum(values, max(self.floor, _TINY))) @ vectors.T, np.float64)

    def newton(self) -> Floats:
        """Return the next coefficients, shape (D,)."""
        return self.at + np.linalg.solve(self.definite, self.gradient)

    def noise_at(self, step: Floats) -> Floats:
        """Return the covariance of the noise in gradient - information · step, shape (D, D)."""
        half = self.information_noise**2 / 2
        mixed = half * self.noised * np.outer(step, step)
        return mixed + np.diag(self.gradient_noise**2 + half * (self.noised @ step**2))


# Without noise nothing is floored but what floats decide.
_TINY = 1e-12
