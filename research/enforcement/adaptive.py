"""No strategy beats the whole plan: dynamic programming over all strategies on a grid, with a proved error.

    python -m research.enforcement.adaptive [--out research/benchmarks/results/enforcement_adaptive.json]

A strategy sees every release. It then takes one of T sampled steps, asks a question of one or more units of μ², joins
declared histograms to a step under one sampling coin, or stops. V is the δ at a fixed ε of the best strategy, as a
function of what is left and of the loss L so far. h is the bound of the theorem: T steps and one Gaussian of all of μ²
and of the histograms at rate 1.

The grid. V is convex in u = e^{−L}: a maximum of mixtures of (1 − e^ε u)₊. Connect-the-dots moves the likelihood ratio
r = e^{−loss} of a step to r′, a mean-preserving spread. So E V(ur) ≤ E V(ur′), and what is computed here is an upper
bound of the best strategy. For the other side let w be e^{Δ} or e^{−Δ}, with mean 1 and independent. r′ lies on the two
ends of a cell of width Δ around r, and rw reaches beyond both, so r′ is below rw in convex order. With W the product of
the n moves of h, the grid's h is at most E h(W) ≤ h(1) + ½ E(W − 1)² max h″ over e^{±nΔ}. h″(u) = p(ε + ln u)/u², where
p is the density of the loss. The questions' Gaussian of variance m bounds it: p(l) ≤ e^{−λl} M(λ)/√(2πm) for each λ,
with M the moment-generating function. The strategy that takes everything reaches h. Hence

    1 ≤ best strategy / h ≤ V on the grid / (h on the grid − error).
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from accounting import log_moment
from accounting.mechanisms.composed_loss import _sum
from accounting.mechanisms.step_losses import UNIT, step_losses
from accounting.mechanisms.unsampled import Steps
from accounting.values import FloatArray

# Per step: what is cut off counts as infinite loss.
TAIL = 1e-18
# Mass below the first point of a step's grid, ten deviations out.
BELOW = 2e-23
WINDOW, ROOM = (-8.0, 18.0), 16.0
INTERVAL = 2.0**-14


@dataclass(frozen=True)
class Game:
    """The budget of a strategy, and the ε at which δ is read.

    squares        μ² of all questions, in so many equal units
    histograms     how many are declared, each of this noise multiplier
    """

    epsilon: float
    noise: float
    rate: float
    count: int
    squares: float
    units: int
    histograms: int = 0
    histogram_noise: float = 1.0

    @property
    def gaussian(self) -> float:
        """μ² of questions and histograms."""
        return self.squares + self.histograms / self.histogram_noise**2


@dataclass(frozen=True)
class Bracket:
    """δ of the bound h and of the best strategy, on the grid, and the proved error of the grid.

    excess  best strategy / bound is at most 1 + excess
    """

    game: Game
    direction: str
    bound: float
    best: float
    error: float
    excess: float


@dataclass(frozen=True)
class _Law:
    """One release on the grid: the transform of its masses, its place and its mass at infinite loss."""

    transform: npt.NDArray[np.complex128]
    first: int
    last: int
    norm: float
    infinite: float


class GridSolver:
    """Values of one game in one direction of the neighbouring relation, as upper bounds."""

    def __init__(self, game: Game, *, removal: bool, interval: float = INTERVAL) -> None:
        self.game, self.interval, self._removal = game, interval, removal
        self._places = np.arange(math.floor(WINDOW[0] / interval), math.ceil(WINDOW[1] / interval) + 1)
        # Room for the longest law beside the window.
        self._room = int(ROOM / interval)
        self._size = 1 << (self._places.size + self._room).bit_length()
        self._values = cache(self._values_of)
        self._law = cache(self._law_of)

    @cached_property
    def payoff(self) -> FloatArray:
        """(1 − e^{ε−L})₊ at every point of the window."""
        return np.maximum(-np.expm1(self.game.epsilon - self._places * self.interval), 0.0)

    def bound(self) -> float:
        """h(1) on this grid: all steps, then one Gaussian."""
        return self._at_start(self._bounds)

    @cached_property
    def _bounds(self) -> FloatArray:
        values = self.payoff
        for law in self._bound_laws():
            values = self._after(values, law)
        return values

    def best(self) -> float:
        """V(1) on this grid: the best strategy."""
        return self._at_start(self._values(self.game.count, self.game.histograms, self.game.units))

    def error(self) -> float:
        """By how much `bound` is above h(1) at most."""
        game, moves = self.game, self.game.count + 1
        width = moves * self.interval
        spread = math.expm1(moves * math.log1p(-math.expm1(-self.interval) * math.expm1(self.interval)))
        orders = np.geomspace(0.5, 200, 60).tolist()
        log_density = min(self._log_mgf(order) - order * (game.epsilon - width) for order in orders)
        curvature = math.exp(log_density + 2 * width) / math.sqrt(2 * math.pi * game.gaussian)
        longest = math.sqrt(self._places.size + self._room)
        rounding = sum(2 * self._rounding(law.norm, longest) for law in self._bound_laws())
        # Beyond the window: the value at its lower end, and Chernoff's bound on losses above the upper one.
        beyond = math.exp(min(self._log_mgf(order) - order * WINDOW[1] for order in orders)) + float(self._bounds[0])
        return spread * curvature / 2 + moves * (TAIL + BELOW + beyond) + rounding

    def _log_mgf(self, order: float) -> float:
        """ln E e^{λL} of the whole plan, rounded up."""
        game = self.game
        sampled = float(log_moment(order, 1.0, noise_std=game.noise, sampling_rate=game.rate))
        if not self._removal and game.rate < 1:
            # Here the loss of a step is at most −ln(1 − q), also where it was cut off. And e^{λl} is convex in e^{−l}.
            law = step_losses(1 / game.noise, game.rate, self.interval, TAIL, removal=False)
            sampled = min(
                sampled, float(np.logaddexp(law.log_mgf(order), math.log(TAIL) - order * math.log1p(-game.rate)))
            )
        return (game.count * sampled + order * (order + 1) * game.gaussian / 2) * (1 + 1e-12) + 1e-12

    def _bound_laws(self) -> list[_Law]:
        return [self._law(self.game.gaussian, 1.0), *[self._step] * self.game.count]

    @cached_property
    def _step(self) -> _Law:
        return self._law(self.game.noise**-2, self.game.rate)

    def _values_of(self, steps: int, histograms: int, units: int) -> FloatArray:
        values = self.payoff
        for later, law in self._moves(steps, histograms, units):
            values = np.maximum(values, self._after(self._values(*later), law))
        return values

    def _moves(self, steps: int, histograms: int, units: int) -> Iterator[tuple[tuple[int, int, int], _Law]]:
        """What is left after each move, and the law of its loss."""
        game = self.game
        for size in range(1, units + 1):
            yield (steps, histograms, units - size), self._law(size * game.squares / game.units, 1.0)
        for joined in range(histograms + 1):
            squares = joined / game.histogram_noise**2
            if joined:
                yield (steps, histograms - joined, units), self._law(squares, 1.0)
            if steps:
                # Under one coin the two Gaussians are one, with the sum of their squares.
                yield (steps - 1, histograms - joined, units), self._law(game.noise**-2 + squares, game.rate)

    def _law_of(self, squares: float, rate: float) -> _Law:
        law = step_losses(math.sqrt(squares), rate, self.interval, TAIL, removal=self._removal)
        # V at L + loss: a correlation, which is a product with the conjugate.
        transform = np.conj(np.fft.rfft(law.masses, self._size))
        last = law.first + law.masses.size - 1
        if last - law.first >= self._room:
            raise ValueError("a step's losses do not fit beside the window")
        return _Law(transform, law.first, last, float(np.linalg.norm(law.masses)), law.infinite)

    def _after(self, values: FloatArray, law: _Law) -> FloatArray:
        """E V(L + loss), rounded up. Beyond the window V is the value at its lower end, or 1: it never falls."""
        before, after = max(0, -law.first), max(0, law.last)
        padded = np.concatenate([np.full(before, values[0]), values, np.ones(after)])
        spectrum = np.fft.rfft(padded, self._size)
        # Place j of the correlation is Σ masses[k] · padded[j + k].
        start = before + law.first
        expected = np.fft.irfft(spectrum * law.transform, self._size)[start : start + values.size]
        rounding = self._rounding(law.norm, float(np.linalg.norm(padded)))
        return np.minimum(np.maximum(expected, 0.0) + law.infinite + rounding, 1.0)

    def _rounding(self, norm: float, factor: float) -> float:
        """Of one product of transforms: a few units for each level, times both norms."""
        return 4 * UNIT * (math.log2(self._size) + 2) * norm * factor

    def _at_start(self, values: FloatArray) -> float:
        return float(values[-self._places[0]])


def bracket(game: Game, *, removal: bool, interval: float = INTERVAL) -> Bracket:
    """Solve one game in one direction."""
    solver = GridSolver(game, removal=removal, interval=interval)
    bound, best, error = solver.bound(), solver.best(), solver.error()
    excess = best / (bound - error) - 1 if error < bound else math.inf
    return Bracket(game, "removal" if removal else "addition", bound, best, error, excess)


# Noise multiplier and rate of the steps, their number, μ², units, histograms and their noise multiplier.
GAMES = (
    (1.0, 0.1, 4, 0.25, 4, 0, 1.0),
    (0.7, 0.02, 5, 0.1, 3, 0, 1.0),
    (2.0, 0.5, 6, 0.2, 3, 0, 1.0),
    (3.0, 1.0, 4, 0.3, 4, 0, 1.0),
    (1.0, 0.1, 3, 0.1, 2, 2, 4.0),
    (1.5, 0.3, 3, 0.2, 2, 3, 5.0),
)
DELTA = 1e-5


def epsilon_of(game: Game, *, removal: bool) -> float:
    """Where this direction's δ of the bound is about DELTA, to two digits."""
    steps = [Steps(game.noise, game.rate, game.count), Steps(1 / math.sqrt(game.gaussian), 1.0, 1)]
    return round(_sum(steps, DELTA, 5.0, removal=removal, epsilon=None), 2)


def brackets(interval: float = INTERVAL) -> Iterator[Bracket]:
    """Solve all games in both directions."""
    for numbers in GAMES:
        for removal in (True, False):
            game = Game(1.0, *numbers)
            yield bracket(replace(game, epsilon=epsilon_of(game, removal=removal)), removal=removal, interval=interval)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    print("  q    σ T    μ² histograms direction    ε  δ of the bound  best / bound at most")
    rows: list[Bracket] = []
    for row in brackets():
        rows.append(row)
        game = row.game
        print(
            f"{game.rate:4g} {game.noise:3g} {game.count} {game.squares:5g} {game.histograms:10} {row.direction:9} "
            f"{game.epsilon:4.2f} {row.bound:15.5e} {1 + row.excess:21.7f}",
            flush=True,
        )
    print(f"largest: {1 + max(row.excess for row in rows):.7f}")
    if options.out is not None:
        options.out.write_text(
            json.dumps({"interval": INTERVAL, "rows": [asdict(row) for row in rows]}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
