"""Checks of output files before the work of a command begins, and their names in errors of writing."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

# Most disks allow 255 bytes. `durable.replacing` puts a dot, a process number and .tmp around the name.
_LONGEST_NAME = 255 - len("..1234567890.tmp")


def require_writable(path: Path | None, *, replaces: bool = False) -> None:
    """Require that the file can be written. None: no file is named, and the check passes.

    replaces  an existing file is replaced. A folder never is

    Raises:
        OSError: of the kind that fits. The text names the file, the obstacle and the remedy.
    """
    if path is None:
        return
    if len(os.fsencode(path.name)) > _LONGEST_NAME:
        raise OSError(f"{path}: the name is too long")
    try:
        exists = path.is_symlink() or path.exists()
        directory, folder = path.is_dir(), path.absolute().parent
        if directory:
            raise IsADirectoryError(f"{path} is a folder: name a file in it")
        if exists and not replaces:
            raise FileExistsError(
                f"{path} exists already, and is not overwritten: choose another name, or move it away"
            )
        if not folder.is_dir():
            raise _no_folder(path, is_file=folder.exists())
    except PermissionError as error:
        raise PermissionError(f"{path}: {path.parent} cannot be looked into: name another folder") from error
    # This is needed to replace a file, too: the new one is written beside it and renamed.
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(
            f"{path}: no file can be written into {path.parent}: name another folder, or change its rights"
        )


def _no_folder(path: Path, *, is_file: bool) -> OSError:
    if is_file:
        return NotADirectoryError(f"{path}: {path.parent} is a file, and no folder")
    return FileNotFoundError(f"{path}: there is no folder {path.parent}: make it first, or name another one")


@contextmanager
def naming(path: Path) -> Generator[None]:
    """Add the path to errors of writing, because the error of a full disk has none."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
