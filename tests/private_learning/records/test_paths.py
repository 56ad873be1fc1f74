"""Paths: what is missing is said in words, and hidden files are not the hospital's."""

from __future__ import annotations

from pathlib import Path

import pytest

from private_learning.records import DataError
from private_learning.records.paths import is_hidden, require_there, visible_paths


def test_a_readable_file_passes_and_a_folder_where_it_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x")
    require_there(path)
    require_there(tmp_path, folder_allowed=True)


def test_what_is_missing_is_said_without_a_path_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^gone\.csv: there is no such file or folder in /"):
        require_there(tmp_path / "gone.csv")
    with pytest.raises(DataError, match="is a folder"):
        require_there(tmp_path)
    (tmp_path / "empty.csv").touch()
    with pytest.raises(DataError, match=r"empty\.csv: the file is empty"):
        require_there(tmp_path / "empty.csv")


def test_a_file_that_this_user_may_not_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x")
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(DataError, match="may not read it"):
        require_there(path)


@pytest.mark.parametrize(
    ("path", "hidden"),
    [("a.csv", False), (".a.csv", True), ("._a.dcm", True), ("__MACOSX/a.png", True), (".git/a", True), ("b/a", False)],
)
def test_hidden_is_what_begins_with_a_dot_and_what_macos_adds(path: str, hidden: bool) -> None:
    assert is_hidden(Path(path)) is hidden


def test_visible_paths_are_sorted_and_below_only_on_request(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", "._a.csv", "wards/c.csv", ".cache/d.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [path.name for path in visible_paths(tmp_path)] == ["a.csv", "b.csv", "wards"]
    names = [str(path.relative_to(tmp_path)) for path in visible_paths(tmp_path, below=True)]
    assert names == ["a.csv", "b.csv", "wards", "wards/c.csv"]


def test_a_hidden_folder_above_hides_nothing(tmp_path: Path) -> None:
    folder = tmp_path / ".data"
    folder.mkdir()
    (folder / "a.csv").touch()
    assert visible_paths(folder) == [folder / "a.csv"]
