"""The origin of a file: a restart keeps it, and no copy has it."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.harness.windows.system import System

ORIGIN = """
import os
from pathlib import Path
from study_protocol.files.lock import FileLock
from study_protocol.files.origin import origin_of
lock = FileLock(Path({path!r}))
print(origin_of(lock.descriptor))
lock.release()
"""


def test_a_file_keeps_its_origin_until_a_copy_takes_its_place(tmp_path: Path, system: System) -> None:
    path, copy = tmp_path / "lock", tmp_path / "copy"
    read = ORIGIN.format(path=str(path))
    first = system.output(read)
    assert system.output(read) == first
    shutil.copy2(path, copy)
    assert system.output(ORIGIN.format(path=str(copy))) != first
    shutil.copy2(copy, path)
    assert system.output(read) != first, "put back over the file"
