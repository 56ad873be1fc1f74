"""Subtracting two answers names a patient where counts are exact, and hardly tells of one where they have noise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from research.attacks import difference_attack
from research.attacks.difference_attack import NOISE, exact, pair, patients, with_noise, with_threshold


@pytest.mark.filterwarnings("ignore:seeded")
def test_the_attack_succeeds_on_exact_counts_and_fails_on_noised_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(difference_attack, "REPETITIONS", 100)
    columns = patients()
    radius = columns["radius"].astype(np.float64)
    pairs = [pair(radius, target, 1.0) for target in range(len(radius))]
    for target in (0, len(radius) // 2, len(radius) - 1):
        whole, rest = (exact(columns, one) for one in pairs[target])
        assert whole - rest == (columns["diagnosis"][target] == "malignant")
    broken = with_threshold(columns, pairs)
    assert broken.right == 1.0
    assert broken.refused < 0.3
    for known in (True, False):
        found = with_noise(columns, 1.0, knows_the_others=known)
        # A guess from one normal number: Φ(1/2s) where the others are known; two numbers with √2 s each otherwise.
        # 45,600 guesses: further off than .012 once in 10⁶.
        spread = NOISE[1.0] if known else 2 * NOISE[1.0]
        assert found.right == pytest.approx(norm.cdf(1 / (2 * spread)), abs=0.012)
        assert found.bound is not None
        assert found.right < found.bound
