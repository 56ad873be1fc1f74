"""Accuracy under both rules: less noise for the same promise, and the suggested settings follow the noise."""

from __future__ import annotations

import numpy as np

from research.accuracy.defaults_data import SiteSplit, TableCase
from research.accuracy.defaults_run import DefaultsStudy
from research.accuracy.enforcement import AFTER, BEFORE, multiplier, row, setting


def _split(seed: int) -> SiteSplit:
    random = np.random.default_rng(seed)
    inputs = np.column_stack([random.uniform(0, 1, (400, 2)), np.ones(400)])
    labels = (inputs[:, 0] > 0.5).astype(np.int64)
    site = np.arange(300) % 3
    return SiteSplit(inputs[:300], labels[:300], site, inputs[300:], labels[300:])


CASE = TableCase("made", "made", "one column decides", 2, 2, _split)


def test_the_tight_rule_needs_less_noise_and_takes_a_longer_step() -> None:
    before, after = (DefaultsStudy("parallel", 1.0, 3, rule) for rule in (BEFORE, AFTER))
    assert 0.9 < multiplier(after) / multiplier(before) < 0.96
    assert setting(CASE, after).learning_rate > setting(CASE, before).learning_rate


def test_a_row_holds_both_rules_and_their_paired_gain() -> None:
    found = row(CASE, 2.0, seeds=2)
    assert found.gain == found.after - found.before
    assert found.noise_after < found.noise_before
    assert 0.4 < found.before <= found.without <= 1
