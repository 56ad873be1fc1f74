"""Checks and listings of paths."""

from __future__ import annotations

import os
from pathlib import Path

from private_learning.records.records import DataError


def require_there(path: Path, *, folder_allowed: bool = False) -> None:
    """Require a readable file, or a folder if allowed. Raises DataError: the path has none."""
    if not path.exists():
        raise DataError(f"{path.name}: there is no such file or folder in {path.parent.absolute()}")
    if path.is_dir() and not folder_allowed:
        raise DataError(f"{path.name} is a folder. Name the file in it")
    if not os.access(path, os.R_OK):
        raise DataError(f"{path.name}: this user may not read it")
    if path.is_file() and path.stat().st_size == 0:
        raise DataError(f"{path.name}: the file is empty")


def is_hidden(path: Path) -> bool:
    """Return whether a part of the path begins with a dot, or is the folder that macOS adds to archives."""
    return any(part.startswith(".") or part == "__MACOSX" for part in path.parts)


def visible_paths(folder: Path, *, below: bool = False) -> list[Path]:
    """Return the visible paths in a folder, sorted. below: also those in its sub-folders.

    Hidden files are not the hospital's: macOS puts `._scan.dcm` beside `scan.dcm` on foreign disks.
    """
    return sorted(
        path for path in (folder.rglob("*") if below else folder.iterdir()) if not is_hidden(path.relative_to(folder))
    )
