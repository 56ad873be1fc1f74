"""Files that a command is told to write: what keeps them from being written is said before the work is done."""

from __future__ import annotations

import os
from pathlib import Path

# Of most disks 255 bytes; `durable.replacing` puts a dot, a process number and .tmp around it.
_LONGEST_NAME = 255 - len("..1234567890.tmp")


def require_writable(path: Path | None, *, replaces: bool = False) -> None:
    """Nothing where no file is named.

    replaces  whether a file that is there is replaced; a folder never is

    Raises:
        OSError: of the kind that fits; the text names the file, what is in the way and what to do.
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
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(f"{path}: {path.parent} is a file, and no folder")
        if not folder.is_dir():
            raise FileNotFoundError(f"{path}: there is no folder {path.parent}: make it first, or name another one")
    except PermissionError as error:
        raise PermissionError(f"{path}: {path.parent} cannot be looked into: name another folder") from error
    # Also for what replaces a file: it is written beside that one and renamed.
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(
            f"{path}: nothing can be written into {path.parent}: name another folder, or change its rights"
        )
