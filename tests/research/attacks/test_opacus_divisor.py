"""The divisor of an Opacus run tells one record apart in long updates, and not in those with one divisor."""

from __future__ import annotations

import pytest

from research.attacks.opacus_divisor import BATCH, RECORDS, audit, one_step

pytestmark = pytest.mark.filterwarnings("ignore")


def test_one_record_changes_the_divisor() -> None:
    assert [one_step(RECORDS + extra, 3, 4.0)[1] for extra in (0, 1)] == [BATCH, BATCH - 1]


@pytest.mark.slow
def test_one_long_update_tells_the_record_apart_where_little_is_stated() -> None:
    """False alarms: with 10,000 numbers an error is five deviations of the squared length away, below 1e-4 in all."""
    found = audit(10_000, noise=4.0, runs=20, seed=3)
    assert found["accuracy"] == 1.0
    assert found["stated"] < 0.2 < found["at_least"]


@pytest.mark.slow
def test_a_short_update_tells_little() -> None:
    """With one number, the best attacker is right in 51.6 % of runs: 40 of 40 would be chance below 1e-10."""
    assert audit(1, noise=4.0, runs=40, seed=3)["accuracy"] < 1.0
