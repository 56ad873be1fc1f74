"""Figure 5.5: what Hölder's inequality costs, and what leaving it out claims (thesis, section 5.5.1).

The population is finite, its members equally likely: so the mean over x′ is a sum, and the true curve is exact. Three
ways to compose the log-moments φ_t(λ, x) of T steps:

Hölder     Σ_t (1/T) ln E_x e^{T φ_t}   Theorem 1, with all T steps declared
product    Σ_t ln E_x e^{φ_t}           "naïvely swapping the product and the expectation"
true       ln E_x e^{Σ_t φ_t}           x is the same in every step: running sums
"""

from __future__ import annotations

import math

import numpy as np

from accounting import epsilon_from_moments, log_moment
from accounting.mechanisms.as_printed import product_composition
from accounting.mechanisms.privacy_loss import hockey_stick
from research.accuracy.gradient_norms import FloatArray
from research.figures.figure import Axis, Figure
from research.figures.synthetic import DELTA, ORDERS, RATE, epsilon, mean_exponential, norms, quantile, shown_steps
from research.figures.table import Point, Points, at, certified, curve, last

SEED, PEOPLE, STEPS = 2, 1000, 300
HOLDER, PRODUCT, TRUE = "Hölder (Theorem 1; certified)", "product of the means (not a bound)", "true, running sums"
CLASSICAL = "classical (certified for everybody)"
FRESH, STORED = (
    "new norms in every step, noise at the 0.95-quantile",
    "everybody keeps one norm, noise at the 0.95-quantile",
)
COUNTER = "counterexample: one person in a hundred at the clip norm"
CLAIMED, REACHED, SAFE = "δ that is claimed", "true δ at the ε of the product", "true δ at the ε of running sums"
# The counterexample: unsampled steps, whose δ has a closed form.
RARE, SMALL, COUNTER_NOISE, COUNTER_STEPS = 0.01, 0.05, 4.0, 60


def compositions(distances: FloatArray, noise_std: float, shown: list[int]) -> dict[str, list[float]]:
    """Name -> ε after each of the shown steps, from clipped distances (steps, people)."""
    steps = len(distances)
    sums, holder, product = np.zeros((ORDERS.size, distances.shape[1])), np.zeros(ORDERS.size), np.zeros(ORDERS.size)
    worst = log_moment(ORDERS, noise_std, noise_std=noise_std, sampling_rate=RATE)
    curves: dict[str, list[float]] = {CLASSICAL: [], HOLDER: [], PRODUCT: [], TRUE: []}
    for step, step_distances in enumerate(distances, start=1):
        step_cost = log_moment(ORDERS, step_distances, noise_std=noise_std, sampling_rate=RATE)
        sums += step_cost
        holder += mean_exponential(steps * step_cost) / steps
        product += mean_exponential(step_cost)
        if step in shown:
            for name, moments in ((CLASSICAL, step * worst), (HOLDER, holder), (PRODUCT, product)):
                curves[name].append(epsilon(moments))
            curves[TRUE].append(epsilon(mean_exponential(sums)))
    return curves


def counterexample(steps: int) -> tuple[float, float]:
    """(true δ at the ε that the product claims, at that of running sums) for one person in a hundred at distance 1."""
    distances = np.array([1.0] + [SMALL] * (round(1 / RARE) - 1))
    step_cost = log_moment(ORDERS, distances, noise_std=COUNTER_NOISE, sampling_rate=1.0)
    printed = np.array([product_composition(np.tile(row, (steps, 1))) for row in step_cost])
    return tuple(  # type: ignore[return-value]
        average_delta(distances, steps, epsilon_from_moments(ORDERS, moments, DELTA, conversion="chernoff")[0])
        for moments in (printed, mean_exponential(steps * step_cost))
    )


def average_delta(distances: FloatArray, steps: int, claimed: float) -> float:
    """E_x δ_x(ε), each person's own Gaussian mechanism: the least δ with which ε holds (Balle & Wang 2018, Theorem "
    "8)."""
    values, counts = np.unique(distances, return_counts=True)
    ratios = [math.sqrt(steps) * float(d) / COUNTER_NOISE for d in values]
    deltas = [float(hockey_stick(np.array([claimed]), ratio, 1.0, removal=True)[0]) for ratio in ratios]
    return float(np.average(deltas, weights=counts))


def compute() -> list[Point]:
    """Two populations, and the counterexample's δ."""
    scale, generator = float(quantile(0.95)), np.random.default_rng(SEED)
    fresh = np.minimum(norms(generator, STEPS * PEOPLE).reshape(STEPS, PEOPLE), scale)
    clipped_distances = np.tile(np.minimum(norms(generator, PEOPLE), scale), (STEPS, 1))
    points, step_numbers = list[Point](), shown_steps(STEPS)
    for title, distances in ((FRESH, fresh), (STORED, clipped_distances)):
        for name, values in compositions(distances, scale, step_numbers).items():
            points += curve(title, name, step_numbers, values)
    steps = shown_steps(COUNTER_STEPS, 30)
    pairs = [counterexample(number) for number in steps]
    points += curve(COUNTER, CLAIMED, steps, [DELTA] * len(steps))
    points += curve(COUNTER, REACHED, steps, [pair[0] for pair in pairs])
    return points + curve(COUNTER, SAFE, steps, [pair[1] for pair in pairs])


def caption(points: Points) -> str:
    """Below the drawing."""
    ends = {name: (last(points, FRESH, name), last(points, STORED, name)) for name in (HOLDER, PRODUCT, TRUE)}
    worst = max(at(points, COUNTER, REACHED).values()) / DELTA
    return (
        f"ε after up to {STEPS} steps with sampling rate {RATE:g}, noise σ = C at the 0.95-quantile and δ = 1e-5, "
        f"gradients clipped to C. The population is {PEOPLE:,} people, so the true curve is exact. In the first panel "
        f"each person draws a new norm in every step. Hölder gives {certified(ends[HOLDER][0])}, the product "
        f"{ends[PRODUCT][0]:.3g} and the truth {ends[TRUE][0]:.3g}. In the second each person keeps a norm. Hölder and "
        f"the truth agree after all steps ({ends[TRUE][1]:.3g}), and the product claims {ends[PRODUCT][1]:.3g}. The "
        "classical curve, Hölder and running sums are certified. In the third panel one person in a hundred is always "
        "at the clip norm, and the others are at a twentieth of it. The noise is 4, without sampling. At the ε that "
        f"the product gives for δ = 1e-5 the true δ is up to {worst:.0f} times as large."
    )


FIGURE = Figure(
    number="5.5",
    title="Hölder's inequality, the product of the means, and the truth",
    compute=compute,
    axes={
        "": (Axis("steps", "log", 1.0, float(STEPS)), Axis("ε")),
        COUNTER: (Axis("steps"), Axis("δ", "log")),
    },
    caption=caption,
)
