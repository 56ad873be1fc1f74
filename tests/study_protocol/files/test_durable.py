"""A file is the old one or the new one, at every failure."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from study_protocol.files.durable import write_durably
from tests.harness.windows.system import System, windows_system


@pytest.mark.posix
def test_a_file_is_replaced_whole_and_for_the_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_durably(path, b"one, and longer")
    write_durably(path, b"two")
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    write_durably(tmp_path / "open", b"", mode=0o640)
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "open"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_after_a_failure_the_old_file_stands_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    path = tmp_path / "a"
    write_durably(path, b"old")

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="no space"):
        write_durably(path, b"new")
    monkeypatch.undo()
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"old"]


@pytest.mark.posix
def test_bytes_are_synced_before_the_rename_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def renamed(old: Path, new: Path) -> None:
        done.append("rename")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    write_durably(tmp_path / "a", b"x")
    assert done == ["file", "rename", "folder"]


def test_nothing_half_written_stays_where_somebody_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", stopped)
    with pytest.raises(KeyboardInterrupt):
        write_durably(tmp_path / "predictions.csv", b"of patients")
    assert list(tmp_path.iterdir()) == []


def test_files_are_replaced_moved_and_erased_on_every_system(tmp_path: Path, system: System) -> None:
    program = f"""
from pathlib import Path
from study_protocol.files.durable import erase, move_durably, unfinished_files, write_durably
folder = Path({str(tmp_path)!r})
write_durably(folder / "a", b"one, and longer")
write_durably(folder / "a", bytes([10, 13]))
write_durably(folder / "open", b"text", mode=0o644)
(folder / ".a.1.tmp").touch()
erase([*unfinished_files(folder), folder / "none"])
(folder / "tables").mkdir()
move_durably(folder / "tables", folder / "named")
move_durably(folder / "open", folder / "moved")
print(sorted(path.name for path in folder.iterdir()), (folder / "a").read_bytes())
"""
    assert system.output(program) == "['a', 'moved', 'named'] b'\\n\\r'\n"


READER = """
from pathlib import Path
from study_protocol.files import durable
path, waited = Path({path!r}), []
durable.write_durably(path, b"old")
reader = path.open("rb")
def wait(seconds):
    waited.append(seconds)
    if len(waited) == {attempts}:
        reader.close()
durable.time.sleep = wait
try:
    durable.write_durably(path, b"new")
except PermissionError:
    print("refused")
print(path.read_bytes(), len(list(path.parent.iterdir())), len(waited))
"""


def test_on_windows_a_reader_of_the_old_file_is_waited_for(tmp_path: Path) -> None:
    assert windows_system().output(READER.format(path=str(tmp_path / "a"), attempts=3)) == "b'new' 1 3\n"


def test_on_windows_a_reader_that_stays_leaves_the_old_file(tmp_path: Path) -> None:
    assert windows_system().output(READER.format(path=str(tmp_path / "a"), attempts=None)) == "refused\nb'old' 1 20\n"


def test_on_windows_a_new_name_is_synced_with_its_file(tmp_path: Path) -> None:
    program = f"""
import os
from pathlib import Path
from study_protocol.files import durable
done = []
fsync, replace = durable.os.fsync, durable.os.replace
durable.os.fsync = lambda descriptor: done.append("file") or fsync(descriptor)
durable.os.replace = lambda *paths: done.append("rename") or replace(*paths)
durable.write_durably(Path({str(tmp_path / "a")!r}), b"x")
print(done)
"""
    assert windows_system().output(program) == "['file', 'rename', 'file']\n"
