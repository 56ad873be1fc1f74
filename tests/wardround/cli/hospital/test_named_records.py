"""Records that a command names: a snapshot is found by its name, and an old one is used with a warning."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.factories.snapshots import QUERY, frozen, recorded
from wardround.cli.hospital.named_records import named_records


def test_a_snapshot_that_is_older_than_its_query_is_used_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kept").mkdir()
    snapshot = recorded(tmp_path, frozen(tmp_path / "kept", "icu-1"))
    assert named_records(Path("icu-1"), None, tmp_path).path == snapshot.path
    assert capsys.readouterr().err == ""
    Path(*snapshot.query_files).write_text(QUERY + " WHERE age > 18")
    monkeypatch.setenv("WARDROUND_CLIENT_HOME", str(tmp_path))
    assert named_records(Path("icu-1"), None).snapshot == snapshot
    assert "icu-1.sql has changed" in capsys.readouterr().err
