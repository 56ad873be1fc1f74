"""The committed lists: codes of eICU, their published concepts, and relations between these."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

_FOLDER = Path(__file__).parent
MAPS_TO, IS_A = "Maps to", "Is a"
_VALID = (date(1970, 1, 1), date(2099, 12, 31))
_Row = tuple[int | str | date | None, ...]
CONCEPT = (
    "concept_id",
    "concept_name",
    "domain_id",
    "vocabulary_id",
    "concept_class_id",
    "standard_concept",
    "concept_code",
    "valid_start_date",
    "valid_end_date",
    "invalid_reason",
)
RELATIONSHIP = (
    "concept_id_1",
    "concept_id_2",
    "relationship_id",
    "valid_start_date",
    "valid_end_date",
    "invalid_reason",
)
ANCESTOR = (
    "ancestor_concept_id",
    "descendant_concept_id",
    "min_levels_of_separation",
    "max_levels_of_separation",
)


@dataclass(frozen=True)
class Concept:
    """One published concept."""

    id: int
    name: str
    domain: str
    vocabulary: str
    concept_class: str
    standard: str | None
    code: str
    invalid_reason: str | None
    source: str

    @property
    def row(self) -> _Row:
        """In the columns of `CONCEPT`."""
        kinds = (self.domain, self.vocabulary, self.concept_class, self.standard)
        return (self.id, self.name, *kinds, self.code, *_VALID, self.invalid_reason)


@dataclass(frozen=True)
class Vocabulary:
    """The concepts that the demonstration uses, and no others.

    codes   (column of eICU, code in it) -> concept
    maps    concept that is not standard -> the standard one
    parents concept -> its direct parents
    """

    concepts: dict[int, Concept]
    codes: dict[tuple[str, str], int]
    maps: dict[int, int]
    parents: dict[int, tuple[int, ...]]

    def standard(self, concept: int) -> int:
        """Return the standard concept of a concept: itself, or the one that it maps to."""
        return self.maps.get(concept, concept)

    def ancestors(self, concept: int) -> dict[int, tuple[int, int]]:
        """Return the concept and its ancestors with the least and largest number of steps to each."""
        distances = {concept: (0, 0)}
        for parent in self.parents.get(concept, ()):
            for above, (nearest, farthest) in self.ancestors(parent).items():
                before = distances.get(above, (nearest + 1, farthest + 1))
                distances[above] = min(before[0], nearest + 1), max(before[1], farthest + 1)
        return distances

    @property
    def relationship_rows(self) -> list[_Row]:
        """In the columns of `RELATIONSHIP`. As Athena does, every standard concept maps to itself."""
        pairs = [(id, id, MAPS_TO) for id, concept in self.concepts.items() if concept.standard == "S"]
        pairs += [(source, target, MAPS_TO) for source, target in self.maps.items()]
        pairs += [(child, parent, IS_A) for child, above in self.parents.items() for parent in above]
        return [(*pair, *_VALID, None) for pair in sorted(pairs)]

    @property
    def ancestor_rows(self) -> list[tuple[int, ...]]:
        """In the columns of `ANCESTOR`."""
        standard = [id for id, concept in self.concepts.items() if concept.standard == "S"]
        return sorted((above, id, *steps) for id in standard for above, steps in self.ancestors(id).items())


def load_vocabulary() -> Vocabulary:
    """Return the vocabulary of the committed lists."""
    concepts = [
        Concept(
            int(row["concept_id"]),
            row["concept_name"],
            row["domain_id"],
            row["vocabulary_id"],
            row["concept_class_id"],
            row["standard_concept"] or None,
            row["concept_code"],
            row["invalid_reason"] or None,
            row["source"],
        )
        for row in _rows("concepts.csv")
    ]
    maps: dict[int, int] = {}
    parents: dict[int, tuple[int, ...]] = {}
    for row in _rows("relations.csv"):
        first, second = int(row["concept_id_1"]), int(row["concept_id_2"])
        if row["relationship_id"] == MAPS_TO:
            maps[first] = second
        else:
            parents[first] = (*parents.get(first, ()), second)
    codes = {(row["column"], row["code"]): int(row["concept_id"]) for row in _rows("codes.csv")}
    return Vocabulary({concept.id: concept for concept in concepts}, codes, maps, parents)


def write_vocabulary(vocabulary: Vocabulary, folder: Path) -> None:
    """Write the three files that Athena's download has, with tabs between columns."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "CONCEPT.csv", CONCEPT, (concept.row for concept in vocabulary.concepts.values()))
    _write(folder / "CONCEPT_RELATIONSHIP.csv", RELATIONSHIP, vocabulary.relationship_rows)
    _write(folder / "CONCEPT_ANCESTOR.csv", ANCESTOR, vocabulary.ancestor_rows)


def _write(path: Path, header: tuple[str, ...], rows: Iterable[_Row]) -> None:
    lines = [header, *([_text(value) for value in row] for row in rows)]
    path.write_text("".join("\t".join(line) + "\n" for line in lines), encoding="utf-8")


def _text(value: int | str | date | None) -> str:
    if isinstance(value, date):
        return f"{value:%Y%m%d}"
    return "" if value is None else str(value)


def _rows(name: str) -> list[dict[str, str]]:
    with (_FOLDER / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
