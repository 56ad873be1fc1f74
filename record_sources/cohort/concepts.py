"""The concepts that a cohort names, and whether a vocabulary knows them as valid and standard."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from record_sources.errors import SourceError
from study_protocol.study.cohort import Cohort

# A wrong vocabulary makes every concept wrong, and a sentence has to stay readable.
_LISTED = 10


@dataclass(frozen=True)
class ConceptStatus:
    """The status of one concept in a vocabulary.

    Args:
        standard: `standard_concept`: `S`, `C` (a class, such as one of ATC) or none.
        valid: `invalid_reason` is empty.
        maps_to: the standard concepts to which `Maps to` leads, if they are known.
    """

    standard: str | None
    valid: bool
    maps_to: tuple[int, ...] = ()


def named_concepts(cohort: Cohort) -> dict[int, bool]:
    """Return the concepts of events that the cohort names, and whether descendants of each count somewhere."""
    counts_descendants: dict[int, bool] = {}
    for concepts, descendants in _uses(cohort):
        for concept in concepts:
            # A class is of use if its descendants count in one place at least.
            counts_descendants[concept] = counts_descendants.get(concept, False) or descendants
    return counts_descendants


def _uses(cohort: Cohort) -> Iterator[tuple[Collection[int], bool]]:
    yield cohort.index_event.concepts, cohort.index_event.descendants
    for column in cohort.columns.values():
        yield column.concepts or (), column.descendants
    for events in cohort.events.values():
        yield events.concepts, events.descendants


def check_named(counts_descendants: Mapping[int, bool], statuses: Mapping[int, ConceptStatus]) -> None:
    """Check the concepts that a cohort names against the hospital's vocabulary.

    Args:
        counts_descendants: concept -> whether its descendants count, from `named_concepts`.
        statuses: what the vocabulary says of each concept that it knows.

    Raises:
        SourceError: a concept is unknown, no longer valid or not standard. A class is refused where its descendants
            do not count, because no event has a class as its concept.
    """
    faults = [
        fault
        for concept in sorted(counts_descendants)
        if (fault := _fault(concept, counts_descendants[concept], statuses.get(concept)))
    ]
    if faults:
        more = f" And {len(faults) - _LISTED} more." if len(faults) > _LISTED else ""
        raise SourceError(
            "The section cohort of the settings names concepts that cannot be used. "
            + " ".join(faults[:_LISTED])
            + more
            + " Ask the study lead for other concepts, or update the vocabulary."
        )


def _fault(concept: int, descendants: bool, status: ConceptStatus | None) -> str | None:
    if status is None:
        return f"Concept {concept} is not in the hospital's vocabulary."
    instead = f" Its standard concept is {' and '.join(map(str, status.maps_to))}." if status.maps_to else ""
    if not status.valid:
        return f"Concept {concept} is no longer valid.{instead}"
    if status.standard == "C" and not descendants:
        return f"Concept {concept} is a class, and no event has it: let its descendants count."
    if status.standard not in ("S", "C"):
        return f"Concept {concept} is not a standard concept.{instead}"
    return None
