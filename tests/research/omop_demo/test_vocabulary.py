"""The committed list of concepts: small, consistent, and each with the source of its id."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from research.omop_demo.vocabulary import load_vocabulary, write_vocabulary

MOST_CODES = 100
HYPERTENSION, STROKE, CARDIOVASCULAR = 316866, 381316, 134057
INFARCTION, ISCHEMIC = 312327, 4185932


def test_every_code_leads_to_a_concept_with_a_source() -> None:
    vocabulary = load_vocabulary()
    assert 0 < len(vocabulary.codes) <= MOST_CODES
    used = {*vocabulary.codes.values(), *vocabulary.maps, *vocabulary.maps.values(), *vocabulary.parents}
    used |= {parent for parents in vocabulary.parents.values() for parent in parents}
    assert used == set(vocabulary.concepts)
    assert all(concept.source for concept in vocabulary.concepts.values())


def test_what_is_not_standard_maps_to_what_is() -> None:
    vocabulary = load_vocabulary()
    assert {id for id, concept in vocabulary.concepts.items() if concept.standard != "S"} == set(vocabulary.maps)
    assert all(vocabulary.concepts[vocabulary.standard(id)].standard == "S" for id in vocabulary.concepts)


@pytest.mark.parametrize(
    ("concept", "ancestor", "steps"),
    [(HYPERTENSION, CARDIOVASCULAR, 1), (STROKE, CARDIOVASCULAR, 2), (INFARCTION, ISCHEMIC, 2), (STROKE, STROKE, 0)],
)
def test_ancestors_are_those_of_all_steps(tmp_path: Path, concept: int, ancestor: int, steps: int) -> None:
    write_vocabulary(load_vocabulary(), tmp_path)
    with (tmp_path / "CONCEPT_ANCESTOR.csv").open(newline="") as file:
        rows = [tuple(map(int, row)) for row in list(csv.reader(file, delimiter="\t"))[1:]]
    assert (ancestor, concept, steps, steps) in rows
