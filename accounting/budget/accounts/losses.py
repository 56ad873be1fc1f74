"""The losses of what a plan may release, as steps with continuous noise, and ε and Σ Δ²/s² of them together.

The drawn noise is discrete: the rounding of continuous noise with a variance 1/12 of a grid step smaller, up to
`rounding_slack`. Continuous Gaussians divide, which the theorems about questions that adapt need (docs/decisions/
fixed-order.md). Histograms have too few whole numbers to their deviation for that. They keep their own lattice, or
count as continuous noise with a smaller variance (`rounded_noise`): both bound the same loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from accounting.accountants.classical import ClassicalAccountant
from accounting.accountants.renyi import MAX_EPSILON
from accounting.mechanisms.composed_loss import composed_epsilon
from accounting.mechanisms.events import GaussianEvent, PoissonSampledEvent
from accounting.mechanisms.gaussian_mixtures import rounded_noise
from accounting.mechanisms.gaussian_squares import ROUNDING_ERROR, epsilon_of_squares, largest_squares
from accounting.mechanisms.guessing import rounded_steps
from accounting.mechanisms.lattice import lattice_error
from accounting.mechanisms.unsampled import CONTINUOUS, GRID_STD, Steps, unsampled_epsilon
from accounting.plan.plan import Mechanism, Plan
from accounting.plan.queries import LEAST_STD


def steps_of_rounds(mechanisms: Sequence[Mechanism], rounds: Sequence[int]) -> list[Steps]:
    """Return the noised steps of so many rounds of each stage."""
    return [
        rounded_steps(step.noise_multiplier, step.sampling_rate, count * step.steps_per_round)
        for step, count in zip(mechanisms, rounds, strict=True)
        if count
    ]


def steps_of_histograms(plan: Plan, published: int) -> list[Steps]:
    """Return so many published histograms. Their noise has at least `LEAST_HISTOGRAM_STD`."""
    if plan.release is None or not published:
        return []
    multiplier = plan.release.std / plan.rules.histogram_sensitivity
    return [Steps(math.nextafter(multiplier, 0.0), 1.0, published, plan.release.std)]


def steps_of_squares(squares: float) -> list[Steps]:
    """Return one Gaussian step that dominates queries whose Σ Δ²/s² is at most this."""
    return [rounded_steps(1 / math.sqrt(squares), 1.0, 1)] if squares > 0 else []


def most_histograms(plan: Plan, rounds: int) -> int:
    """Return the most histograms that so many rounds publish, with questions between them as the plan allows."""
    if plan.release is None:
        return 0
    between = 0 if plan.queries is None else plan.queries.max_queries
    return min(rounds, -(-(rounds + between) // plan.release.every))


def rounding_slack(plan: Plan, epsilon: float) -> float:
    """Return the part of δ that the rounding of all noise takes: (1 + e^ε) times its total variation, rounded up."""
    of_queries = 0.0 if plan.queries is None else plan.queries.cells * lattice_error(LEAST_STD)
    error = (plan.max_steps + most_histograms(plan, plan.rounds)) * ROUNDING_ERROR + of_queries
    return (1 + math.exp(min(epsilon, 600.0))) * error * (1 + 1e-12)


@lru_cache(maxsize=1024)
def epsilon_of_losses(steps: tuple[Steps, ...], delta: float) -> float:
    """Return ε of all these steps together, rounded up. Infinite without an answer, or where no δ is left.

    The smaller of the best Rényi order and the loss distribution: both hold for steps that are fixed beforehand.
    """
    if not steps:
        return 0.0
    if not delta > 0:
        return math.inf
    account = ClassicalAccountant(delta=delta, method="rdp")
    for step in steps:
        account.compose(PoissonSampledEvent(step.sampling_rate, GaussianEvent(step.noise_multiplier)), step.count)
    bound = account.epsilon()
    if all(step.is_closed for step in steps):
        return min(bound, unsampled_epsilon(steps, delta, bound)) if math.isfinite(bound) else bound
    if not 0 < bound <= MAX_EPSILON:
        return bound
    # Beside rare large losses of sampled steps what the lattice may add is large.
    return min(bound, *(composed_epsilon(laws, delta, bound) for laws in {steps, _as_continuous(steps)}))


def _as_continuous(steps: tuple[Steps, ...]) -> tuple[Steps, ...]:
    """Return the steps with noise on a coarse grid as continuous ones, of which they are post-processed."""
    return tuple(
        replace(step, noise_multiplier=rounded_noise(step.noise_multiplier, step.grid_std), grid_std=CONTINUOUS)
        if step.grid_std < GRID_STD
        else step
        for step in steps
    )


def epsilon_of_releases(squares: float, delta: float, histograms: Sequence[Steps] = ()) -> float:
    """Return ε of Gaussian releases with this Σ Δ²/s² and of the histograms. Infinite where no δ is left."""
    return epsilon_of_squares(squares, delta, tuple(histograms)) if delta > 0 else math.inf


def squares_within(epsilon: float, delta: float, histograms: tuple[Steps, ...] = ()) -> float:
    """Return the most Σ Δ²/s² beside the histograms whose ε is within the limit, rounded down. 0: nothing is."""
    largest = largest_squares(epsilon, delta, histograms) if delta > 0 else 0.0
    if not largest > 0:
        return 0.0
    # Seven digits: so that processors whose special functions differ in their last bits agree.
    digits = 6 - math.floor(math.log10(largest))
    return math.floor(largest * 10.0**digits) / 10.0**digits
