"""ε of composed steps by the inversion of their moment-generating function: no grid of losses, no bound, no outward
rounding.

With M(s) = E e^{sL} of the summed loss, δ(ε) = (1/2πi) ∫ e^{−sε} M(s) / (s(s + 1)) ds over the line Re s = θ > 0,
because 1/(s(s + 1)) is the transform of (1 − e^{−l})₊. Both integrals, this one and the one over outputs in M, are
trapezoidal sums of analytic functions, which converge exponentially. At the saddle point θ the integrand is about δ
itself, so that its relative error is that of floats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from accounting.values import FloatArray

ComplexArray = npt.NDArray[np.complex128]
# Points of the line that are computed together: a square, so that products of 2 · 32 powers give all of them.
_SIDE = 32
_NEGLIGIBLE = 1e-15
_NEAR = 0.9
_ORDERS: FloatArray = np.geomspace(0.05, 2000, 80)
_MOST_BLOCKS = 64


@dataclass(frozen=True)
class GaussianSteps:
    """`count` equal steps with continuous noise."""

    noise: float
    rate: float
    count: int

    def log_mgf(self, exponents: ComplexArray, *, removal: bool) -> ComplexArray:
        """ln E e^{sL} of all steps, shape of the exponents s: one, or _SIDE² upwards on a line at equal distances."""
        ratio = 1 / self.noise
        if self.rate == 1:
            return np.asarray(exponents * (exponents + 1) * (self.count * ratio * ratio / 2), dtype=np.complex128)
        powers = exponents + 1 if removal else -exponents
        # Phases turn with at most `fastest`. The likelihood ratio is 0 at a distance of π times the noise.
        fastest = float(np.abs(powers.imag).max()) * ratio
        width = 2 * math.pi / (1.05 * fastest + 16 + 12 * ratio)
        shift = ratio * float(powers.real.max())
        outputs = np.arange(min(0.0, shift) - 12, max(0.0, shift) + 12, width)
        logs = np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + ratio * outputs - ratio * ratio / 2)
        first = powers[0] * logs - outputs * outputs / 2
        highest = float(first.real.max())
        weights = np.exp(first - highest) * width / math.sqrt(2 * math.pi)
        if powers.size == 1:
            sums = weights.sum(keepdims=True)
        else:
            fine = np.exp(np.multiply.outer(np.arange(_SIDE), (powers[1] - powers[0]) * logs))
            coarse = np.exp(np.multiply.outer(np.arange(_SIDE), (powers[_SIDE] - powers[0]) * logs))
            sums = ((coarse * weights) @ fine.T).ravel()
        logarithms: ComplexArray = np.log(np.where(sums == 0, 1e-300, sums).astype(np.complex128))
        return self.count * (logarithms + highest)


@dataclass(frozen=True)
class _PairDirection:
    """One direction of the neighbouring relation."""

    parts: Sequence[GaussianSteps]
    removal: bool

    def log_mgf(self, exponents: ComplexArray) -> ComplexArray:
        out = np.zeros(exponents.shape, dtype=np.complex128)
        for part in self.parts:
            out += part.log_mgf(exponents, removal=self.removal)
        return out

    @cached_property
    def cumulants(self) -> FloatArray:
        """ln M at `_ORDERS`."""
        return np.array([float(self.log_mgf(np.array([order + 0j]))[0].real) for order in _ORDERS.tolist()])

    def log_bound(self, epsilon: float) -> float:
        """Chernoff's bound on ln δ(ε)."""
        return float((self.cumulants - _ORDERS * epsilon).min())

    def saddle(self, epsilon: float) -> float:
        """θ at which ln M(θ) − θε is about least."""
        return float(_ORDERS[int((self.cumulants - _ORDERS * epsilon).argmin())])

    def period(self, order: float, epsilon: float, delta: float) -> float:
        """How far apart δ(l)·e^{θl} must be repeated, so that nothing of it overlaps at ε."""
        below, above = (45 - math.log(delta)) / order, 20.0
        while self.log_bound(epsilon + above) + order * above - math.log(delta) > -30:
            above *= 1.3
        return below + above


class _PairCurve:
    """δ(ε) of one direction, by the values of M on one line."""

    def __init__(self, direction: _PairDirection, near: float, delta: float) -> None:
        order = direction.saddle(near)
        # A trapezoidal sum repeats the function with this period.
        self._spacing = 2 * math.pi / direction.period(order, near, delta)
        self._log_scale = float(direction.log_mgf(np.array([order + 0j]))[0].real)
        blocks: list[ComplexArray] = []
        lines: list[ComplexArray] = []
        for block in range(_MOST_BLOCKS):
            heights = self._spacing * (block * _SIDE**2 + np.arange(_SIDE**2))
            line = np.asarray(order + 1j * heights, dtype=np.complex128)
            values = np.exp(direction.log_mgf(line) - self._log_scale) / (line * (line + 1))
            lines.append(line)
            blocks.append(values)
            if float(np.abs(values[-_SIDE:]).max()) < _NEGLIGIBLE / (order * (order + 1)):
                break
        else:
            raise ValueError("the law of the loss is too narrow for this integral")
        self._line, self._values = np.concatenate(lines), np.concatenate(blocks)
        # The line below the axis is the conjugate of the one above it. The point on the axis stands for itself.
        self._values[0] /= 2

    def delta(self, epsilon: float) -> float:
        terms = self._values * np.exp(self._log_scale - self._line * epsilon)
        return float(terms.real.sum()) * self._spacing / math.pi


def exact_epsilon(parts: Sequence[GaussianSteps], delta: float, near: float) -> float:
    """ε at δ, the larger of both directions, right to about 1e-8.

    near  an approximation of ε > 0, at most a tenth away from it

    Raises ValueError: `near` is further away, or the loss has too little spread for the sums.
    """
    epsilon = 0.0
    for removal in (True, False):
        direction = _PairDirection(parts, removal)
        # Below that, this direction does not decide, and it may have no loss as large as `near`.
        if direction.log_bound(_NEAR * near) > math.log(delta):
            epsilon = max(epsilon, _solved(_PairCurve(direction, near, delta), delta, near))
    if not epsilon:
        raise ValueError(f"epsilon is below {_NEAR * near:g}")
    return epsilon


def _solved(curve: _PairCurve, delta: float, near: float) -> float:
    # Not far from the line's own place, where the sums keep their digits.
    low, high = _NEAR * near, near / _NEAR
    if curve.delta(low) <= delta:
        return 0.0
    if curve.delta(high) > delta:
        raise ValueError(f"epsilon is above {high:g}")
    while high - low > 1e-10:
        middle = (low + high) / 2
        low, high = (middle, high) if curve.delta(middle) > delta else (low, middle)
    return (low + high) / 2
