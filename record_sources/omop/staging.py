"""Patients and events of an OMOP database in the staging tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import DateTime, Select, case, func, or_, select
from sqlalchemy import cast as sql_cast
from sqlalchemy.sql.elements import ColumnElement

from record_sources.cohort.concepts import named_concepts
from record_sources.errors import SourceError
from record_sources.omop.tables import CdmTable, CdmTables
from record_sources.omop.vocabulary import chunks, covered_concepts, select_descendants
from record_sources.source_file.description import OmopDescription
from record_sources.sql.connection import ReadOnlyDatabase
from record_sources.working.staging import YEARS
from record_sources.working.workspace import RowProgress, Workspace
from study_protocol.study.cohort import Cohort, Domain

_LOAD = "load the vocabulary of OMOP from athena.ohdsi.org"


@dataclass(frozen=True)
class CdmEventTable:
    """The place of the events of a domain in OMOP: the table, and the beginning of the names of its columns."""

    name: str
    concept: str
    starts: str
    has_values: bool = False


EVENT_TABLES: Mapping[Domain, CdmEventTable] = {
    "visit": CdmEventTable("visit_occurrence", "visit_concept_id", "visit_start"),
    "condition": CdmEventTable("condition_occurrence", "condition_concept_id", "condition_start"),
    "drug": CdmEventTable("drug_exposure", "drug_concept_id", "drug_exposure_start"),
    "measurement": CdmEventTable("measurement", "measurement_concept_id", "measurement", has_values=True),
    "observation": CdmEventTable("observation", "observation_concept_id", "observation", has_values=True),
}
# Columns of the raw tables, each with the type that its cells must have.
_TYPES = {
    "person": "BIGINT",
    "concept": "BIGINT",
    "day": "DATE",
    "time": "TIMESTAMP",
    "value": "DOUBLE",
    "value_concept": "BIGINT",
    "unit": "BIGINT",
    "sex": "BIGINT",
    "birth_year": "INTEGER",
    "birth_month": "INTEGER",
    "birth_day": "INTEGER",
}
_KINDS = {"DATE": "date", "TIMESTAMP": "date", "DOUBLE": "number"}
# "=" of OMOP's operators. With another one, such as "<", the number is a limit and no value.
_EQUALS = 4172703
# A unit with a name but without a concept is not "no unit". No settings can list it.
_UNIT = "CASE WHEN unit_named = 1 AND coalesce({unit}, 0) = 0 THEN -1 ELSE {unit} END"


def fill_staging(
    database: ReadOnlyDatabase, workspace: Workspace, source: OmopDescription, cohort: Cohort, progress: RowProgress
) -> list[str]:
    """Fill the staging tables from an OMOP database.

    Args:
        database: in one transaction, so that the tables fit together.
        workspace: with the tables of `record_sources.working.staging`.

    Returns:
        sentences with counts of rows that were left out.

    Raises:
        SourceError: a table, column or named concept is missing, or cells are no dates or numbers.
    """
    reader = OmopReader(database, workspace, source, progress)
    covered = reader.read_vocabulary(named_concepts(cohort))
    reader.read_people(source.patient)
    remarks = list(reader.read_deaths())
    for domain, concepts in _named_by_domain(cohort).items():
        remarks += reader.read_events(domain, concepts, covered)
    workspace.connection.execute("DROP TABLE raw_person")
    return remarks


def _named_by_domain(cohort: Cohort) -> dict[Domain, dict[int, bool]]:
    """Return the named concepts of each domain, and whether descendants of each count somewhere."""
    by_domain = defaultdict[Domain, dict[int, bool]](dict)
    for use in (cohort.index_event, *cohort.columns.values(), *cohort.events.values()):
        # Only events have concepts.
        for concept in use.concepts or ():
            concepts = by_domain[cast("Domain", use.of)]
            concepts[concept] = concepts.get(concept, False) or use.descendants
    return by_domain


class OmopReader:
    """Reads tables one after another into raw tables of the workspace, and from them into the staging tables."""

    def __init__(
        self, database: ReadOnlyDatabase, workspace: Workspace, source: OmopDescription, progress: RowProgress
    ) -> None:
        self._database, self._workspace, self._progress = database, workspace, progress
        self._clinical = CdmTables(
            database, source.cdm_schema, "schema", "name the database of the OMOP CDM 5.4 in url"
        )
        vocabulary = source.vocabulary_schema or source.cdm_schema
        self._vocabulary = CdmTables(database, vocabulary, "vocabulary_schema", _LOAD)

    def read_vocabulary(self, concepts: Mapping[int, bool]) -> dict[int, set[int]]:
        """Fill `covered`, and return the concepts that each named one covers."""
        covered = covered_concepts(self._database, self._vocabulary, concepts)
        pairs = ((name, concept) for name in sorted(covered) for concept in sorted(covered[name]))
        self._workspace.fill("raw_covered", ("named", "concept"), pairs)
        self._move("INSERT INTO covered SELECT named, concept FROM raw_covered", "raw_covered")
        return covered

    def read_people(self, patient: str) -> None:
        """Fill `person`, and keep the table `raw_person` with the patient of each person_id."""
        table = self._clinical.find("person")
        columns = {
            "person": table["person_id"],
            "sex": table["gender_concept_id"],
            "birth_year": table["year_of_birth"],
            "birth_month": table["month_of_birth"],
            "birth_day": table["day_of_birth"],
            patient: table[patient],
        }
        self._fill("raw_person", table, columns, [select(*columns.values())], patient=patient)
        self._require_casts("raw_person", table)
        # Both are checked: events are joined by person_id, and patients are told apart by the other name.
        [(people, patients, keys)] = self._rows(
            f"SELECT count(*), count(DISTINCT {patient}), count(DISTINCT person) FROM raw_person"  # noqa: S608
        )
        for name, different in ((patient, patients), ("person_id", keys)):
            if different < people:
                raise SourceError(
                    f"table person: {people - different} of {people} rows have a {name} that another row has. Each "
                    'patient must have one row: correct the table, or set patient = "person_id" in source.toml'
                )
        self._workspace.connection.execute(
            f"INSERT INTO person SELECT {patient}, coalesce({_cast('sex')}, 0), {_cast('birth_year')}, "  # noqa: S608
            f"{_cast('birth_month')}, {_cast('birth_day')}, NULL, false FROM raw_person"
        )
        self._workspace.connection.execute(f"ALTER TABLE raw_person RENAME {patient} TO patient")

    def read_deaths(self) -> Iterator[str]:
        """Enter the dead and their days of death. The earliest counts."""
        table = self._clinical.find("death")
        columns = {"person": table["person_id"], **self._times(table, "death")}
        self._fill("raw_death", table, columns, [select(*columns.values())])
        self._require_casts("raw_death", table)
        day = _day(columns)
        [(without_day, repeated, without_person)] = self._rows(
            f"SELECT count(*) FILTER ({day} IS NULL), count({day}) - count(DISTINCT d.person) FILTER "  # noqa: S608
            f"({day} IS NOT NULL), count(*) FILTER (p.person IS NULL) FROM raw_death d "
            f"LEFT JOIN raw_person p ON {_cast('p.person')} = {_cast('d.person')}"
        )
        self._move(
            f"UPDATE person SET died = d.day, dead = true FROM (SELECT p.patient, min({day}) AS day FROM raw_death d "  # noqa: S608
            f"JOIN raw_person p ON {_cast('p.person')} = {_cast('d.person')} GROUP BY p.patient) d "
            "WHERE d.patient = person.patient",
            "raw_death",
        )
        if repeated:
            yield f"death: {repeated:,} further rows of a person, of whom the earliest day counts"
        if without_day:
            yield f"death: {without_day:,} rows without a date"
        if without_person:
            yield f"death: {without_person:,} rows of a person who is not in table person left out"

    def read_events(
        self, domain: Domain, concepts: Mapping[int, bool], covered: Mapping[int, set[int]]
    ) -> Iterator[str]:
        """Add the events of a domain whose concepts are covered."""
        of = EVENT_TABLES[domain]
        table = self._clinical.find(of.name)
        concept = table[of.concept]
        columns = {"concept": concept, "person": table["person_id"], **self._times(table, of.starts)}
        if of.has_values:
            columns |= {
                "value": table["value_as_number"],
                "value_concept": table["value_as_concept_id"],
                "unit": table["unit_concept_id"],
            }
            if "unit_source_value" in table.columns:
                name = table["unit_source_value"]
                columns["unit_named"] = case((or_(name.is_(None), func.ltrim(name) == ""), 0), else_=1)
            if (operator := table.columns.get("operator_concept_id")) is not None:
                columns["limit_only"] = case((or_(operator.is_(None), operator.in_((0, _EQUALS))), 0), else_=1)
        parts = [self._matching(concept, chunk, concepts) for chunk in chunks(concepts)]
        selects = [select(*columns.values()).where(part) for part in parts]
        self._fill(f"raw_{domain}", table, columns, selects, covered=_by_first(chunks(concepts), covered))
        self._require_casts(f"raw_{domain}", table)
        yield from self._add(f"raw_{domain}", domain, columns, of.name)
        unmapped = self._count(
            select(func.count()).select_from(table.table).where(or_(concept.is_(None), concept == 0))
        )
        if unmapped:
            yield f"{of.name}: {unmapped:,} rows have no concept, or concept 0, and never count"

    def _matching(self, concept: ColumnElement[Any], chunk: Sequence[int], concepts: Mapping[int, bool]) -> Any:
        if not (ancestors := [each for each in chunk if concepts[each]]):
            return concept.in_(chunk)
        # On the server, as a concept may have tens of thousands of descendants.
        below = select_descendants(self._vocabulary.find("concept_ancestor"), ancestors)
        return or_(concept.in_(chunk), concept.in_(below))

    def _add(self, raw: str, domain: Domain, columns: Mapping[str, Any], name: str) -> Iterator[str]:
        day = _day(columns)
        [(without_day, without_person)] = self._rows(
            f"SELECT count(*) FILTER ({day} IS NULL), count(*) FILTER (p.person IS NULL) FROM {raw} d "  # noqa: S608
            f"LEFT JOIN raw_person p ON {_cast('p.person')} = {_cast('d.person')}"
        )
        cells = {
            each: _cast(each) if each in columns else "NULL" for each in ("time", "value", "value_concept", "unit")
        }
        if "unit_named" in columns:
            cells["unit"] = _UNIT.format(unit=_cast("unit"))
        limits = 0
        if "limit_only" in columns:
            cells["value"] = f"CASE WHEN limit_only = 0 THEN {cells['value']} END"
            [(limits,)] = self._rows(f"SELECT count(value) FROM {raw} WHERE limit_only = 1")  # noqa: S608
        self._move(
            f"INSERT INTO event SELECT '{domain}', p.patient, {_cast('concept')}, {day}, {cells['time']}, "  # noqa: S608
            f"{cells['value']}, {cells['value_concept']}, {cells['unit']} FROM {raw} d "
            f"JOIN raw_person p ON {_cast('p.person')} = {_cast('d.person')} WHERE {day} IS NOT NULL",
            raw,
        )
        if limits:
            yield f"{name}: {limits:,} values below or above a limit (such as <5) left out"
        if without_day:
            yield f"{name}: {without_day:,} rows without a date left out"
        if without_person:
            yield f"{name}: {without_person:,} rows of a person who is not in table person left out"

    def _fill(
        self,
        raw: str,
        table: CdmTable,
        columns: Mapping[str, Any],
        selects: Sequence[Select[Any]],
        *,
        patient: str | None = None,
        covered: Sequence[set[int]] = (),
    ) -> None:
        expected = sum(self._count(select(func.count()).select_from(each.subquery())) for each in selects)
        rows = self._fetched(selects, covered)

        def progress(rows: int, expected: int | None, table: str) -> None:
            self._progress(rows, expected, table.removeprefix("raw_"))

        try:
            self._workspace.fill(raw, tuple(columns), rows, progress, patient=patient, expected=expected)
        except SourceError as error:
            # Of the words for a hospital's own query.
            words = str(error).replace(f"table {raw}:", f"table {table.name}:").replace("in the query", "in a view")
            # Without the cause, whose traceback would show the words of a query.
            raise SourceError(words) from None

    def _fetched(self, selects: Sequence[Select[Any]], covered: Sequence[set[int]]) -> Iterator[Sequence[Any]]:
        for number, statement in enumerate(selects):
            with self._database.query(statement) as query:
                # An event of two parts is taken from the first one.
                if len(selects) == 1:
                    yield from query.rows
                else:
                    yield from (row for row in query.rows if int(row[0]) in covered[number])

    def _require_casts(self, raw: str, table: CdmTable) -> None:
        """Check that all cells are what their columns hold in OMOP. Raises SourceError with columns and counts."""
        checked = [name for name in self._workspace.types(raw) if name in _TYPES]
        faults = ", ".join(f"count({name}) - count({_cast(name)})" for name in checked)
        [(rows, *counts)] = self._rows(f"SELECT count(*), {faults} FROM {raw}")  # noqa: S608
        sentences = [
            f"table {table.name}: {count} of {rows} cells of the column with the {name.replace('_', ' ')} are no "
            f"{_KINDS.get(_TYPES[name], 'whole number')}. Correct them where they come from"
            for name, count in zip(checked, counts, strict=True)
            if count
        ]
        if sentences:
            raise SourceError("\n".join(sentences))

    def _times(self, table: CdmTable, starts: str) -> dict[str, ColumnElement[Any]]:
        """Return the columns of the day, and of the time where the table has it."""
        moment = table.columns.get(f"{starts}_datetime")
        if moment is not None and self._database.kind == "postgresql":
            # The clock of the session's time zone, as OMOP's times have none. Others have no such type, or keep it.
            moment = sql_cast(moment, DateTime)
        return {"day": table[f"{starts}_date"]} | ({} if moment is None else {"time": moment})

    def _count(self, statement: Select[Any]) -> int:
        with self._database.query(statement) as query:
            [(count,)] = query.rows
        return int(count)

    def _move(self, statement: str, raw: str) -> None:
        self._workspace.connection.execute(statement)
        self._workspace.connection.execute(f"DROP TABLE {raw}")

    def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        return self._workspace.connection.execute(statement).fetchall()


def _by_first(parts: Iterator[list[int]], covered: Mapping[int, set[int]]) -> list[set[int]]:
    """Return the concepts of each part that no part before it covers."""
    before, by_part = set[int](), list[set[int]]()
    for part in parts:
        by_part.append(set[int]().union(*(covered[concept] for concept in part)) - before)
        before |= by_part[-1]
    return by_part


def _cast(name: str) -> str:
    """Return a cell in its type, or NULL where it has none. SQLite keeps dates as text, and Oracle with a time."""
    match kind := _TYPES[name.rpartition(".")[2]]:
        case "DATE":
            day = f"TRY_CAST(TRY_CAST({name} AS TIMESTAMP) AS DATE)"
            # "infinity" is a date of PostgreSQL and DuckDB, but of no calendar.
            return f"CASE WHEN {day} BETWEEN DATE '0001-01-01' AND DATE '9999-12-31' THEN {day} END"
        case "BIGINT" | "INTEGER":
            whole = f"TRY_CAST({name} AS {kind})"
            # The cast alone rounds.
            return f"CASE WHEN {whole} = TRY_CAST({name} AS DOUBLE) THEN {whole} END"
        case _:
            return f"TRY_CAST({name} AS {kind})"


def _day(columns: Mapping[str, Any]) -> str:
    """Return the day of a row, or NULL where it has none or one that no patient has."""
    day = f"coalesce({_cast('day')}, TRY_CAST({_cast('time')} AS DATE))" if "time" in columns else _cast("day")
    return f"CASE WHEN year({day}) BETWEEN {YEARS[0]} AND {YEARS[1]} THEN {day} END"
