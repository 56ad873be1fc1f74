"""The hospital's vocabulary files, as downloaded from Athena, and the concepts of codes by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import duckdb
import pyarrow.csv  # pyright: ignore[reportMissingTypeStubs]

from record_sources.cohort.concepts import ConceptStatus, check_named
from record_sources.errors import SourceError
from record_sources.fhir.systems import CONCEPT_IDS
from record_sources.working.arrow import pa

csv: Any = cast("Any", pyarrow.csv)
# Bytes at once: CONCEPT_ANCESTOR.csv is too large to be read whole.
_BLOCK = 8 << 20
TABLES = """
CREATE TABLE concept (
    id BIGINT, domain VARCHAR, vocabulary VARCHAR, code VARCHAR, standard VARCHAR, valid BOOLEAN
);
CREATE TABLE maps_to (source BIGINT, target BIGINT);
CREATE TABLE coding (codes INTEGER, position INTEGER, vocabulary VARCHAR, code VARCHAR, is_visit BOOLEAN);
"""
_COLUMNS = {
    "CONCEPT.csv": (
        "concept_id",
        "domain_id",
        "vocabulary_id",
        "concept_code",
        "standard_concept",
        "invalid_reason",
    ),
    "CONCEPT_ANCESTOR.csv": ("ancestor_concept_id", "descendant_concept_id"),
    "CONCEPT_RELATIONSHIP.csv": ("concept_id_1", "concept_id_2", "relationship_id", "invalid_reason"),
}


def load_vocabulary(
    connection: duckdb.DuckDBPyConnection, folder: Path, counts_descendants: Mapping[int, bool]
) -> None:
    """Read the vocabulary files into the tables of `TABLES`, check the named concepts, and fill `covered`.

    Args:
        connection: the working database, with the staging table `covered` and `TABLES`.
        folder: of CONCEPT.csv, CONCEPT_ANCESTOR.csv and perhaps CONCEPT_RELATIONSHIP.csv. Without the last file,
            only codes that are standard concepts have one.
        counts_descendants: concept -> whether its descendants count.

    Raises:
        SourceError: a file is missing or not as Athena writes it, or a named concept cannot be used.
    """
    _read(
        connection,
        folder / "CONCEPT.csv",
        "INSERT INTO concept SELECT TRY_CAST(concept_id AS BIGINT), domain_id, vocabulary_id, concept_code, "
        "standard_concept, invalid_reason IS NULL FROM batch",
    )
    _check_numbers(connection, "CONCEPT.csv", "SELECT count(*) FROM concept WHERE id IS NULL")
    if (folder / "CONCEPT_RELATIONSHIP.csv").is_file():
        _read(
            connection,
            folder / "CONCEPT_RELATIONSHIP.csv",
            "INSERT INTO maps_to SELECT TRY_CAST(concept_id_1 AS BIGINT), TRY_CAST(concept_id_2 AS BIGINT) FROM batch "
            "WHERE relationship_id = 'Maps to' AND invalid_reason IS NULL",
        )
        _check_numbers(
            connection,
            "CONCEPT_RELATIONSHIP.csv",
            "SELECT count(*) FROM maps_to WHERE source IS NULL OR target IS NULL",
        )
    check_named(counts_descendants, _statuses(connection, list(counts_descendants)))
    _cover(connection, folder, counts_descendants)


def _read(connection: duckdb.DuckDBPyConnection, path: Path, insert: str, parameters: Sequence[Any] = ()) -> int:
    """Run `insert` on each batch of rows of a file, and return their number. Cells are texts, and nulls where empty."""
    if not path.is_file():
        raise SourceError(f"{path.parent} has no {path.name}. Name the folder of a vocabulary download from Athena.")
    columns, rows = _COLUMNS[path.name], 0
    try:
        for batch in csv.open_csv(
            path,
            csv.ReadOptions(use_threads=False, block_size=_BLOCK),
            csv.ParseOptions(delimiter="\t", quote_char=False),
            csv.ConvertOptions(
                include_columns=columns,
                column_types=dict.fromkeys(columns, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
            ),
        ):
            connection.register("batch", pa.Table.from_batches([batch]))
            connection.execute(insert, parameters)
            connection.unregister("batch")
            rows += len(batch)
    except pa.ArrowKeyError:
        raise SourceError(
            f"{path.name} does not have the columns {', '.join(columns)} with tabs between them. Use the file as "
            "Athena's download has it."
        ) from None
    except OSError as error:
        raise SourceError(f"{path.name} cannot be read: {error.strerror}.") from None
    # The message of the package shows rows.
    except pa.ArrowInvalid:
        raise SourceError(
            f"{path.name} is not text in UTF-8 with tabs and as many columns in every line as in the first one. "
            "Download it again from Athena."
        ) from None
    return rows


def _check_numbers(connection: duckdb.DuckDBPyConnection, file: str, query: str) -> None:
    [(count,)] = connection.execute(query).fetchall()
    if count:
        raise SourceError(f"{file}: {count} rows have a concept id that is no number. Download it again from Athena.")


def _statuses(connection: duckdb.DuckDBPyConnection, concepts: list[int]) -> dict[int, ConceptStatus]:
    rows = connection.execute(
        "SELECT c.id, c.standard, c.valid, list_sort(list(s.id) FILTER (s.id IS NOT NULL)) FROM concept c "
        "LEFT JOIN maps_to m ON m.source = c.id LEFT JOIN concept s ON s.id = m.target AND s.standard = 'S' "
        "AND s.id <> c.id WHERE c.id IN (SELECT unnest(?::BIGINT[])) GROUP BY ALL",
        [concepts],
    ).fetchall()
    return {row[0]: ConceptStatus(row[1], row[2], tuple(row[3] or ())) for row in rows}


def _cover(connection: duckdb.DuckDBPyConnection, folder: Path, counts_descendants: Mapping[int, bool]) -> None:
    with_descendants = [concept for concept, descendants in counts_descendants.items() if descendants]
    connection.execute("CREATE TEMP TABLE ancestor (named BIGINT, concept BIGINT)")
    rows = _read(
        connection,
        folder / "CONCEPT_ANCESTOR.csv",
        "INSERT INTO ancestor SELECT * FROM (SELECT TRY_CAST(ancestor_concept_id AS BIGINT) AS named, "
        "TRY_CAST(descendant_concept_id AS BIGINT) AS concept FROM batch) "
        "WHERE named IS NULL OR concept IS NULL OR named IN (SELECT unnest(?::BIGINT[]))",
        [with_descendants],
    )
    if with_descendants and not rows:
        raise SourceError("CONCEPT_ANCESTOR.csv is empty. Download it again from Athena.")
    _check_numbers(
        connection, "CONCEPT_ANCESTOR.csv", "SELECT count(*) FROM ancestor WHERE named IS NULL OR concept IS NULL"
    )
    connection.execute(
        "INSERT INTO covered SELECT named, concept FROM ancestor UNION SELECT id, id FROM unnest(?::BIGINT[]) AS _(id)",
        [list(counts_descendants)],
    )
    connection.execute("DROP TABLE ancestor")


def resolve_codes(connection: duckdb.DuckDBPyConnection) -> None:
    """Fill the table `target (codes, concept, domain)` with the standard concepts of the table `coding`.

    One coding of several is used: the first that is a standard concept itself, and otherwise the first that maps to
    standard concepts. So one diagnosis in three code systems counts once. A coding that maps to several concepts
    gives one row for each. Where a vocabulary has a code twice, the valid concept counts.
    """
    connection.execute(
        """
