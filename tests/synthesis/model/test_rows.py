"""Whole numbers of a systematic sample."""

from __future__ import annotations

import numpy as np

from synthesis.model.arithmetic import RandomWords
from synthesis.model.rows import allotted


def test_each_value_is_within_one_of_its_share() -> None:
    shares = np.random.default_rng(0).dirichlet(np.ones(7), 50)
    counts = np.arange(50)
    found = allotted(shares, counts, RandomWords(3))
    assert found.sum(axis=1).tolist() == counts.tolist()
    assert np.abs(found - shares * counts[:, None]).max() <= 1
