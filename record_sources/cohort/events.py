"""The events of a column or table: by concepts, and by days from the index event."""

from __future__ import annotations

# More than any two dates are apart.
ALL_DAYS = (-(1 << 30), 1 << 30)

COVERED = """(
    SELECT DISTINCT named, concept FROM staged_covered
    WHERE list_contains($named::BIGINT[], named) AND ($descendants OR named = concept)
)"""
"""Concepts that count for some named ones: parameters `named` and `descendants`."""

COUNTED_EVENTS = f"""
CREATE OR REPLACE TEMP TABLE counted_event AS
SELECT e.patient, e.day - s.index_day AS day, e.time, e.value, e.value_concept, e.unit
FROM staged_event e JOIN selected_patient s ON s.patient = e.patient
WHERE e.domain = $domain AND e.concept IN (SELECT concept FROM {COVERED})
    AND e.day - s.index_day BETWEEN $first AND $last
"""  # noqa: S608
"""Events of the cohort's patients that count: parameters of `COVERED`, `domain`, `first` and `last`."""