CREATE TABLE target AS
WITH candidate AS (
    SELECT k.codes, k.position, k.is_visit, c.id, c.standard, c.valid FROM coding k
    JOIN concept c ON c.vocabulary = k.vocabulary AND c.code = k.code
    UNION ALL
    SELECT k.codes, k.position, k.is_visit, c.id, c.standard, c.valid FROM coding k
    JOIN concept c ON c.id = TRY_CAST(k.code AS BIGINT) WHERE k.vocabulary = ?
), source AS (
    SELECT * FROM candidate QUALIFY rank() OVER (PARTITION BY codes, position ORDER BY valid DESC) = 1
), reached AS (
    SELECT codes, position, is_visit, id AS concept, 0 AS tier FROM source WHERE standard = 'S'
    UNION ALL
    SELECT s.codes, s.position, s.is_visit, m.target, 1 FROM source s JOIN maps_to m ON m.source = s.id
    WHERE s.standard IS DISTINCT FROM 'S'
), standard AS (
    SELECT r.*, lower(c.domain) AS domain FROM reached r JOIN concept c ON c.id = r.concept
    WHERE c.standard = 'S' AND (NOT r.is_visit OR c.domain = 'Visit')
)
SELECT DISTINCT codes, concept, domain FROM standard
QUALIFY rank() OVER (PARTITION BY codes ORDER BY tier, position) = 1
""",
        [CONCEPT_IDS],
    )
