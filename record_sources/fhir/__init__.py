"""FHIR R4 bulk exports: NDJSON files whose codes become OMOP concepts by the hospital's vocabulary files."""
