"""A few random studies: never below the exact number, and closely above what is left after slack."""

from __future__ import annotations

import numpy as np

from research.enforcement.mixed_studies import comparisons, random_study, summary


def test_whole_plans_are_never_below_the_exact_number_and_close_above() -> None:
    rows = list(comparisons(6))
    for row in rows:
        assert max(row.exact, row.exact_after_slack) <= row.stated <= row.exact_after_slack + 1e-3
        # The slack may be below the rounding of the inversion itself, some 1e-12.
        assert row.exact <= row.exact_after_slack * (1 + 1e-10)
    found = summary(rows)
    assert (found["studies"], found["below the exact number"]) == (6, 0)


def test_studies_are_drawn_by_their_seed() -> None:
    first, second = (random_study(np.random.default_rng(1)) for _ in range(2))
    assert first == second
    assert first.plan.max_steps == first.count
