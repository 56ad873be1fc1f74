"""Figure 5.4: ε as a function of the order λ, at a fixed distance (thesis, section 5.5.1)."""

from __future__ import annotations

import numpy as np

from accounting import ClassicalAccountant, log_moment
from accounting.mechanisms.conversion import Conversion, epsilons_of
from research.accuracy.gradient_norms import FloatArray
from research.figures.figure import Axis, Figure
from research.figures.table import Point, Points, at, certified, curve

CLIP_NORMS = (0.1, 0.3, 0.5, 1.0)
ORDERS = tuple(2.0**k for k in range(11))
RATE, STEPS, NOISE_STD, DELTA = 64 / 60000, 10_000, 1.0, 1e-5
PRINTED, IMPROVED, EXACT = "as printed (Chernoff)", "improved conversion", "loss distribution (needs no order)"


def epsilons(distance: float, conversion: Conversion) -> FloatArray:
    """(orders,) ε after all steps at each order by itself."""
    orders = np.array(ORDERS)
    moments = STEPS * log_moment(orders, distance, noise_std=NOISE_STD, sampling_rate=RATE)
    return epsilons_of(orders, moments, DELTA, conversion)


def best(points: Points, clip_norm: float) -> tuple[float, float]:
    """(ε, λ) of the least ε of the printed conversion."""
    values = at(points, panel(clip_norm), PRINTED)
    order = min(values, key=values.__getitem__)
    return values[order], order


def panel(clip_norm: float) -> str:
    """Its title."""
    return f"C = {clip_norm:g}, σ = 1"


def compute() -> list[Point]:
    """One panel for each clip norm; the distance is the clip norm for everybody, so that both notions agree."""
    points: list[Point] = []
    for distance in CLIP_NORMS:
        points += curve(panel(distance), PRINTED, ORDERS, epsilons(distance, "chernoff"))
        points += curve(panel(distance), IMPROVED, ORDERS, epsilons(distance, "improved"))
        account = ClassicalAccountant(delta=DELTA, method="pld")
        account.step(noise_multiplier=NOISE_STD / distance, sampling_rate=RATE, count=STEPS)
        points += curve(panel(distance), EXACT, (ORDERS[0], ORDERS[-1]), [account.epsilon()] * 2)
    return points


def caption(points: Points) -> str:
    """Below the drawing."""
    optima = [(c, *best(points, c), at(points, panel(c), EXACT)[1.0]) for c in CLIP_NORMS]
    caption = ". ".join(
        f"C = {c:g}: {certified(value, 4)} at λ = {order:g} ({certified(exact, 4)})"
        for c, value, order, exact in optima
    )
    return (
        "ε after 10,000 steps with sampling rate 64/60000, noise of standard deviation 1 and δ = 1e-5. Every "
        "record lies at distance C, so the Bayesian and the classical number are equal. The least ε of the printed "
        "conversion over λ = 1, 2, 4 … 1024 follows, and in brackets that of the privacy loss distribution. "
        f"{caption}. Every point of every curve is a certified bound. A wrong λ only wastes ε."
    )


FIGURE = Figure(
    number="5.4",
    title="ε depends on the order λ",
    compute=compute,
    axes={"": (Axis("order λ", "log", 1.0, 1024.0), Axis("ε", "log", 0.02, 100.0))},
    caption=caption,
)
