"""Concepts that a cohort names."""

from __future__ import annotations

import pytest

from record_sources.cohort.concepts import ConceptStatus, check_named, named_concepts
from record_sources.errors import SourceError
from study_protocol.study.cohort import Cohort


def test_descendants_count_where_one_use_counts_them() -> None:
    settings = Cohort.model_validate(
        {
            "index_event": {"of": "visit", "concepts": [1], "descendants": False},
            "columns": {
                "a": {"of": "condition", "concepts": [1, 2]},
                "b": {"of": "drug", "concepts": [3], "descendants": False},
                "age": {"of": "age"},
            },
            "events": {"more": {"of": "drug", "concepts": [4]}},
        }
    )
    assert named_concepts(settings) == {1: True, 2: True, 3: False, 4: True}


def test_valid_standard_concepts_pass() -> None:
    check_named({1: True, 2: True}, {1: ConceptStatus("S", True), 2: ConceptStatus("C", True)})


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (None, "Concept 7 is not in the hospital's vocabulary."),
        (ConceptStatus(None, True, (8, 9)), "Concept 7 is not a standard concept. Its standard concept is 8 and 9."),
        (ConceptStatus(None, True), "Concept 7 is not a standard concept. Ask"),
        (ConceptStatus(None, False, (8,)), "Concept 7 is no longer valid. Its standard concept is 8."),
        (ConceptStatus("C", True), "Concept 7 is a class"),
    ],
)
def test_a_concept_that_cannot_be_used_is_named(status: ConceptStatus | None, sentence: str) -> None:
    with pytest.raises(SourceError) as error:
        check_named({7: False}, {} if status is None else {7: status})
    assert sentence in str(error.value)


def test_many_faults_are_counted() -> None:
    with pytest.raises(SourceError, match=r"Concept 10 .* And 5 more"):
        check_named(dict.fromkeys(range(1, 16), True), {})
