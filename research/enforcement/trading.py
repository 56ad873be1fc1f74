"""A counterexample: types of step must not be traded for each other under one limit, though each plan keeps it.

    python -m research.enforcement.trading

After one Gaussian step two plans go on: one rare release with little noise, or one unsampled Gaussian with much. Both
plans keep (ε, δ). A study that chooses between them by what the first step released does not: its δ is the mean of the
larger of the two, here nearly twice as large. So each type of step has a number of its own in the settings, and only
Gaussian questions divide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting.mechanisms.privacy_loss import hockey_stick
from accounting.values import FloatArray


@dataclass(frozen=True)
class Trade:
    """The first step's noise, the rare release's noise and rate, and the ε of the limit."""

    first_noise: float = 5.0
    rare_noise: float = 0.5
    rate: float = 0.001
    epsilon: float = 1.0


@dataclass(frozen=True)
class TradeResult:
    """δ at ε: of either plan, and of the study that chooses."""

    question_noise: float
    rare: float
    question: float
    either: float


def traded(trade: Trade, points: int = 40_001) -> TradeResult:
    """Integrate over the first release. The question's noise is the least with which its plan has the δ of the other.

    points  of the trapezoidal rule, between ±12 deviations
    """
    released = np.linspace(-12, 12, points)
    weights = np.exp(-released * released / 2) / math.sqrt(2 * math.pi) * (released[1] - released[0])
    ratio = 1 / trade.first_noise
    # What is left of ε after the first step's loss, where the record takes part.
    remaining = trade.epsilon - (ratio * ratio / 2 + ratio * released)

    def deltas(noise: float, rate: float) -> FloatArray:
        return hockey_stick(remaining, 1 / noise, rate, removal=True)

    rare = deltas(trade.rare_noise, trade.rate)
    low, high = 0.1, 1e4
    while high - low > 1e-12 * high:
        middle = math.sqrt(low * high) if high > 2 * low else (low + high) / 2
        low, high = (low, middle) if weights @ deltas(middle, 1.0) <= weights @ rare else (middle, high)
    question = deltas(high, 1.0)
    return TradeResult(
        question_noise=high,
        rare=float(weights @ rare),
        question=float(weights @ question),
        either=float(weights @ np.maximum(rare, question)),
    )


def main() -> None:
    trade = Trade()
    result = traded(trade)
    print(f"first a step at noise {trade.first_noise:g}, then, at ε {trade.epsilon:g}:")
    print(f"  a step at rate {trade.rate:g} and noise {trade.rare_noise:g}   δ {result.rare:.4e}")
    print(f"  a question at noise {result.question_noise:.4f}        δ {result.question:.4e}")
    print(
        f"  the one or the other, by the first release  δ {result.either:.4e}: {result.either / result.rare:.2f} times"
    )


if __name__ == "__main__":
    main()
