"""What the right guesses of one run prove about ε: a test of f-differential privacy.

m canaries take part by coins of their own. An attacker guesses c' of the coins, and `right` of the guesses are right.
Under f-DP (neighbours: one coin flipped) write p_t for the probability of t right guesses, and

    r_i = Σ_{t ≥ i} t·p_t/m,    h_i = Σ_{t ≥ i} (c' − t)·p_t/m.

Flipping the coin of one guess turns a right guess into a wrong one, so r_{i+1} ≤ 1 − f(h_i) for every i, and r_0 + h_0
= c'/m (Mahloujifar, Melis & Chaudhuri 2025, "Auditing f-Differential Privacy in One Run", Theorem 9 and Algorithm 3).
If P[at least `right`] were `chance`, the recursion from i = right down to 0 gives a lower bound on r_0 + h_0. All
bounds rise with `chance`. So if the bound passes c'/m at `chance`, the probability is below `chance`, and f is refuted
with confidence 1 − chance. The number of guesses must not depend on the run.

The bound says how much a single run can show at all (Xiang, Wang & Wang 2025, "Privacy Audit as Bits Transmission").
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from accounting import ClassicalAccountant
from accounting.accountants.profile import PrivacyProfile
from accounting.values import FloatArray

# Rounding of sums and products in the recursion, of numbers at most 1. It never helps to refute.
_SLACK = 1e-9
# Points of a curve of δ(ε), and the δ at which it ends.
_POINTS, _LAST_DELTA = 121, 1e-9
# Shares of the canaries that may be guessed. The best one follows from public numbers.
_SHARES = (0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0)
_REHEARSALS, _FACTOR_STEP = 7, 1.02
_LARGEST_EPSILON = 30.0
# The recursion takes one step for each guess.
_MOST_GUESSES = 20_000


@dataclass(frozen=True)
class StudyLaw:
    """The steps that a certificate counts: all have this noise and rate.

    noise_multiplier  standard deviation over the clip norm, of the noise that counts
    """

    noise_multiplier: float
    sampling_rate: float
    count: int

    def with_noise(self, factor: float) -> StudyLaw:
        """Return the same steps with `factor` times the noise."""
        return StudyLaw(self.noise_multiplier * factor, self.sampling_rate, self.count)

    def epsilon(self, delta: float) -> float:
        """Return ε at this δ, as the accountant states it."""
        return _account(self, delta).epsilon()

    def profile(self) -> PrivacyProfile:
        """Return δ(ε), rounded up, from ε = 0 to where δ is below 1e-9."""
        return _profile(self)


@lru_cache(maxsize=512)
def _account(law: StudyLaw, delta: float) -> ClassicalAccountant:
    account = ClassicalAccountant(delta=delta)
    account.step(noise_multiplier=law.noise_multiplier, sampling_rate=law.sampling_rate, count=law.count)
    return account


@lru_cache(maxsize=512)
def _profile(law: StudyLaw) -> PrivacyProfile:
    account = _account(law, _LAST_DELTA)
    return account.profile(np.linspace(0.0, max(account.epsilon(), 1e-3), _POINTS))


def refutes(profile: PrivacyProfile, *, canaries: int, guesses: int, right: int, chance: float) -> bool:
    """Whether so many right guesses refute that a mechanism has this δ(ε), with confidence 1 − `chance`.

    A mechanism that has it is refuted with probability at most `chance`. The profile may be a single point (ε, δ).

    Args:
        canaries: whose coins are fair and independent.
        guesses: how many coins are guessed, fixed before the run, at most `canaries`.
    """
    if not 0 <= right <= guesses <= canaries or guesses < 1 or not 0 < chance < 1:
        raise ValueError("0 ≤ right ≤ guesses ≤ canaries, 1 ≤ guesses, and a chance between 0 and 1")
    shrink, growth, deltas = np.exp(-profile.epsilons), np.exp(profile.epsilons), profile.deltas
    total = guesses / canaries * (1 + _SLACK) + _SLACK
    rights, wrongs = chance * right / canaries, chance * (guesses - right) / canaries
    for count in range(right - 1, -1, -1):
        needed = _least_wrong(rights, shrink, growth, deltas)
        rights += count / (guesses - count) * (needed - wrongs)
        wrongs = needed
        if rights + wrongs > total:
            return True
    return rights + wrongs > total


def _least_wrong(rights: float, shrink: FloatArray, growth: FloatArray, deltas: FloatArray) -> float:
    """Return the least x with 1 − f(x) ≥ rights: of min(e^ε x + δ, 1 − e^{−ε}(1 − δ − x)) over the profile."""
    bounds = np.maximum((rights - deltas) * shrink, 1 - deltas - growth * (1 - rights))
    return max(0.0, float(bounds.max()))


def proven_epsilon(law: StudyLaw, delta: float, *, canaries: int, guesses: int, right: int, chance: float) -> float:
    """Return ε at δ of the least noise that was refuted, of the study's own law with more or less noise. 0: none was.

    The run shows, with confidence 1 − `chance`, that the noise is below that of a study with this ε. It passes the ε of
    `law` only if `law` itself is refuted.
    """

    def refuted(factor: float) -> bool:
        profile = law.with_noise(factor).profile()
        return refutes(profile, canaries=canaries, guesses=guesses, right=right, chance=chance)

    # More noise is refuted more easily: ascending factors of a fixed grid, of which 1 is one.
    low, high = -200, 200
    if not refuted(_FACTOR_STEP**high):
        return 0.0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if refuted(_FACTOR_STEP**middle) else (middle, high)
    return law.with_noise(_FACTOR_STEP**high).epsilon(delta)


def proven_epsilon_of_any(delta: float, *, canaries: int, guesses: int, right: int, chance: float) -> float:
    """Return the largest ε, to three digits below it, whose (ε, δ)-DP is refuted, of any mechanism. 0: none is."""

    def refuted(epsilon: float) -> bool:
        point = PrivacyProfile(np.array([epsilon]), np.array([delta]))
        return refutes(point, canaries=canaries, guesses=guesses, right=right, chance=chance)

    return _largest(refuted)


def most_provable(canaries: int, chance: float, delta: float) -> float:
    """Return the largest ε that any run with so many canaries can prove: all of them are guessed, and rightly."""

    def refuted(epsilon: float) -> bool:
        point = PrivacyProfile(np.array([epsilon]), np.array([delta]))
        return any(
            refutes(point, canaries=canaries, guesses=guesses, right=guesses, chance=chance)
            for guesses in guess_counts(canaries)
        )

    return _largest(refuted)


def _largest(refuted: Callable[[float], bool]) -> float:
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, _LARGEST_EPSILON
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return math.floor(low * 1e3) / 1e3


def guess_counts(canaries: int) -> list[int]:
    """Return how many coins may be guessed, ascending, each at least one."""
    return sorted({min(max(1, round(share * canaries)), _MOST_GUESSES) for share in _SHARES})


@dataclass(frozen=True)
class GuessPlan:
    """Chosen before the run, from public numbers alone.

    expected  ε that a run with the certified noise and the best attack proves: the median of rehearsals
    """

    guesses: int
    expected: float


@lru_cache(maxsize=64)
def plan_guesses(law: StudyLaw, delta: float, *, canaries: int, chance: float) -> GuessPlan:
    """Rehearse with orthogonal canaries, each of which shows as much as the certificate allows, and choose a number.

    A canary's score is N(0, 1) without it and N(μ, 1) with it, with the μ of the study's law.
    """
    mu, draw = min(law.profile().mu(), 100.0), np.random.default_rng(0)
    best, worst_case = GuessPlan(canaries, 0.0), 0.0
    rehearsed: dict[int, list[int]] = {}
    for _ in range(_REHEARSALS):
        inside = draw.random(canaries) < 0.5
        scores = draw.normal(size=canaries) + mu * inside - mu / 2
        for guesses in guess_counts(canaries):
            rehearsed.setdefault(guesses, []).append(right_guesses(scores, inside, guesses))
    for guesses, rights in rehearsed.items():
        # The number whose worst rehearsal shows most: with few guesses luck decides.
        proven = [
            proven_epsilon(law, delta, canaries=canaries, guesses=guesses, right=right, chance=chance)
            for right in (min(rights), int(np.median(rights)))
        ]
        if proven[0] > worst_case or (worst_case == 0.0 and proven[1] > best.expected):
            best, worst_case = GuessPlan(guesses, proven[1]), proven[0]
    return best


def right_guesses(scores: FloatArray, inside: np.ndarray, guesses: int) -> int:
    """Return how many of the `guesses` scores farthest from 0 have the right sign: above 0 says "in"."""
    picks = np.argsort(-np.abs(scores), kind="stable")[:guesses]
    return int(((scores > 0) == inside)[picks].sum())
