"""The f-DP test of one run: against exact laws, and its rate of false alarms on mechanisms whose ε is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

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
