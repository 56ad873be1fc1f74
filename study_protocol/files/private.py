"""Files and folders that their owner alone may use: by their mode, and on Windows by their access list.

There the system's own account and the administrators keep access, as root has it elsewhere. Files inherit from a
folder that is private.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

# The rights of the owner, the system and the administrators, by identifiers that are the same in every language.
_GRANTED = ("*S-1-3-4", "*S-1-5-18", "*S-1-5-32-544")
# The same as SDDL writes them, with the one who makes a file and the first administrator.
_PRIVATE = {"OW", "SY", "BA", "CO", "LA"}
# An entry of a list in SDDL: kind, flags, rights, two identifiers of objects, and whom it is for.
_ENTRY = re.compile(r"\(([A-Z]+);[^;()]*;[^;()]*;[^;()]*;[^;()]*;([^;()]+)")
_SID = re.compile(r"S-1-[0-9-]+")


def make_private(path: Path) -> None:
    """Make a file or folder its owner's alone. Raises OSError: this cannot be done there."""
    if os.name != "nt":
        path.chmod(0o700 if path.is_dir() else 0o600)
        return
    for arguments in _steps(path):
        _system_output("icacls", str(path), *arguments)
    if exposure(path) is not None:
        raise OSError(errno.EACCES, "its access list does not keep other users out: use a disk with NTFS", str(path))


def make_private_folder(folder: Path) -> None:
    """Make a folder that its owner alone may enter, with its parents. One that is there stays as it is.

    Raises:
        OSError: it cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        if not folder.is_dir():
            raise
        return
    if os.name == "nt":
        make_private(folder)


def open_private(path: Path, flags: int, mode: int = 0o600) -> int:
    """Return a descriptor of a file for bytes, as `os.open` does.

    A new file whose mode is for its owner alone is so from its first byte, on Windows too.

    Raises:
        OSError: it cannot be opened or made private.
    """
    # Without it, Windows would change line ends in what is written.
    descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0), mode)
    try:
        if os.name == "nt" and not mode & 0o077 and not _is_private_folder(path.parent.absolute()):
            make_private(path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def exposure(path: Path, others: int = 0o077) -> str | None:
    """Return how others may use a file or folder and what to do about it, or None if its owner alone may.

    Args:
        others: the bits of the mode that other users may not have. Windows has no counterpart.

    Raises:
        OSError: it cannot be looked at.
    """
    if os.name != "nt":
        status = path.stat()
        mode = status.st_mode & 0o777
        remedy = f"chmod {700 if path.is_dir() else 600} it"
        return f"(mode {mode:03o}): {remedy}" if mode & others else None
    if _users_in(path) <= _PRIVATE | {_own_sid()}:
        return None
    # In quotation marks, because PowerShell reads parentheses and stars.
    commands = (" ".join(f'"{word}"' for word in (str(path), *step)) for step in _steps(path))
    return "(access list): run " + ", then ".join(f"icacls {command}" for command in commands)


def _steps(path: Path) -> list[list[str]]:
    rights = "(OI)(CI)F" if path.is_dir() else "F"
    # First without all entries of its own. Those that it inherits go with the second step.
    return [["/reset"], ["/inheritance:r", "/grant:r", *(f"{sid}:{rights}" for sid in _GRANTED)]]


def _users_in(path: Path) -> set[str]:
    """Return the users whom an access list grants something."""
    with TemporaryDirectory() as folder:
        saved = Path(folder) / "list"
        _system_output("icacls", str(path), "/save", str(saved))
        text = saved.read_bytes().decode("utf-16-le", errors="replace")
    entries = _ENTRY.findall(text)
    # A file system without access lists, as of a memory stick, lets all users in.
    return {user for kind, user in entries if "D" not in kind} if entries else {"WD"}


@lru_cache(maxsize=1)
def _own_sid() -> str:
    match = _SID.search(_system_output("whoami", "/user", "/fo", "csv", "/nh"))
    return "" if match is None else match[0]


@lru_cache(maxsize=64)
def _is_private_folder(folder: Path) -> bool:
    return exposure(folder) is None


def _system_output(program: str, *arguments: str) -> str:
    # By its whole path: Windows looks into the working folder first.
    command = [str(Path(os.environ["SYSTEMROOT"], "System32", f"{program}.exe")), *arguments]
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False)  # noqa: S603
    if done.returncode:
        raise OSError(errno.EACCES, f"{program} could not read or change its access list", arguments[0])
    return done.stdout.decode("ascii", errors="replace")
