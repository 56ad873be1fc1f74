"""Means, covariances and regressions out of noised sums of products: errors and intervals by simulation.

For k columns x scaled to [-1, 1] and u = (1, x) it reads the sum over patients of u·uᵀ, (k + 1, k + 1). Sampling is
simulated as from a normal law with the estimated means and covariances. Under another law only the errors of standard
deviations, covariances and correlations are off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from study_protocol.queries.answer import SIMULATIONS
from study_protocol.queries.counting import NORMAL, STANDS_OUT, Estimates, Floats
from study_protocol.queries.variables import Indicator, Patients, Range

_BLOCK = 4096
_MAX_PATIENTS = 1e15

Estimator = Callable[[Floats], Floats]
"""(s, k + 1, k + 1) sums of products -> (s, o) what is read off each."""


def scaled_columns(numbers: Sequence[Range | Indicator], patients: Patients, included: NDArray[np.bool_]) -> Floats:
    """Return the columns of those included, scaled to [-1, 1], NaN where missing, shape (n, k).

    Raises UnreadableColumn.
    """
    return np.stack([number.scaled(patients) for number in numbers], axis=1)[included]


def rounded_sum(scaled: Floats, vectors: Callable[[Floats], Floats], cells: int, spacing: float) -> NDArray[np.int64]:
    """Return the sum over patients of their vectors, every one rounded to the grid, in grid steps, shape (cells,).

    Args:
        scaled: (n, k) of the patients.
        vectors: (b, k) of some of them -> (b, cells).
    """
    total = np.zeros(cells, np.int64)
    for start in range(0, len(scaled), _BLOCK):
        # A power of two divides exactly. Rounding the sum instead would move it by less than a patient's share of Δ′.
        total += np.rint(vectors(scaled[start : start + _BLOCK]) / spacing).astype(np.int64).sum(axis=0)
    return total


@dataclass(frozen=True)
class SecondMoments:
    """Noised sums of products.

    Attributes:
        matrix: (k + 1, k + 1) the sums.
        noise: (k + 1, k + 1) std of the noise that each has by itself.
        centre: every Σx² was summed as Σ(x² - centre), so that it also has this share of the noise of the number of
            patients.
    """

    matrix: Floats
    noise: Floats
    centre: float = 0.0

    @property
    def patients(self) -> float:
        return float(self.matrix[0, 0])

    @property
    def enough(self) -> bool:
        """Whether there are patients enough for means. Otherwise only their number is reported."""
        return self.patients > max(STANDS_OUT * float(self.noise[0, 0]), 2.0)

    @property
    def means(self) -> Floats:
        return means(self.matrix[None])[0]

    @property
    def covariance(self) -> Floats:
        """(k, k) as found: noise may have left it with negative variances."""
        return covariances(self.matrix[None], self.patients)[0]

    @property
    def varies(self) -> NDArray[np.bool_]:
        """(k,) whether each variance is above 3 deviations of its noise. Otherwise it cannot be a divisor."""
        return np.diagonal(self.covariance) > STANDS_OUT * self._variance_noise

    @property
    def _variance_noise(self) -> Floats:
        """(k,) deviation of each variance's noise, to first order in that of Σx², Σx and the number of patients."""
        size, centre, square = self.patients, self.means, np.diagonal(self.matrix)[1:] / self.patients
        parts = (
            np.diagonal(self.noise)[1:],
            2 * centre * self.noise[0, 1:],
            (2 * centre**2 - square + self.centre) * self.noise[0, 0],
        )
        return np.sqrt(np.sum([part**2 for part in parts], axis=0)) / size

    def draws(self, generator: np.random.Generator) -> Draws:
        """Return the changes of the matrix that noise, and another sample of patients, would make."""
        size, k = self.patients, len(self.matrix) - 1
        upper = np.triu(generator.standard_normal((SIMULATIONS, k + 1, k + 1)))
        noise = (upper + np.triu(upper, 1).transpose(0, 2, 1)) * self.noise
        squares = np.arange(1, k + 1)
        noise[:, squares, squares] += self.centre * noise[:, :1, 0]
        # A variance that is lost in its noise is not taken for none: patients differ by at least so much.
        lacking = np.where(self.varies, 0.0, np.maximum(self._variance_noise - np.diagonal(self.covariance), 0.0))
        values, vectors = np.linalg.eigh(self.covariance + np.diag(lacking))
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        centre = self.means
        mean = centre + generator.standard_normal((SIMULATIONS, k)) @ root.T / np.sqrt(size)
        # Bartlett's decomposition (1933) of Wishart's law.
        free = max(size - 1, k + 1.0)
        factor = np.tril(generator.standard_normal((SIMULATIONS, k, k)), -1)
        places = np.arange(k)
        factor[:, places, places] = np.sqrt(generator.chisquare(free - places, (SIMULATIONS, k)))
        factor = root @ factor
        spread = factor @ factor.transpose(0, 2, 1) / free - root @ root.T
        sampling = np.zeros_like(noise)
        sampling[:, 0, 1:] = sampling[:, 1:, 0] = size * (mean - centre)
        outer = mean[:, :, None] * mean[:, None, :] - np.outer(centre, centre)
        sampling[:, 1:, 1:] = size * outer + (size - 1) * spread
        return Draws(self.matrix, noise, sampling)


