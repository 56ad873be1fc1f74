"""Exact samples of the discrete Gaussian P(x) ∝ exp(−x²/2s²) on the integers (Canonne, Kamath, Steinke 2020).

The line is cut into cells of equal width 2^b. Under the graph lies a rectangle in each cell, its height rounded down
to a multiple of 2⁻¹⁶/width: with one 16-bit lookup and b uniform bits almost every sample is drawn from the
rectangles. The rest (about one in a hundred) is drawn from what the rectangles left over, by rejection with integer
cell weights and a comparison that is decided in float64 where it is clear and in 120-digit decimals where it is not.
Both parts have exact probabilities, so the mixture is the law itself; only the tails beyond 15 s are cut.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from client_sdk.protocol.randomness import RandomSource

TAIL = 15.0  # in standard deviations
MAX_STD = 2.0**40
_PI = Decimal(
    "3.1415926535897932384626433832795028841971693993751058209749445923078164062862089986280348253421170679821480865132"
)
_SLACK = 2.0**-44  # bounds the density's relative error in float64: an exponent up to 113, rounded


class DiscreteGaussian:
    """A sampler for one standard deviation `std`, in grid units.

    sampling_error: total variation distance per sample between what is drawn and the law (the cut tails). Add
    (number of samples) × sampling_error to δ.
    """

    def __init__(self, std: float) -> None:
        if not 0.0 < std <= MAX_STD:
            raise ValueError(f"std must lie in (0, 2^40] grid units, got {std!r}")
        self.std = float(std)
        self.bits = max(0, math.floor(math.log2(std)) - 6)
        width = 1 << self.bits
        half = math.ceil(TAIL * std / width) + 1
        self.starts = np.arange(-half, half, dtype=np.int64) * width
        self.sampling_error = 2.0 * math.exp(-((half * width) ** 2) / (2 * std**2))
        far = np.maximum(abs(self.starts), abs(self.starts + width - 1))
        near = np.minimum(abs(self.starts), abs(self.starts + width - 1))
        self._normaliser = float(_normaliser(self.std))
        low, high = self._density(far), self._density(near)
        counts = np.floor(low * width * 65536 * (1 - _SLACK)).astype(np.int64)
        self._floor = counts / (65536.0 * width)
        self._table = np.repeat(self.starts, counts)
        self._fast = len(self._table)
        self._build_rest(low, high, width)

    def _density(self, x: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.exp(-(x.astype(np.float64) ** 2) / (2 * self.std**2)) / self._normaliser

    def _build_rest(self, low: NDArray[np.float64], high: NDArray[np.float64], width: int) -> None:
        """Integer weights of the cells, proportional to an upper bound on what their rectangle left over."""
        above = (high - self._floor) * (1 + _SLACK) + high * _SLACK
        scale = 2.0**62 / float((above * width).sum())
        # Rounded up to a float64, hence to an integer the rejection bound below equals exactly.
        weights = np.ceil(above * width * scale) + 1.0
        self._weights = np.cumsum(weights.astype(np.uint64))
        self._bound = weights / (scale * width)
        self._margin = 2 * _SLACK * high / self._bound + 2.0**-50

    def sample(self, size: int, source: RandomSource) -> NDArray[np.int64]:
        """(size,) independent integers."""
        index = source.words(size, np.uint16)
        escaped = np.flatnonzero(index >= self._fast) if self._fast < 65536 else np.empty(0, np.int64)
        table = np.resize(self._table, 65536) if self._fast else np.zeros(65536, np.int64)
        out = table[index]
        out += self._offsets(size, source)
        if len(escaped):
            out[escaped] = self._rest(len(escaped), source)
        return out

    def _offsets(self, size: int, source: RandomSource) -> NDArray[np.int64]:
        """Uniform on [0, width)."""
        if self.bits == 0:
            return np.zeros(size, np.int64)
        dtype = np.uint32 if self.bits <= 32 else np.uint64
        return (source.words(size, dtype) & dtype((1 << self.bits) - 1)).astype(np.int64)

    def _rest(self, size: int, source: RandomSource) -> NDArray[np.int64]:
        """Samples of the law minus the rectangles."""
        found: list[NDArray[np.int64]] = []
        missing = size
        while missing > 0:
            draws = 2 * missing + 64
            pick = source.words(draws, np.uint64) >> np.uint64(1)
            pick = pick[pick < self._weights[-1]]
            cell = np.searchsorted(self._weights, pick, side="right")
            x = self.starts[cell] + self._offsets(len(cell), source)
            ratio = (self._density(x) - self._floor[cell]) / self._bound[cell]
            coin = (source.words(len(cell), np.uint64) >> np.uint64(11)).astype(np.float64) * 2.0**-53
            accepted = coin < ratio
            for i in np.flatnonzero(abs(coin - ratio) <= self._margin[cell]):
                accepted[i] = self._decide(int(x[i]), int(cell[i]), float(coin[i]), source)
            kept = x[accepted][:missing]
            found.append(kept)
            missing -= len(kept)
        return np.concatenate(found)

    def _decide(self, x: int, cell: int, coin: float, source: RandomSource) -> bool:
        """The comparison coin < (P(x) − floor)/bound with 320 random bits and 120 digits."""
        with localcontext() as context:
            context.prec = 120
            more = int.from_bytes(source.words(40, np.uint8).tobytes(), "big")
            exact_coin = Decimal(coin) + Decimal(more) / Decimal(2) ** (320 + 53)
            density = (-(Decimal(x) ** 2) / (2 * Decimal(self.std) ** 2)).exp() / _normaliser(self.std)
            ratio = (density - Decimal(float(self._floor[cell]))) / Decimal(float(self._bound[cell]))
            return bool(exact_coin < ratio)


@lru_cache(maxsize=32)
def _normaliser(std: float) -> Decimal:
    """Σ_x exp(−x²/2s²) to 100 digits: the sum itself, or Poisson summation s√(2π)(1 + 2Σ e^{−2π²s²k²}) above s = 4."""
    with localcontext() as context:
        context.prec = 120
        s2 = Decimal(std) ** 2
        terms = range(1, 2 + math.ceil(22 * std)) if std < 4 else range(1, 3)
        if std < 4:
            return 1 + 2 * sum(((-(Decimal(k) ** 2) / (2 * s2)).exp() for k in terms), Decimal(0))
        return (2 * _PI * s2).sqrt() * (1 + 2 * sum(((-2 * _PI**2 * s2 * k * k).exp() for k in terms), Decimal(0)))


@lru_cache(maxsize=8)
def sampler(std: float) -> DiscreteGaussian:
    """The sampler of this standard deviation; building one takes about a millisecond."""
    return DiscreteGaussian(std)
