"""The tables of the working database in which a cohort's patients and events are gathered.

OMOP databases and FHIR files fill the same tables, and the cohort's columns are computed from them by one piece of
code. So the same patients give the same bytes, whichever source they came from.

    person   one row for each patient. `patient` is the identifier as text, `sex` an OMOP gender concept or 0, the day
             of birth perhaps without month and day, `died` the day of death. A `dead` patient without it died on a day
             that is not known. A birth that is no date keeps its parts, or has the year 0
    event    one row for each visit, condition, drug, measurement or observation. `value`, `value_concept`
             and `unit` are of measurements and observations, as they are stored
    covered  one row for each concept that a concept of the settings covers: itself, and its descendants where they
             count
"""

from __future__ import annotations

YEARS = (1800, 2200)
"""First and last year of patients. A day beyond them, such as 9999-12-31, is no date, whatever the clock says."""

TABLES = """
CREATE TABLE person (
    patient VARCHAR NOT NULL, sex BIGINT NOT NULL, birth_year INTEGER, birth_month INTEGER, birth_day INTEGER,
    died DATE, dead BOOLEAN NOT NULL
);
CREATE TABLE event (
    domain VARCHAR NOT NULL, patient VARCHAR NOT NULL, concept BIGINT NOT NULL, day DATE NOT NULL, time TIMESTAMP,
    value DOUBLE, value_concept BIGINT, unit BIGINT
);
CREATE TABLE covered (named BIGINT NOT NULL, concept BIGINT NOT NULL);
"""
