"""The folder of a snapshot without its name yet: for one process, and cleared after a kill."""

from __future__ import annotations

from pathlib import Path

import pytest

from record_sources.errors import SourceError
from record_sources.snapshot.part_folder import PartFolder
from record_sources.snapshot.preparation import finish_interrupted, prepare
from record_sources.source_file.description import SourceDescription


def test_two_processes_do_not_take_one_name(tmp_path: Path, description: SourceDescription) -> None:
    prepared = prepare(description, None, tmp_path / "icu")
    with pytest.raises(SourceError, match="another process takes the snapshot icu"):
        prepare(description, None, tmp_path / "icu")
    prepared.discard()
    prepare(description, None, tmp_path / "icu").discard()


def test_what_a_killed_process_left_is_removed(tmp_path: Path, description: SourceDescription) -> None:
    remnant = tmp_path / ".icu.part" / "written"
    remnant.mkdir(parents=True)
    (remnant / "icu.parquet").write_text("half")
    assert prepare(description, None, tmp_path / "icu").publish().is_dir()
    assert not remnant.exists()


def test_another_snapshot_is_not_finished_in_its_place(tmp_path: Path, description: SourceDescription) -> None:
    prepared = prepare(description, None, tmp_path / "icu")
    prepared.part.close()
    other = prepared.record.model_copy(update={"files": {"patients.parquet": "0" * 64}})
    assert not finish_interrupted(tmp_path / "icu", other)
    assert finish_interrupted(tmp_path / "icu", prepared.record)
    assert PartFolder.reopen(tmp_path, "icu") is None
