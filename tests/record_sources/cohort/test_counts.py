"""How many patients each rule leaves out, in numbers and in words."""

from __future__ import annotations

from datetime import timedelta

from record_sources.cohort.counts import CohortCounts
from tests.record_sources.cohort.brute_force import Staged
from tests.record_sources.cohort.staged import (
    COVERED,
    START,
    cohort,
    made,
    visits,
)


def test_each_rule_counts_whom_it_leaves_out() -> None:
    born = (0, 1980, 1, 1)
    persons = [("a", *born, None), ("b", *born, None), ("c", *born, START), ("d", *born, START + timedelta(1))]
    persons += [("e", 0, 2021, 1, 1, None), ("f", 0, None, None, None, None), ("g", 0, 1900, 1, 1, None)]
    rows = Staged(persons, visits(*((name, 1) for name in "acdefg")), COVERED)
    found, counts = made(rows, cohort(age=[18, 90], events={}))
    assert [row[0] for row in sorted(found["patients"])] == ["a", "d"]
    assert counts == CohortCounts(7, 1, 1, 1, 1, 1)
    assert counts.in_words() == [
        "7 patients in the source",
        "1 left out, who have no index event",
        "1 left out, who died before the index event",
        "1 left out, who were born after the index event",
        "1 left out, who have no year of birth",
        "1 left out, who are younger or older at the index event",
        "2 patients in the cohort",
    ]
