"""A source that cannot be read is refused as other records are."""

from __future__ import annotations

from pathlib import Path

import pytest

from record_sources.errors import SourceError
from record_sources.source_file.description import read_description
from study_protocol.cells import DataError


def test_a_caller_who_knows_faults_of_records_knows_those_of_sources(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file") as refused:
        read_description(tmp_path / "source.toml")
    assert type(refused.value) is SourceError
