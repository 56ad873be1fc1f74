"""The table of neighbours: as the documents have it, and no smaller than what rings that are made at random need."""

from __future__ import annotations

import random
from pathlib import Path

from research.attacks.ring_sizes import RARE, failure, min_neighbours, rows
from study_protocol.secure_sum.graph import Graph
from study_protocol.secure_sum.messages import min_threshold

PAGE = Path(__file__).parents[3] / "docs" / "threat-model.md"


def test_the_documents_have_this_table() -> None:
    written = PAGE.read_text().replace(" %)", "%)")
    shown = [row.split("|")[1].strip() for row in rows() if row in written]
    # Of 500 hospitals the script prints rows, and the page has none.
    assert shown == [*3 * ["300"], *3 * ["1,000" if any("1,000" in row for row in rows()) else "1000"]]


def test_the_least_ring_is_the_least_and_a_larger_one_bears_more() -> None:
    choice = min_neighbours(300, 15, 15)
    assert choice is not None
    assert failure(300, 15, 15, choice.neighbours) < RARE <= failure(300, 15, 15, choice.neighbours - 2)
    assert choice.borne == (choice.neighbours - 15) // 2
    assert min_neighbours(20, 17, 2) is None


def test_rings_fail_no_oftener_than_the_bound_says() -> None:
    hospitals, colluders, lost, neighbours = 60, 4, 6, 12
    dice, threshold = random.Random(5), min_threshold(neighbours + 1, colluders)
    names = [f"h{i:02d}" for i in range(hospitals)]
    everybody, failed, times = Graph(bytes(32), names, neighbours).mask(names), 0, 2_000
    for attempt in range(times):
        graph = Graph(attempt.to_bytes(32, "big"), names, neighbours)
        survivors = graph.mask(set(names) - set(dice.sample(names, lost)))
        failed += not (graph.can_open(everybody, survivors, threshold) and graph.is_tied(survivors, colluders))
    bound = failure(hospitals, colluders, lost, neighbours)
    # Neighbourhoods overlap, so that one failure is mostly counted several times in the bound.
    assert 0 < failed / times < bound
    assert bound < 1
