"""One seed of the audit of queries: a sound study is not caught, each defect is, by the attack that can see it."""

from __future__ import annotations

import pytest

from research.attacks import audit_queries
from research.attacks.audit import ALARM_LAW, ALARM_ONE_RUN


@pytest.mark.quick("queries, noise halved-True-True", "queries, noise reused-False-True")
@pytest.mark.parametrize(
    ("name", "one_run", "differences"),
    [
        ("queries, sound", False, False),
        ("queries, noise halved", True, True),
        ("queries, patients counted twice", True, False),
        ("queries, noise reused", False, True),
    ],
)
def test_a_defect_is_seen_by_the_attack_that_can_see_it(name: str, one_run: bool, differences: bool) -> None:
    """By chance a sound study is caught in fewer than two runs in a thousand; coins and noise are seeded."""
    found = audit_queries.attack(audit_queries.TWINS[name], seed=1)
    assert (found.one_run < ALARM_ONE_RUN, found.differences < ALARM_LAW) == (one_run, differences)
    assert found.caught == (one_run or differences)
    assert 2.0 < found.epsilon < 2.2
    assert (found.at_least > found.epsilon) == one_run


@pytest.mark.slow
def test_rates_over_twenty_seeds() -> None:
    """Each defect in at least 19 of 20 studies; a sound study in at most one."""
    counts = audit_queries.audit_queries(range(1, 21))
    assert counts.pop("queries, sound").caught <= 1
    assert all(count.caught >= 19 for count in counts.values()), counts
