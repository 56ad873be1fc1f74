"""The dynamic programme of Theorem B: its bound against an integral, its error, and a strategy that it must find."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from accounting.mechanisms.privacy_loss import hockey_stick
from research.enforcement.adaptive import Game, GridSolver, bracket

GAME = Game(epsilon=1.5, noise=1.0, rate=0.1, count=1, squares=0.25, units=1)
COARSE = 2.0**-10


def whole_plan(game: Game, *, removal: bool) -> float:
    """δ of one step and one Gaussian: the trapezoidal rule over the Gaussian's loss."""
    released, width = np.linspace(-12, 12, 20_001, retstep=True)
    left = game.epsilon - (game.gaussian / 2 + math.sqrt(game.gaussian) * released)
    deltas = hockey_stick(left, 1 / game.noise, game.rate, removal=removal)
    return float((norm.pdf(released) * deltas).sum() * width)


@pytest.mark.parametrize("removal", [True, False])
def test_the_bound_lies_above_the_integral_by_no_more_than_the_error(removal: bool) -> None:
    solver = GridSolver(GAME, removal=removal, interval=COARSE)
    truth = whole_plan(GAME, removal=removal)
    assert truth <= solver.bound() <= truth + solver.error()
    assert solver.error() < 1e-3 * truth


@pytest.mark.parametrize("removal", [True, False])
def test_no_strategy_beats_the_bound_beyond_the_error(removal: bool) -> None:
    game = replace(GAME, count=2, units=2, histograms=1, histogram_noise=4.0)
    found = bracket(game, removal=removal, interval=COARSE)
    assert found.bound <= found.best <= found.bound * (1 + found.excess)
    assert found.excess < 2e-3


def test_the_error_falls_with_the_square_of_the_grid() -> None:
    errors = [GridSolver(GAME, removal=True, interval=2.0**-power).error() for power in (9, 10)]
    assert errors[0] == pytest.approx(4 * errors[1], rel=0.1)


def test_a_strategy_that_trades_is_found() -> None:
    """The values are those of the best choice: a forbidden move that helps raises them above the bound."""

    class Trading(GridSolver):
        def _moves(self, steps: int, histograms: int, units: int) -> Iterator[tuple[tuple[int, int, int], Any]]:
            yield from super()._moves(steps, histograms, units)
            if units and not steps:
                # A rare release in place of the question, with about its δ.
                yield (0, histograms, units - 1), self._law(0.5**-2, 0.001)

    game = Game(epsilon=1.0, noise=5.0, rate=1.0, count=1, squares=7.3481**-2, units=1)
    solver = Trading(game, removal=True, interval=COARSE)
    assert solver.best() > 1.9 * solver.bound()
