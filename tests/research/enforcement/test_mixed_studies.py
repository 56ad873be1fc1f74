"""A few random studies: never below the exact number, and closely above what is left after slack."""

from __future__ import annotations

import numpy as np

from research.enforcement.mixed_studies import comparisons, random_study, summary


def test_whole_plans_are_never_below_the_exact_number_and_close_above() -> None:
    rows = list(comparisons(6))
    assert all(one.exact <= one.stated <= one.exact + 1e-3 for one in rows)
    # The same root twice, each found to a share of 1e-9: the rounding of the noise takes next to nothing.
    assert all(abs(one.exact_after_slack - one.exact) <= 1e-8 * one.exact for one in rows)
    found = summary(rows)
    assert (found["studies"], found["below the exact number"]) == (6, 0)


def test_studies_are_drawn_by_their_seed() -> None:
    first, second = (random_study(np.random.default_rng(1)) for _ in range(2))
    assert first == second
    assert first.plan.max_steps == first.count
