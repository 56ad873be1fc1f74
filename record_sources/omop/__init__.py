"""Records from a database in OMOP's common data model 5.4."""

from record_sources.omop.source import OmopSource, omop_source

__all__ = ["OmopSource", "omop_source"]
