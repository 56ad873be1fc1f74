"""The tables of a cohort, computed from staged patients and events of an OMOP database or of FHIR files."""

from record_sources.cohort.counts import CohortCounts
from record_sources.cohort.making import make_tables

__all__ = ["CohortCounts", "make_tables"]
