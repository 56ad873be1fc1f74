"""How many patients a cohort has, and how many each of its rules leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class CohortCounts:
    """Numbers of patients. Each rule counts those whom the rules before it kept.

    people               patients of the source
    without_index_event  of them without an index event
    died_unknown         who died on a day that is not known, where a column is of death
    died_before          whose day of death is before the index event
    born_after           whose birth is after the index event
    without_age          with no year of birth, where the cohort bounds the age, or with a birth that is no date, where
                         a column is the age, too
    outside_age          younger or older than the cohort's patients
    born_never           patients of the cohort with a birth that is no date, and so not known
    without_value        column of values -> its events without a value that counts, and all of its events
    """

    people: int
    without_index_event: int
    died_unknown: int
    died_before: int
    born_after: int
    without_age: int
    outside_age: int
    born_never: int = field(default=0, kw_only=True)
    without_value: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]], kw_only=True)

    @property
    def patients(self) -> int:
        """Number of patients of the cohort."""
        # Each patient is left out by one rule alone, so that the numbers add up.
        return self.people - sum(count for count, _ in self._rules())

    def in_words(self) -> list[str]:
        """Return a line for each rule that left patients out, and for each column with events without a value."""
        return [
            f"{self.people:,} patients in the source",
            *(f"{count:,} left out, who {reason}" for count, reason in self._rules() if count),
            f"{self.patients:,} patients in the cohort",
            *([f"{self.born_never:,} of them have a birth that is no date"] if self.born_never else []),
            *(
                f"column {name}: {without:,} of {events:,} events have no value that counts"
                for name, (without, events) in self.without_value.items()
            ),
        ]

    def _rules(self) -> list[tuple[int, str]]:
        return [
            (self.without_index_event, "have no index event"),
            (self.died_unknown, "died on a day that is not known"),
            (self.died_before, "died before the index event"),
            (self.born_after, "were born after the index event"),
            (self.without_age, "have no known birth"),
            (self.outside_age, "are younger or older at the index event"),
        ]
