"""From staged patients and events to the tables of a cohort.

Days are whole days from the date of the index event. All that chooses among events is their content: never an id, the
order of rows, or another patient. Concepts, words and factors are bound parameters, and names are quoted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import duckdb

from record_sources.cohort.columns import CohortColumns
from record_sources.cohort.counts import CohortCounts
from record_sources.cohort.events import ALL_DAYS, COVERED
from record_sources.errors import SourceError
from record_sources.working.staging import YEARS
from record_sources.working.workspace import quoted
from study_protocol.study.cohort import CODE, DAY, PATIENT, PATIENTS, Cohort, CohortEvents

# The staging tables under names that no table of events can have: those hold no underscore.
_STAGED = {"person": "staged_person", "event": "staged_event", "covered": "staged_covered"}


def make_tables(connection: duckdb.DuckDBPyConnection, cohort: Cohort) -> CohortCounts:
    """Replace the staging tables by the table `patients` and the tables of events of the cohort.

    Args:
        connection: the working database with the tables of `record_sources.working.staging`, filled.

    Returns:
        how many patients there are, how many each rule left out, and how many events have no value.

    Raises:
        SourceError: the cohort has no patient, or a column meets a unit, a value or a sex that
            the settings do not list. The text names columns and counts.
    """
    for staged, name in _STAGED.items():
        connection.execute(f"ALTER TABLE {staged} RENAME TO {name}")
    counts = _select_patients(connection, cohort)
    if not counts.patients:
        raise SourceError(f"The cohort has no patient. {'. '.join(counts.in_words()[:-1])}.")
    for name, events in cohort.events.items():
        _make_events(connection, name, events)
    without_value = _make_patients(connection, cohort)
    for name in (*_STAGED.values(), "selected_patient"):
        connection.execute(f"DROP TABLE {name}")
    return replace(counts, without_value=without_value)


# NULL where the birth is not known, as any comparison with it.
_BORN_NEVER = f"""birth_year IS NOT NULL AND (birth_year NOT BETWEEN {YEARS[0]} AND {YEARS[1]}
    OR try_cast(concat_ws('-', birth_year, coalesce(birth_month, 1), coalesce(birth_day, 1)) AS DATE) IS NULL)"""
# An unknown month of birth counts as July and an unknown day as the first of the month, but nobody is born after an
# index event of the same year by that.
_SELECT = f"""
CREATE TABLE selected_patient AS
WITH indexed AS (
    SELECT e.patient, CASE WHEN $last THEN max(e.day) ELSE min(e.day) END AS index_day
    FROM staged_event e WHERE e.domain = $domain AND e.concept IN (SELECT concept FROM {COVERED}) GROUP BY e.patient
), aged AS (
    SELECT p.*, i.index_day, CASE WHEN NOT p.born_never THEN year(i.index_day) - p.birth_year - CASE
        WHEN p.birth_month IS NULL AND year(i.index_day) = p.birth_year THEN 0
        WHEN (month(i.index_day), day(i.index_day))
            < (coalesce(p.birth_month, 7), CASE WHEN p.birth_month IS NULL THEN 1 ELSE coalesce(p.birth_day, 1) END)
        THEN 1 ELSE 0 END END AS age
    FROM (SELECT *, {_BORN_NEVER} AS born_never FROM staged_person) p LEFT JOIN indexed i ON i.patient = p.patient
)
SELECT patient, sex, died, index_day, age, born_never, CASE
    WHEN index_day IS NULL THEN 'without_index_event'
    WHEN $of_death AND dead AND died IS NULL THEN 'died_unknown'
    WHEN died < index_day THEN 'died_before'
    WHEN age < 0 THEN 'born_after'
    WHEN $of_age AND born_never THEN 'without_age'
    WHEN NOT $bounded THEN ''
    WHEN age IS NULL THEN 'without_age'
    WHEN age NOT BETWEEN $youngest AND $oldest THEN 'outside_age'
    ELSE '' END AS left_out
FROM aged
"""  # noqa: S608


def _select_patients(connection: duckdb.DuckDBPyConnection, cohort: Cohort) -> CohortCounts:
    subjects = {column.of for column in cohort.columns.values()}
    event, ages = cohort.index_event, cohort.age or (0, 0)
    connection.execute(
        _SELECT,
        {
            "domain": event.of,
            "last": event.occurrence == "last",
            "named": list(event.concepts),
            "descendants": event.descendants,
            "bounded": cohort.age is not None,
            "of_age": cohort.age is not None or "age" in subjects,
            "of_death": "death" in subjects,
            "youngest": ages[0],
            "oldest": ages[1],
        },
    )
    counted_rules = connection.execute("SELECT left_out, count(*) FROM selected_patient GROUP BY left_out").fetchall()
    connection.execute("DELETE FROM selected_patient WHERE left_out <> ''")
    number = dict[str, int](counted_rules)
    people = sum(number.values())
    number.pop("", None)
    [(born_never,)] = connection.execute("SELECT count(*) FILTER (born_never) FROM selected_patient").fetchall()
    rules = ("without_index_event", "died_unknown", "died_before", "born_after", "without_age", "outside_age")
    return CohortCounts(people, *(number.get(rule, 0) for rule in rules), born_never=born_never)


def _make_events(connection: duckdb.DuckDBPyConnection, name: str, events: CohortEvents) -> None:
    """Make a table of events. One that several named concepts cover stands there once for each."""
    first, last = events.days or ALL_DAYS
    connection.execute(
        f"CREATE TABLE {quoted(name)} AS SELECT e.patient AS {PATIENT}, c.named::VARCHAR AS {CODE}, "  # noqa: S608
        f"e.day - s.index_day AS {DAY} FROM staged_event e JOIN selected_patient s ON s.patient = e.patient "
        f"JOIN {COVERED} c ON c.concept = e.concept "
        "WHERE e.domain = $domain AND e.day - s.index_day BETWEEN $first AND $last",
        {
            "named": list(events.concepts),
            "descendants": events.descendants,
            "domain": events.of,
            "first": first,
            "last": last,
        },
    )


def _make_patients(connection: duckdb.DuckDBPyConnection, cohort: Cohort) -> dict[str, tuple[int, int]]:
    # Settings have no order of columns once they were signed.
    names = sorted(cohort.columns)
    columns = CohortColumns(connection)
    types = ", ".join(f"{quoted(name)} {columns.type_of(cohort.columns[name])}" for name in names)
    connection.execute(f"CREATE TABLE {PATIENTS} ({PATIENT} VARCHAR, {types})")
    connection.execute(f"INSERT INTO {PATIENTS} ({PATIENT}) SELECT patient FROM selected_patient")  # noqa: S608
    _refuse(fault for name in names for fault in columns.fill(name, cohort.columns[name]))
    return columns.without_value


def _refuse(faults: Iterable[str]) -> None:
    # All columns are computed first, so that one error names all faults.
    each: list[Any] = list(faults)
    if each:
        raise SourceError("\n".join(each))
