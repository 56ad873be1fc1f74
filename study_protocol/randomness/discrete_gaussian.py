"""Exact samples of the discrete Gaussian P(x) ∝ exp(−x²/2s²) on the integers (Canonne, Kamath, Steinke 2020).

The line is cut into cells of equal width 2^b. Under the graph lies a rectangle in each cell, its height rounded down to
a multiple of 2⁻¹⁶/width. With one 16-bit lookup and b uniform bits almost every sample is drawn from the rectangles.
The rest (about one in a hundred) is drawn from the difference between the law and the rectangles. This is rejection
with integer cell weights. The comparison is decided in float64 where it is clear, and in 120-digit decimals where it is
not. Both parts have exact probabilities, so the mixture is the law itself. Only the tails beyond 15 s are cut.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from study_protocol.randomness.source import COORDINATOR, Purpose, Randomness, RandomSource, SecureRandomness

# Beyond lies less than 10⁻⁴⁸ of the law: below the 10⁻⁴⁰ that budgets take off δ, for sums of 10⁸ numbers.
TAIL = 15.0  # in standard deviations
# 15 of them stay below 2⁴⁴: every integer that is drawn is exact in float64.
MAX_STD = 2.0**40
# The temporaries of so many samples fit the processor's cache.
CHUNK = 1 << 15
_SLOTS = 1 << 16
# Weights add up to 2⁶¹, within uint64. A guide of 2¹⁴ steps spares most picks the binary search.
_WEIGHT_BITS, _GUIDE_BITS = 61, 14
_SLACK = 2.0**-44  # bounds the density's relative error in float64: an exponent up to 113, rounded
_PI = Decimal(
    "3.1415926535897932384626433832795028841971693993751058209749445923078164062862089986280348253421170679821480865132"
)


class DiscreteGaussian:
    """A sampler for one standard deviation `std`, in grid units: the law's parameter s, 0 < std ≤ 2⁴⁰.

    sampling_error is the total variation distance per sample between the drawn samples and the law (the cut tails). For
    n samples n · (1 + e^ε) · sampling_error adds to δ. That is below 10⁻³⁰ for any use.
    """

    def __init__(self, std: float) -> None:
        if not 0.0 < std <= MAX_STD:
            raise ValueError(f"std must lie in (0, 2^40] grid units, got {std!r}")
        self.std = float(std)
        self._normaliser = float(normaliser(self.std))
        # 64 to 128 cells a deviation: the rectangles then leave over about one sample in a hundred.
        self.bits = max(0, math.floor(math.log2(std)) - 6)
        width = 1 << self.bits
        half = math.ceil(TAIL * std / width) + 1
        self.starts = np.arange(-half, half, dtype=np.int64) * width
        self.sampling_error = 2.0 * math.exp(-((half * width) ** 2) / (2 * std**2))
        edges = abs(self.starts), abs(self.starts + (width - 1))
        low, high = self.density(np.maximum(*edges)), self.density(np.minimum(*edges))
        # Rectangles must stay under the graph: rounded down by more than the density may be wrong.
        counts = np.floor(low * width * _SLOTS * (1 - _SLACK)).astype(np.int64)
        self.floor = counts / float(_SLOTS * width)
        self.fast = int(counts.sum())
        # Half the memory to walk through, while a start and its offset fit.
        self.dtype = np.int32 if half * width < 2**30 else np.int64
        # Slots beyond `fast` are overwritten by samples of the rest.
        self._table = np.zeros(_SLOTS, self.dtype)
        self._table[: self.fast] = np.repeat(self.starts, counts)
        # Bounds from above what the rectangles leave over, the density's own error included.
        above = (high - self.floor) * (1 + _SLACK) + high * _SLACK
        # A power of two, so that the weights and the bounds they stand for are proportional without rounding.
        scale = 2.0 ** (_WEIGHT_BITS - math.ceil(math.log2(float((above * width).sum()))))
        weights = np.ceil(above * width * scale) + 1.0
        self.weights = np.cumsum(weights.astype(np.uint64))
        # Picks end at 2⁶¹: cells beyond would never be drawn. The sum is a multiple of 2⁻¹⁶ and a little, so that it
        # never lies so close below a power of two that rounding every weight up could pass it. This checks it.
        if int(self.weights[-1]) > 1 << _WEIGHT_BITS:
            raise ValueError(f"std {std!r}: the cells' weights do not fit {_WEIGHT_BITS} bits")
        self.bound = weights / (scale * width)
        steps = np.arange((1 << _GUIDE_BITS) + 1, dtype=np.uint64) << np.uint64(_WEIGHT_BITS - _GUIDE_BITS)
        self._guide = np.searchsorted(self.weights, steps, side="right")
        # Farther apart than this, float64 decides a comparison rightly.
        self._margin = 2 * _SLACK * high / self.bound + 2.0**-50

    def density(self, x: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return P(x) in float64, relative error below 2⁻⁴⁴."""
        return np.exp(-(x.astype(np.float64) ** 2) / (2 * self.std**2)) / self._normaliser

    def sample(self, size: int, source: RandomSource) -> NDArray[np.int64]:
        """Return independent integers, shape (size,)."""
        return self.sample_compact(size, source).astype(np.int64, copy=False)

    def sample_compact(self, size: int, source: RandomSource) -> NDArray[np.signedinteger]:
        """Return independent integers in the smallest type that holds every sample, shape (size,)."""
        out = np.empty(size, self.dtype)
        for start, part in self.chunks(size, source):
            out[start : start + len(part)] = part
        return out

    def chunks(self, size: int, source: RandomSource) -> Iterator[tuple[int, NDArray[np.signedinteger]]]:
        """Yield (start, samples) in pieces that fit the processor's cache. Each array is reused for the next piece."""
        index = np.empty(min(CHUNK, size), np.int64)
        out = np.empty(len(index), self.dtype)
        rest = self._rest_stream(size, source)
        for start in range(0, size, CHUNK):
            n = min(CHUNK, size - start)
            words = source.words(n, np.uint16)
            index[:n] = words
            np.take(self._table, index[:n], out=out[:n], mode="wrap")
            if self.bits:
                out[:n] += self._offsets(n, source)
            escaped = np.flatnonzero(words >= self.fast) if self.fast < _SLOTS else ()
            if len(escaped):
                out[escaped] = rest.take(len(escaped))
            yield start, out[:n]

    def _offsets(self, size: int, source: RandomSource) -> NDArray[np.integer]:
        """Return integers uniform on [0, width)."""
        dtype = np.uint16 if self.bits <= 16 else np.uint32 if self.bits <= 32 else np.uint64
        words = source.words(size, dtype)
        if self.bits < words.itemsize * 8:
            words = words & dtype((1 << self.bits) - 1)
        # NumPy adds uint16 within int32. With wider unsigned words it would add in another type.
        return words if words.itemsize < 4 else words.astype(self.dtype)

    def _rest_stream(self, size: int, source: RandomSource) -> _Reservoir:
        expected = size * (1 - self.fast / _SLOTS)
        # Four deviations above the mean: one block is nearly always enough.
        return _Reservoir(self, source, int(expected + 4 * math.sqrt(expected)) + 16)

    def rest(self, draws: int, source: RandomSource) -> NDArray[np.int64]:
        """Return at most `draws` samples of the law minus the rectangles, by rejection."""
        pick = source.words(draws, np.uint64) >> np.uint64(64 - _WEIGHT_BITS)
        # Rejected, not reduced: a remainder would favour the first cells.
        pick = pick[pick < self.weights[-1]]
        cell = self.cells(pick)
        x = self.starts[cell]
        if self.bits:
            x += self._offsets(len(cell), source).astype(np.int64)
        ratio = (self.density(x) - self.floor[cell]) / self.bound[cell]
        # float64 holds 53 bits exactly. `_decide` draws the rest where they matter.
        coin = (source.words(len(cell), np.uint64) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        accepted = coin < ratio
        for i in np.flatnonzero(abs(coin - ratio) <= self._margin[cell]):
            accepted[i] = self._decide(int(x[i]), int(cell[i]), float(coin[i]), source)
        return x[accepted]

    def cells(self, pick: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return searchsorted(weights, pick, "right"), from the guide where its whole step lies in one cell."""
        step = (pick >> np.uint64(_WEIGHT_BITS - _GUIDE_BITS)).astype(np.int64)
        cell = self._guide[step]
        ambiguous = np.flatnonzero(cell != self._guide[step + 1])
        cell[ambiguous] = np.searchsorted(self.weights, pick[ambiguous], side="right")
        return cell

    def _decide(self, x: int, cell: int, coin: float, source: RandomSource) -> bool:
        """Return the comparison coin < (P(x) − floor) / bound with 320 more random bits and 120 digits."""
        with localcontext() as context:
            context.prec = 120
            more = int.from_bytes(source.words(40, np.uint8).tobytes(), "big")
            exact_coin = Decimal(coin) + Decimal(more) / Decimal(2) ** (320 + 53)
            density = (-(Decimal(x) ** 2) / (2 * Decimal(self.std) ** 2)).exp() / normaliser(self.std)
            return exact_coin < (density - Decimal(float(self.floor[cell]))) / Decimal(float(self.bound[cell]))


class _Reservoir:
    """Samples of the rest, drawn many at a time and each handed out once."""

    def __init__(self, law: DiscreteGaussian, source: RandomSource, block: int) -> None:
        self._law, self._source, self._block = law, source, min(block, CHUNK)
        self._ready = np.empty(0, np.int64)

    def take(self, count: int) -> NDArray[np.int64]:
        while len(self._ready) < count:
            self._ready = np.concatenate([self._ready, self._law.rest(2 * self._block, self._source)])
        samples, self._ready = self._ready[:count], self._ready[count:]
        return samples


@lru_cache(maxsize=32)
def normaliser(std: float) -> Decimal:
    """Return Σ_x exp(−x²/2s²) to 100 digits.

    It is the sum itself, or Poisson summation s√(2π)(1 + 2Σ e^{−2π²s²k²}) above s = 4.
    """
    with localcontext() as context:
        context.prec = 120
        s2 = Decimal(std) ** 2
        if std < 4:
            # 22 deviations: e⁻²⁴² is below 10⁻¹⁰⁵.
            terms = ((-(Decimal(k) ** 2) / (2 * s2)).exp() for k in range(1, 2 + math.ceil(22 * std)))
            return 1 + 2 * sum(terms, Decimal(0))
        terms = ((-2 * _PI**2 * s2 * k * k).exp() for k in (1, 2))
        return (2 * _PI * s2).sqrt() * (1 + 2 * sum(terms, Decimal(0)))


@lru_cache(maxsize=8)
def sampler(std: float) -> DiscreteGaussian:
    """Return the sampler of this standard deviation. Building one takes about a millisecond."""
    return DiscreteGaussian(std)


class DiscreteGaussianNoise:
    """Exact discrete Gaussian integers, a stream for each round."""

    def __init__(self, randomness: Randomness | None = None) -> None:
        self._randomness = randomness or SecureRandomness()

    def of(self, round_number: int) -> Callable[[float, int], NDArray[np.int64]]:
        """Return draw(std, size): the round's next (size,) independent draws with parameter `std`, in grid units."""
        source = self._randomness.of(Purpose.CENTRAL_NOISE, party=COORDINATOR, round_number=round_number)
        return lambda std, size: sampler(std).sample(size, source)
