"""What is read off the noised gradient and information of a regression: the next point, or estimates with intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from study_protocol.queries.counting import NORMAL, STANDS_OUT, Floats
from study_protocol.queries.regression.families import TOP_VARIANCE, FamilyName


@dataclass(frozen=True, repr=False)
class ReleasedSums:
    """The noised sums of one step, on v, the design in its frame.

    gradient     (D,) Σ w·r·v with noise of deviation gradient_noise in each
    information  (D, D) Σ w·c·v·vᵀ with noise of deviation information_noise on its diagonal, 1/√2 of it elsewhere
    noised       (D, D) where the information has noise. It has none where it is zero by design: between hospitals
    slopes       how many coefficients are none of an intercept
    square       Σ w·r², with its noise. Of a yes or no 0
    top          Σ w·z of `families.excess_at_top`, with its noise. But of counts 0
    """

    gradient: Floats
    information: Floats
    gradient_noise: float
    information_noise: float
    noised: NDArray[np.bool_]
    slopes: int
    square: float = 0.0
    square_noise: float = 0.0
    top: float = 0.0
    top_noise: float = 0.0

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

    @property
    def patients(self) -> float:
        """Σ w·c over all patients. Of a linear regression, their weight."""
        return float(np.trace(self.information[self.slopes :, self.slopes :]))

    @property
    def has_patients(self) -> bool:
        """Whether that stands out of its noise."""
        intercepts = len(self.information) - self.slopes
        return self.patients > STANDS_OUT * self.information_noise * math.sqrt(intercepts)

    @property
    def mean(self) -> float:
        """The mean residual, cut to [-1, 1]. 0 where there are too few patients."""
        if not self.has_patients:
            return 0.0
        return min(max(float(self.gradient[self.slopes :].sum()) / self.patients, -1.0), 1.0)

    def newton(self) -> Floats:
        """Return the step to the next coefficients, shape (D,)."""
        return np.asarray(np.linalg.solve(self.definite, self.gradient), np.float64)

    def whitening(self, least_variances: Floats) -> tuple[Floats, Floats] | None:
        """Return m and L with L(v - m) of the information's mean 0 and covariance I, of the slopes' columns.

        A direction that does not stand out of the noise counts as wide as the noise. None: too few patients.

        Args:
            least_variances: (slopes,) a column with less counts as if it varied by so much.
        """
        slopes = self.slopes
        patients = self.patients
        if not self.has_patients:
            return None
        mean = self.information[:slopes, slopes:].sum(axis=1) / patients
        covariance = self.information[:slopes, :slopes] / patients - np.outer(mean, mean)
        # Noise alone can make a variance negative, so that each column gets a public floor first.
        lacking = np.maximum(least_variances - np.diagonal(covariance), 0.0)
        values, vectors = np.linalg.eigh(covariance + np.diag(lacking))
        narrowest = max(self.information_noise * math.sqrt(2 * slopes) / patients, _NARROWEST)
        return mean, np.asarray((vectors / np.sqrt(np.maximum(values, narrowest))) @ vectors.T, np.float64)

    def noise_at(self, squares: Floats) -> Floats:
        """Return the covariance of the noise in gradient - information · step, shape (D, D).

        Args:
            squares: (D, D) step · stepᵀ.
        """
        half = self.information_noise**2 / 2
        of_rows = self.noised @ np.diagonal(squares)
        return half * self.noised * squares + np.diag(self.gradient_noise**2 + half * of_rows)


@dataclass(frozen=True, repr=False)
class Fit:
    """The last step.

    step             (D,) from `at` to the estimate, in the frame
    sampling, noise  (D, D) covariances of the estimate
    dispersion       variance of residuals over what the family's law says, or that of a linear regression
    """

    step: Floats
    sampling: Floats
    noise: Floats
    dispersion: float


def fit(released: ReleasedSums, family: FamilyName) -> Fit:
    """Return the last step.

    Weights make the sampling covariance smaller than the inverse information, never larger. The information's noise
    counts as at the ends of the interval, as Fieller (1954) has it: where it is not small, the step alone says too
    little of the coefficients that it is multiplied with.
    """
    step = released.newton()
    inverse = np.asarray(np.linalg.inv(released.definite), np.float64)
    # The delta method: noise moves the estimate as a change of the estimating equation does.
    squares = np.outer(step, step)
    noise = inverse @ released.noise_at(squares) @ inverse
    dispersion = 1.0
    if family == "linear":
        dispersion = _dispersion(released, step, noise)
    elif family == "poisson":
        # Quasi-Poisson (McCullagh, Nelder 1989): one factor for all. Clipped counts vary less than v: it is 1 at least.
        dispersion = max(1.0, released.square / max(released.patients, 1.0))
    ends = squares + NORMAL**2 * (dispersion * inverse + noise)
    return Fit(step, dispersion * inverse, inverse @ released.noise_at(ends) @ inverse, dispersion)


def _dispersion(released: ReleasedSums, step: Floats, noise: Floats) -> float:
    """Return the variance of the residuals, the part of the noise in the explained square taken off.

    It is at least the deviation of its own noise, so that residuals lost in it are not taken for none.
    """
    # Degrees of freedom, of a number of patients that noise may have put below the coefficients.
    weight = max(released.patients - len(step), 1.0)
    explained = float(released.gradient @ step) - float(np.trace(released.definite @ noise))
    return max(released.square - explained, released.square_noise) / weight


def stands_out(released: ReleasedSums) -> bool:
    """Return whether the information is above its noise in every direction, so that no part of it was floored."""
    return released.patients > released.floor and released.smallest > released.floor


def breaks_the_law(released: ReleasedSums) -> bool:
    """Return whether more or fewer counts lie at the range's high than Poisson's law has, beyond noise and sampling.

    Then what the law says of counts above it is wrong, and estimates are biased.
    """
    error = math.hypot(released.top_noise, math.sqrt(TOP_VARIANCE * max(released.patients, 0.0)))
    return abs(released.top) > STANDS_OUT * error


def remainder(released: ReleasedSums, fitted: Fit) -> float:
    """Return how far the last step's parabola may be off, in errors: ½ ‖step‖² / √(Σ w·c), norms in information.

    The residual's second derivative is about its first, so that this is what a row of usual length brings. One error
    is that of sampling and noise together, the mean over directions.
    """
    information, step = released.definite, fitted.step
    error = math.sqrt(1 + float(np.trace(information @ fitted.noise)) / len(step))
    return float(step @ information @ step) / (2 * math.sqrt(max(released.patients, 1.0)) * error)


# Without noise nothing is floored but what floats decide.
_TINY = 1e-12
# Of a variance in a frame.
_NARROWEST = 1e-6
