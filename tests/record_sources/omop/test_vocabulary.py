"""Named concepts in the vocabulary of an OMOP database, and their descendants."""

from __future__ import annotations

from pathlib import Path

import pytest

from record_sources.errors import SourceError
from record_sources.omop.vocabulary import CHUNK, chunks
from tests.record_sources.omop.example import (
    EVENTS,
    FLU,
    GONE_FLU,
    ICU,
    ILL,
    OLD_FLU,
    cohort,
    sqlite,
)  # fmt: skip
from tests.record_sources.omop.made import made


@pytest.mark.parametrize(("concept", "why"), [(OLD_FLU, "not a standard concept"), (GONE_FLU, "no longer valid")])
def test_a_concept_that_is_not_standard_names_the_one_to_use(tmp_path: Path, concept: int, why: str) -> None:
    asked = cohort(index_event={"of": "condition", "concepts": [concept]})
    with pytest.raises(SourceError, match=rf"Concept {concept} is {why}\w*\. Its standard concept is {FLU}\."):
        made(tmp_path, sqlite(tmp_path / "a.db"), asked)
    with pytest.raises(SourceError, match=rf"Concept {concept} is {why}\w*\. Ask"):
        made(tmp_path, sqlite(tmp_path / "b.db", concept_relationship=None), asked)


def test_more_concepts_than_a_statement_binds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With overlapping parts, each event is taken once."""
    monkeypatch.setattr("record_sources.omop.vocabulary.CHUNK", 1)
    columns = cohort().columns | {
        "both": cohort().columns["ill"].model_copy(update={"concepts": (FLU, ILL), "take": "count"})
    }
    asked = cohort(columns={name: column.model_dump() for name, column in columns.items()})
    found, _ = made(tmp_path, sqlite(tmp_path / "a.db"), asked)
    # Of both, and of ill.
    assert [(row[3], row[5]) for row in found["patients"]] == [(1, 1), (0, 0)]
    assert found["conditions"] == EVENTS


def test_descendants_count_only_where_they_are_asked_for(tmp_path: Path) -> None:
    alone = {"of": "condition", "concepts": [ILL], "descendants": False}
    both = {"ill": cohort().columns["ill"].model_dump(), "alone": alone}
    found, _ = made(tmp_path, sqlite(tmp_path / "a.db"), cohort(columns=both, events={}))
    assert found["patients"] == [("1", 0, 1), ("2", 0, 0)]
    without = {"of": "visit", "concepts": [ICU], "descendants": False}
    found, _ = made(
        tmp_path, sqlite(tmp_path / "b.db", concept_ancestor=None),
        cohort(index_event=without, columns={"alone": alone}, events={}),
    )  # fmt: skip
    assert found["patients"] == [("1", 0)]


def test_descendants_of_an_empty_table_are_not_none(tmp_path: Path) -> None:
    """Otherwise all events of descendants would be left out without a word."""
    with pytest.raises(SourceError, match="table concept_ancestor is empty"):
        made(tmp_path, sqlite(tmp_path / "a.db", concept_ancestor=[]))


def test_parts_of_concepts_hold_each_once_and_are_bound_by_a_statement() -> None:
    concepts = range(3 * CHUNK, 0, -2)
    parts = list(chunks(concepts))
    assert [concept for part in parts for concept in part] == sorted(concepts)
    assert max(map(len, parts)) == CHUNK
