"""The f-DP test of one run: against exact laws, and its rate of false alarms on mechanisms whose ε is known."""

from __future__ import annotations

import math
from typing import Any, cast

import mpmath
import numpy as np
import pytest
from scipy import optimize, stats

from accounting.accountants.profile import PrivacyProfile
from simulation.audit.one_run import StudyLaw, most_provable, proven_epsilon_of_any, refutes, right_guesses

CHANCE = 0.01


def _point(epsilon: float, delta: float = 0.0) -> PrivacyProfile:
    return PrivacyProfile(np.array([epsilon]), np.array([delta]))


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("guesses", [1, 7, 40, 200])
def test_randomised_response_is_refuted_with_at_most_the_chance(epsilon: float, guesses: int) -> None:
    """Its right guesses are binomial with e^ε/(1 + e^ε), which is the worst that ε-DP allows."""
    refuted = [
        right
        for right in range(guesses + 1)
        if refutes(_point(epsilon), canaries=guesses, guesses=guesses, right=right, chance=CHANCE)
    ]
    assert stats.binom.pmf(refuted, guesses, 1 / (1 + math.exp(-epsilon))).sum() <= CHANCE


def test_a_bound_from_all_right_guesses_is_the_binomial_one() -> None:
    """q^30 = 0.01 at the ε that 30 right guesses of 30 can prove at most."""
    chance = CHANCE ** (1 / 30)
    exact = math.log(chance / (1 - chance))
    assert most_provable(30, CHANCE, 0.0) <= exact
    proven = proven_epsilon_of_any(1e-12, canaries=30, guesses=30, right=30, chance=CHANCE)
    assert 0.5 * exact < proven <= exact


@pytest.mark.slow
def test_a_gaussian_mechanism_with_known_epsilon_is_not_refuted_and_half_its_noise_is() -> None:
    law = StudyLaw(2.0, 1.0, 1)
    sound = [_refuted(law, 0.5, seed) for seed in range(20)]
    halved = [_refuted(law, 1.0, seed) for seed in range(20)]
    assert sum(sound) == 0
    assert sum(halved) == 20


def _refuted(law: StudyLaw, mu: float, seed: int, canaries: int = 5_000, guesses: int = 500) -> bool:
    draw = np.random.default_rng(seed)
    inside = draw.random(canaries) < 0.5
    right = right_guesses(draw.normal(size=canaries) + mu * inside - mu / 2, inside, guesses)
    return refutes(law.profile(), canaries=canaries, guesses=guesses, right=right, chance=CHANCE)


def _largest_chance(profile: PrivacyProfile, canaries: int, guesses: int, right: int) -> float:
    """Return the largest P[at least `right`] of any law of right guesses that the paper's inequalities allow.

    A linear programme over all p_0 … p_c': r_{i+1} ≤ e^ε h_i + δ and r_{i+1} ≤ 1 − e^{−ε}(1 − δ − h_i), for every
    point of the profile and every i.
    """
    count = np.arange(guesses + 1)
    reach = np.triu(np.ones((guesses + 1, guesses + 1)))
    rights, wrongs = reach * count / canaries, reach * (guesses - count) / canaries
    rows, limits = [], []
    for epsilon, delta in zip(profile.epsilons, profile.deltas, strict=True):
        rows += [rights[1:] - math.exp(epsilon) * wrongs[:-1], rights[1:] - math.exp(-epsilon) * wrongs[:-1]]
        limits += [np.full(guesses, delta), np.full(guesses, 1 - math.exp(-epsilon) * (1 - delta))]
    solved = optimize.linprog(
        -(count >= right).astype(float),
        A_ub=np.concatenate(rows),
        b_ub=np.concatenate(limits),
        A_eq=np.ones((1, guesses + 1)),
        b_eq=[1.0],
    )
    return -float(solved.fun)


@pytest.mark.slow_cases("law1-30-30-25")
@pytest.mark.parametrize(
    ("canaries", "guesses", "right"), [(30, 30, 25), (40, 12, 11), (200, 20, 18), (60, 25, 25), (25, 25, 13)]
)
@pytest.mark.parametrize("law", [StudyLaw(2.0, 1.0, 1), StudyLaw(1.0, 0.3, 5)])
def test_the_recursion_finds_what_a_linear_programme_over_all_laws_finds(
    law: StudyLaw, canaries: int, guesses: int, right: int
) -> None:
    profile = law.profile()
    few = PrivacyProfile(profile.epsilons[::12], profile.deltas[::12])
    largest = _largest_chance(few, canaries, guesses, right)
    counts = {"canaries": canaries, "guesses": guesses, "right": right}
    assert not refutes(few, **counts, chance=min(0.98 * largest, 0.999))
    if largest < 0.98:
        assert refutes(few, **counts, chance=1.02 * largest)


@pytest.mark.quick("5-0.5", "50-0.5")
@pytest.mark.parametrize("mu", [0.5, 1.5])
@pytest.mark.parametrize("canaries", [5, 50, 5_000])
def test_the_surest_guess_of_a_gaussian_mechanism_is_right_too_often_to_refute_it(mu: float, canaries: int) -> None:
    """Its chance is the integral of m·g(a)·G(a)^{m−1}/(1 + e^{−μa}), a the size of a score (mpmath)."""
    half = mpmath.mpf(mu) / 2

    def below(size: Any) -> Any:
        return mpmath.ncdf(size - half) - mpmath.ncdf(-size - half)

    def each(size: Any) -> Any:
        density = mpmath.npdf(size - half) + mpmath.npdf(size + half)
        return canaries * density * below(size) ** (canaries - 1) / (1 + mpmath.exp(-mu * size))

    exact = float(cast(Any, mpmath.quad(each, [0, 1, 2, 3, 4, 5, 6, 8, 12])))
    profile = StudyLaw(1 / mu, 1.0, 1).profile()
    assert not refutes(profile, canaries=canaries, guesses=1, right=1, chance=exact * (1 - 1e-6))
