"""The multiset of charged queries: sums against exact fractions, whatever the order."""

from __future__ import annotations

import json
import random
from fractions import Fraction

from accounting.budget.accounts.charged import ChargedQueries
from accounting.plan.queries import QueryCost

STD = 2.0**20
COSTS = [QueryCost(STD + n, float(n), 1, "evaluated" if n % 3 == 0 else "all") for n in range(1, 20)]


def charged(costs: list[QueryCost]) -> ChargedQueries:
    queries = ChargedQueries()
    for cost in costs:
        queries = queries.plus(cost)
    return queries


def exact(costs: list[QueryCost], less_variance: float = 0.0) -> Fraction:
    return sum(
        (Fraction(c.sensitivity) ** 2 / (Fraction(c.noise_std) ** 2 - Fraction(less_variance)) for c in costs),
        Fraction(0),
    )


def test_the_precision_is_the_exact_sum_rounded_up() -> None:
    for bearers in (("all",), ("evaluated",), ("all", "evaluated")):
        borne = [cost for cost in COSTS if cost.bears in bearers]
        for less in (0.0, 1 / 12):
            precision = Fraction(charged(COSTS).precision(*bearers, less_variance=less))
            assert exact(borne, less) <= precision <= exact(borne, less) * (1 + Fraction(1, 2**45))
    assert ChargedQueries().precision("all") == 0.0


def test_neither_order_nor_storing_changes_a_bit() -> None:
    precisions = set()
    for seed in range(5):
        queries = charged(random.Random(seed).sample(COSTS * 2, 2 * len(COSTS)))
        stored = ChargedQueries.restore(json.loads(json.dumps(queries.state())))
        precisions |= {queries.precision("all"), stored.precision("all")}
        assert len(stored) == len(queries) == 2 * len(COSTS)
    assert len(precisions) == 1


def test_adding_leaves_the_queries_before_as_they_were() -> None:
    before = charged(COSTS[:1])
    after = before.plus(COSTS[1], 3)
    assert (len(before), len(after)) == (1, 4)
    assert not ChargedQueries()
    assert after


def test_only_those_beyond_the_schedule_are_left() -> None:
    scheduled, other = COSTS[2], COSTS[0]
    queries = ChargedQueries().plus(scheduled, 5).plus(other, 2)
    assert queries.beyond(scheduled, 3).state() == [["all", other.noise_std, 1.0, 2], ["evaluated", STD + 3, 3.0, 2]]
    assert queries.beyond(scheduled, 9).state() == [["all", other.noise_std, 1.0, 2]]


def test_events_are_those_of_the_bearer_in_one_order() -> None:
    queries = ChargedQueries().plus(COSTS[3], 2).plus(COSTS[0]).plus(COSTS[2])
    assert [(event.noise_std, event.sensitivity, count) for event, count in queries.events("all")] == [
        (STD + 1, 1.0, 1),
        (STD + 4, 4.0, 2),
    ]
    assert [count for _, count in queries.events("all", "evaluated")] == [1, 2, 1]