@dataclass(frozen=True)
class Draws:
    """matrix: as found. noise, sampling: (s, k + 1, k + 1) what each would add to it."""

    matrix: Floats
    noise: Floats
    sampling: Floats

    def read(self, estimator: Estimator) -> Estimates:
        """Return the estimator's values of the matrix, with errors of noise and sampling, and the interval of both."""
        return simulate_estimates(self.matrix, self.noise, self.sampling, estimator)


def simulate_estimates(sums: Floats, noise: Floats, sampling: Floats, estimator: Estimator) -> Estimates:
    """Return the estimates of a noised sum, with errors of noise and sampling, and the interval of both.

    Errors are half the central 68 % of the draws, so that one that divides by nearly zero does not decide.

    Args:
        sums: (…) the noised sum.
        noise, sampling: (s, …) the change that each would add to it.
    """
    raw = estimator(sums[None])[0]
    of_noise, of_sampling = (_half_width(estimator(sums + deviation)) for deviation in (noise, sampling))
    low, high = _bias_corrected(raw, estimator(sums + noise + sampling))
    return Estimates(raw, raw, of_noise, of_sampling, low, high)


def resample_counts(patients: Floats, generator: np.random.Generator) -> Floats:
    """Return the changes that another sample would make to these counts of patients, shape (SIMULATIONS, *shape).

    They follow Poisson's law.
    """
    # No study has more. A hospital that falsifies its sum must not keep the answer from being made.
    capped = np.minimum(patients, _MAX_PATIENTS)
    return generator.poisson(capped, (SIMULATIONS, *patients.shape)).astype(np.float64) - capped


def means(matrices: Floats) -> Floats:
    """Return the means, shape (s, k)."""
    return matrices[:, 0, 1:] / matrices[:, :1, 0]


def covariances(matrices: Floats, patients: float) -> Floats:
    """Return the covariances with the divisor n - 1, of this noised number of patients, shape (s, k, k)."""
    centre = means(matrices)
    products = matrices[:, 1:, 1:] / matrices[:, :1, :1]
    return (products - centre[:, :, None] * centre[:, None, :]) * (patients / (patients - 1))


def correlations(covariance: Floats) -> Floats:
    """Return the correlations, shape (s, k, k).

    They may lie far beyond [-1, 1] where noise has made a variance negative.

    The ends of intervals are cut at last.
    """
    deviations = np.sqrt(np.maximum(np.diagonal(covariance, axis1=1, axis2=2), 1e-40))
    return covariance / deviations[:, :, None] / deviations[:, None, :]


def nearest_possible(covariance: Floats) -> Floats:
    """Return the nearest matrix without negative variances in any direction, shape (k, k)."""
    values, vectors = np.linalg.eigh(covariance)
    projected = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return (projected + projected.T) / 2 if values[0] < 0 else covariance


def _half_width(draws: Floats) -> Floats:
    ordered = np.sort(draws, axis=0)
    low, high = (ordered[round(share * (len(draws) - 1))] for share in (0.15865525, 0.84134475))
    return (high - low) / 2


def _bias_corrected(raw: Floats, draws: Floats) -> tuple[Floats, Floats]:
    """Return quantiles moved by twice the bias of the median (Efron 1981). Of a ratio, nearly Fieller's interval."""
    below = (draws < raw).mean(axis=0) + (draws == raw).mean(axis=0) / 2
    normal = NormalDist()
    bias = [normal.inv_cdf(share) for share in np.clip(below, 0.05, 0.95).tolist()]
    ordered = np.sort(draws, axis=0)
    ends: list[Floats] = []
    for sign in (-1, 1):
        levels = np.array([normal.cdf(2 * shift + sign * NORMAL) for shift in bias])
        places = np.rint(levels * (len(draws) - 1)).astype(np.int64)
        ends.append(np.take_along_axis(ordered, places[None], axis=0)[0])
    return ends[0], ends[1]
