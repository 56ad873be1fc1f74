"""Is there something at a path that can be read?"""

from __future__ import annotations

import os
from pathlib import Path

from private_learning.records.records import DataError


def require_there(path: Path, *, folder_allowed: bool = False) -> None:
    """Raises DataError: there is nothing at the path, or not what is read there."""
    if not path.exists():
        raise DataError(f"{path.name}: there is no such file or folder in {path.parent.absolute()}")
    if path.is_dir() and not folder_allowed:
        raise DataError(f"{path.name} is a folder; name the file in it")
    if not os.access(path, os.R_OK):
        raise DataError(f"{path.name}: this user may not read it")
    if path.is_file() and path.stat().st_size == 0:
        raise DataError(f"{path.name}: the file is empty")


def is_hidden(path: Path) -> bool:
    """Does a part of it begin with a dot, or is it the folder that macOS adds to archives?"""
    return any(part.startswith(".") or part == "__MACOSX" for part in path.parts)


def visible_paths(folder: Path, *, below: bool = False) -> list[Path]:
    """What lies in a folder, and in those within it (below), in the order of the paths; hidden ones aside.

    Hidden ones are not the hospital's: macOS lays `._scan.dcm` beside a `scan.dcm` on foreign disks.
    """
    return sorted(
        path for path in (folder.rglob("*") if below else folder.iterdir()) if not is_hidden(path.relative_to(folder))
    )
