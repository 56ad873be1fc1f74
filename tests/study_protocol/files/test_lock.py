"""One holder of a file, on every system: a killed one lets go, and two never hold it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from study_protocol.files.lock import FileInUse, FileLock
from tests.harness.windows.system import System, windows_system

HOLDER = """
from pathlib import Path
from study_protocol.files.lock import FileInUse, FileLock
try:
    lock = FileLock(Path({path!r}))
except FileInUse:
    print("in use", flush=True)
else:
    print("held", flush=True)
    input()
    lock.{end}()
    print(lock.path.exists(), flush=True)
"""


def test_a_held_file_is_refused_and_a_killed_holder_lets_go(tmp_path: Path, system: System) -> None:
    program = HOLDER.format(path=str(tmp_path / "lock"), end="release")
    holder = system.start(program)
    assert holder.stdout is not None
    assert holder.stdin is not None
    with holder.stdout, holder.stdin:
        assert holder.stdout.readline() == "held\n"
        assert system.output(program) == "in use\n"
        holder.kill()
        holder.wait()
    assert system.output(program, "\n") == "held\nTrue\n"


def test_a_lock_is_removed_with_its_file(tmp_path: Path, system: System) -> None:
    assert system.output(HOLDER.format(path=str(tmp_path / "lock"), end="remove"), "\n") == "held\nFalse\n"


RACER = """
import os
from pathlib import Path
from study_protocol.files.lock import FileInUse, FileLock
folder, taken = Path({folder!r}), 0
while taken < 20:
    try:
        lock = FileLock(folder / "lock")
    except (FileInUse, PermissionError):
        continue
    os.close(os.open(folder / "inside", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    (folder / "inside").unlink()
    taken += 1
    lock.remove() if taken % 2 else lock.release()
print("alone", flush=True)
"""


@pytest.mark.slow
def test_two_processes_are_never_inside_although_the_file_is_removed_and_made_anew(
    tmp_path: Path, system: System
) -> None:
    racers = [system.start(RACER.format(folder=str(tmp_path))) for _ in range(4)]
    assert [racer.communicate()[0] for racer in racers] == ["alone\n"] * 4


def test_a_second_lock_of_one_process_is_refused_too(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    with pytest.raises(FileInUse, match="another process holds"):
        FileLock(tmp_path / "lock")
    assert lock.is_held
    lock.release()
    assert not lock.is_held
    lock.release()
    FileLock(tmp_path / "lock").release()


@pytest.mark.posix
def test_a_file_system_whose_locks_exclude_no_process_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(os.listdir("/dev/fd"))
    monkeypatch.setattr("fcntl.flock", lambda *_: None)
    with pytest.raises(OSError, match="keeps no locks: use a local disk"):
        FileLock(tmp_path / "lock")
    monkeypatch.undo()
    assert len(os.listdir("/dev/fd")) == before
    FileLock(tmp_path / "lock").release()


@pytest.mark.posix
def test_an_error_of_the_file_system_is_no_other_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", fail)
    with pytest.raises(OSError, match="No locks available"):
        FileLock(tmp_path / "lock")


@pytest.mark.posix
def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        FileLock(tmp_path / "lock")
    assert not (tmp_path / "elsewhere").exists()


def test_windows_is_told_to_unlock_since_a_closed_file_may_stay_locked(tmp_path: Path) -> None:
    program = f"""
from pathlib import Path
from study_protocol.files import lock
done, locking = [], lock.msvcrt.locking
lock.msvcrt.locking = lambda descriptor, mode, count: done.append((mode, count)) or locking(descriptor, mode, count)
held = lock.FileLock(Path({str(tmp_path / "lock")!r}))
held.release()
print(done, lock.msvcrt.LK_NBLCK, lock.msvcrt.LK_UNLCK)
"""
    # Taken, refused to a second handle, and let go of.
    assert windows_system().output(program) == "[(2, 1), (2, 1), (0, 1)] 2 0\n"
