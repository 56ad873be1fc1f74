"""The error of sources that cannot be read as they stand."""

from __future__ import annotations

from study_protocol.cells import DataError


class SourceError(DataError):
    """A source or its rows cannot be used. The text names tables, columns and counts, never a value."""
