"""FHIR R4 bulk exports: NDJSON files whose codes become OMOP concepts by the hospital's vocabulary files."""

from __future__ import annotations

from record_sources.errors import SourceError
from record_sources.fhir.source import CohortSource
from record_sources.fhir.view_source import views_source
from record_sources.source_file.description import FhirDescription, SourceDescription
from record_sources.sources import RecordSource
from study_protocol.study.cohort import Cohort


def fhir_source(description: SourceDescription, cohort: Cohort | None) -> RecordSource:
    """Return the source of a description of kind fhir.

    Raises:
        SourceError: it names a vocabulary, and the study has no cohort.
    """
    if not isinstance(description, FhirDescription):
        raise TypeError("a description of kind fhir is expected")
    if description.views is not None:
        return views_source(description, description.views)
    if description.vocabulary is None or cohort is None:
        raise SourceError(
            "FHIR files become a table by the section [cohort] of the study's settings. Name a settings file that has "
            "one with --settings, or set views in place of vocabulary"
        )
    return CohortSource(description.folder, description.vocabulary, cohort)
