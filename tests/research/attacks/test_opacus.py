"""The audit of Opacus: its divisor as its code computes it, and likelihood ratios against a direct computation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from research.attacks import opacus


@pytest.mark.parametrize(("records", "divided"), [(100, 10), (101, 9), (105, 9), (106, 9), (20, 10), (19, 9)])
def test_the_divisor_is_that_of_its_data_loader(records: int, divided: int) -> None:
    """expected_batch_size = int(len(dataset) · (1 / len(data_loader))), with loaders of ⌈records / 10⌉ batches."""
    assert opacus.divisor(records)[0] == divided


def test_likelihood_ratios_are_those_of_the_two_mixtures() -> None:
    released = np.random.default_rng(0).normal(size=(3, 2, 4)) / 10
    without, within = (10.0, 0.1), (9.0, 1 / 11)
    found = opacus.ratios(released, without, within)
    canary = np.array([-1.0, 0, 0, 0])
    for run, ratio in zip(released, found, strict=True):
        exact = 0.0
        for step in run:
            absent, present = (np.prod(stats.norm.pdf(9 * (step - shift / 9)) * 9) for shift in (0 * canary, canary))
            exact += np.log(10 / 11 * absent + 1 / 11 * present) - np.log(np.prod(stats.norm.pdf(10 * step) * 10))
        assert ratio == pytest.approx(exact)


def test_the_same_divisor_shows_no_more_than_the_canary() -> None:
    """Noise alone, divided by the same number: guesses are right by chance."""
    draw = np.random.default_rng(1)
    inside = draw.random(2_000) < 0.5
    scores = opacus.ratios(draw.normal(size=(2_000, 3, 5)) / 9, (9.0, 0.1), (9.0, 0.1))
    assert 0.45 < ((scores > np.median(scores)) == inside).mean() < 0.55
