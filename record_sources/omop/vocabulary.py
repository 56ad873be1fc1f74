"""The named concepts in the hospital's vocabulary, and the concepts that they cover."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from sqlalchemy import Select, and_, false, or_, select

from record_sources.cohort.concepts import ConceptStatus, check_named
from record_sources.errors import SourceError
from record_sources.omop.tables import CdmTable, CdmTables
from record_sources.sql.connection import ReadOnlyDatabase

# Databases bound the parameters of a statement: 2100 in SQL Server, and 1000 of a list in Oracle.
CHUNK = 500


def covered_concepts(
    database: ReadOnlyDatabase, tables: CdmTables, counts_descendants: Mapping[int, bool]
) -> dict[int, set[int]]:
    """Return the concepts that each named one covers: itself, and its descendants where they count.

    Raises:
        SourceError: the vocabulary is missing, or a named concept cannot be used.
    """
    check_named(counts_descendants, _statuses(database, tables, list(counts_descendants)))
    covered = {concept: {concept} for concept in counts_descendants}
    ancestors = [concept for concept, descendants in counts_descendants.items() if descendants]
    for chunk in chunks(ancestors):
        with database.query(select_descendants(tables.find("concept_ancestor"), chunk, with_ancestor=True)) as query:
            for ancestor, descendant in query.rows:
                covered[int(ancestor)].add(int(descendant))
    # A concept without descendants is no fault. None for all of them may mean that the table was not loaded.
    if ancestors and not any(len(concepts) > 1 for concepts in covered.values()):
        _require_rows(database, tables.find("concept_ancestor"), "ancestor_concept_id")
    return covered


def _require_rows(database: ReadOnlyDatabase, table: CdmTable, key: str) -> None:
    with database.query(select(table[key]).limit(1)) as query:
        if not list(query.rows):
            raise SourceError(f"table {table.name} is empty: load the vocabulary of OMOP from athena.ohdsi.org")


def select_descendants(
    ancestor: CdmTable, concepts: Sequence[int], *, with_ancestor: bool = False
) -> Select[tuple[int, ...]]:
    """Return a query for the descendants of concepts. with_ancestor: in a second column, after the ancestor."""
    columns = [ancestor["descendant_concept_id"]]
    columns = [ancestor["ancestor_concept_id"], *columns] if with_ancestor else columns
    return select(*columns).where(ancestor["ancestor_concept_id"].in_(concepts))


def chunks(concepts: Iterable[int]) -> Iterator[list[int]]:
    """Yield the concepts in parts that a statement can bind."""
    # Sorted, so that the same cohort sends the same statements.
    each = sorted(concepts)
    yield from (each[start : start + CHUNK] for start in range(0, len(each), CHUNK))


def _text(cell: str | None) -> str:
    # Loaded from files, an empty cell is perhaps an empty text, and in a column of type CHAR a space.
    return (cell or "").strip()


def _statuses(database: ReadOnlyDatabase, tables: CdmTables, concepts: Sequence[int]) -> dict[int, ConceptStatus]:
    table = tables.find("concept")
    concept, standard, invalid = (table[name] for name in ("concept_id", "standard_concept", "invalid_reason"))
    statuses = dict[int, ConceptStatus]()
    for chunk in chunks(concepts):
        with database.query(select(concept, standard, invalid).where(concept.in_(chunk))) as query:
            statuses |= {
                int(each): ConceptStatus(_text(letter) or None, not _text(reason))
                for each, letter, reason in query.rows
            }
    if not statuses:
        _require_rows(database, table, "concept_id")
    doubtful = [each for each, status in statuses.items() if status.standard != "S" or not status.valid]
    for each, targets in _maps_to(database, tables, doubtful).items():
        statuses[each] = replace(statuses[each], maps_to=tuple(sorted(targets)))
    return statuses


def _maps_to(database: ReadOnlyDatabase, tables: CdmTables, concepts: Sequence[int]) -> defaultdict[int, set[int]]:
    """Return the standard concepts to use instead, as far as the hospital's vocabulary has relationships."""
    targets = defaultdict[int, set[int]](set)
    if not concepts or not tables.has("concept_relationship"):
        return targets
    table, standard = tables.find("concept_relationship"), tables.find("concept")
    source, target, kind = (table[name] for name in ("concept_id_1", "concept_id_2", "relationship_id"))
    invalid = table.columns.get("invalid_reason")
    to_standard = and_(kind == "Maps to", target == standard["concept_id"], standard["standard_concept"] == "S")
    valid = or_(invalid.is_(None), invalid == "") if invalid is not None else ~false()
    for chunk in chunks(concepts):
        with database.query(select(source, target).where(and_(source.in_(chunk), to_standard, valid))) as query:
            for each, instead in query.rows:
                targets[int(each)] |= {int(instead)} - {int(each)}
    return targets
