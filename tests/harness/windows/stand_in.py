"""Modules of Windows for the hospital's packages, on Linux. All other packages see Linux as it is.

imports     `fcntl`, `resource`, `pwd` and the like do not exist, `msvcrt` does
os          `os.name` is `nt`. No O_NOFOLLOW, getuid, fork or mode of a new file. A folder cannot be opened. A file that
            is opened without O_BINARY is one of text
locks       `msvcrt.locking` locks bytes at the place where the file is read next, for one handle, until it is closed
open files  one cannot be removed or replaced, nor a folder that has one renamed
icacls      `System32/icacls.exe` and `whoami.exe` are scripts that play access lists by modes

`WARDROUND_TEST_WINDOWS=1` runs pytest and all its processes so: `tests.harness.windows.asked`.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import fcntl
import glob
import os
import pathlib
import signal
import stat
import struct
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.harness import windows

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[2]
# The packages that a hospital runs. The coordinator, the tests and all libraries stay on Linux.
HOSPITAL = {
    *("accounting", "client_sdk", "private_learning", "record_sources", "simulation"),
    *("study_protocol", "synthesis", "wardround"),
}
_NO_MODULES = {"fcntl", "grp", "posix", "pwd", "resource", "syslog", "termios"}
_NO_NAMES_OF_OS = {
    *("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_SYNC", "chown", "fchmod", "fork", "getegid", "geteuid", "getgid"),
    *("getpgid", "getuid", "killpg", "mkfifo", "pread", "preadv", "pwrite", "pwritev", "register_at_fork"),
    *("sched_getaffinity", "setsid", "statvfs", "sync", "sysconf", "uname"),
}
_NO_NAMES_OF_SIGNAL = {"SIGALRM", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGUSR1", "SIGUSR2", "alarm", "pthread_sigmask"}
# Modules between a package of the hospital and the system.
_BETWEEN = {"contextlib", "os", "pathlib", "shutil", "tempfile", __name__}
_O_BINARY = 1 << 29


def environment() -> dict[str, str]:
    """Return the variables under which Python processes of a hospital run on the stand-in."""
    paths = [str(FOLDER), str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "SYSTEMROOT": str(FOLDER)}


def install() -> None:
    """Play Windows for the hospital's packages that are imported from now on."""
    if windows.is_played:
        return
    early = sorted(name for name in sys.modules if name.partition(".")[0] in HOSPITAL)
    if early:
        raise RuntimeError(f"{early[0]} was imported before the stand-in for Windows")
    windows.is_played = True
    original, modules = (
        builtins.__import__,
        {"os": _Os(), "signal": _Signal(), "ctypes": _Ctypes(), "msvcrt": _Msvcrt()},
    )

    def imported(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> ModuleType:
        importer, root = (globals or {}).get("__package__") or "", name.partition(".")[0]
        if level == 0 and importer.partition(".")[0] in HOSPITAL:
            if root in _NO_MODULES:
                raise ModuleNotFoundError(f"No module named {root!r}", name=root)
            if root in modules:
                return modules[root]
        return original(name, globals, locals, fromlist, level)

    builtins.__import__ = imported
    for name in ("remove", "rename", "replace", "unlink"):
        setattr(os, name, _refusing_open_files(getattr(os, name)))
    for name in ("mkdir", "touch"):
        setattr(pathlib.Path, name, _without_mode(getattr(pathlib.Path, name)))


class _Os(ModuleType):
    """`os` with what Windows has."""

    name, O_BINARY = "nt", _O_BINARY

    def __init__(self) -> None:
        super().__init__("os")
        self._of_text = set[int]()

    def __getattr__(self, name: str) -> Any:
        if name in _NO_NAMES_OF_OS:
            raise AttributeError(f"module 'os' has no attribute {name!r}")
        return getattr(os, name)

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        # A mode only says whether a file may be written.
        with _one_at_a_time():
            descriptor = os.open(path, flags & ~_O_BINARY, 0o666 if mode & stat.S_IWUSR else 0o444)
        (self._of_text.discard if flags & _O_BINARY else self._of_text.add)(descriptor)
        return descriptor

    def getlogin(self) -> str:
        # The login of whoami.exe, whatever terminal there is.
        return "mercy"

    def fdopen(self, descriptor: int, *arguments: Any, **options: Any) -> Any:
        if descriptor in self._of_text:
            raise AssertionError("line ends of what is written here would be changed: open it with O_BINARY")
        return os.fdopen(descriptor, *arguments, **options)

    def fsync(self, descriptor: int) -> None:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        os.fsync(descriptor)


class _Signal(ModuleType):
    def __init__(self) -> None:
        super().__init__("signal")

    def __getattr__(self, name: str) -> Any:
        if name in _NO_NAMES_OF_SIGNAL:
            raise AttributeError(f"module 'signal' has no attribute {name!r}")
        return getattr(signal, name)


class _Msvcrt(ModuleType):
    """Locks of bytes that a handle has: those of open file descriptions."""

    LK_UNLCK, LK_LOCK, LK_NBLCK, LK_RLCK, LK_NBRLCK = range(5)

    def __init__(self) -> None:
        super().__init__("msvcrt")

    def locking(self, descriptor: int, mode: int, nbytes: int) -> None:
        kind = fcntl.F_UNLCK if mode == self.LK_UNLCK else fcntl.F_WRLCK
        waits = mode in (self.LK_LOCK, self.LK_RLCK)
        start = os.lseek(descriptor, 0, os.SEEK_CUR)
        for attempt in range(10 if waits else 1):
            if attempt:
                time.sleep(1)
            try:
                lock = struct.pack("hhqqi4x", kind, os.SEEK_SET, start, nbytes, 0)
                fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, lock)
            except BlockingIOError:
                continue
            return
        raise OSError(errno.EDEADLK if waits else errno.EACCES, "Permission denied")

    def get_osfhandle(self, descriptor: int) -> int:
        return descriptor


class _Ctypes(ModuleType):
    """`ctypes` with the functions of Windows that are called."""

    def __init__(self) -> None:
        super().__init__("ctypes")

    def __getattr__(self, name: str) -> Any:
        return getattr(ctypes, name)

    def WinDLL(self, name: str, *, use_last_error: bool = False) -> Any:  # noqa: N802
        return _Kernel()

    def get_last_error(self) -> int:
        return errno.EINVAL


class _Kernel:
    def GetFileInformationByHandleEx(  # noqa: N802
        self, handle: ctypes.c_void_p, kind: int, reference: Any, size: int
    ) -> int:
        # FILE_BASIC_INFO: four times of 8 bytes, the attributes, and 4 bytes without meaning.
        assert (kind, size) == (0, 40)
        content = struct.pack("=qqqqI4x", 0, 0, 0, os.fstat(handle.value or 0).st_ctime_ns // 100, 0x80)
        ctypes.memmove(reference, content, size)
        return 1

    def GlobalMemoryStatusEx(self, reference: Any) -> int:  # noqa: N802
        # MEMORYSTATUSEX: its own length, the share in use, and seven sizes, the first of them of the memory.
        assert struct.unpack_from("=I", reference._obj)[0] == 64
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        ctypes.memmove(reference, struct.pack("=II7Q", 64, 50, total, *[0] * 6), 64)
        return 1


def _caller_is_of_the_hospital() -> bool:
    frame = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in HOSPITAL


@contextmanager
def _one_at_a_time() -> Generator[None]:
    """No process opens a file while another one removes it."""
    with open(__file__) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _refusing_open_files(function: Callable[..., None]) -> Callable[..., None]:
    def refusing(path: Any, *others: Any, **options: Any) -> None:
        if not _caller_is_of_the_hospital():
            function(path, *others, **options)
            return
        with _one_at_a_time():
            if any(_is_open(each, options.get("dir_fd")) for each in (path, *others)):
                raise PermissionError(errno.EACCES, "Another process uses the file", str(path))
            function(path, *others, **options)

    return refusing


def _is_open(path: Any, folder: int | None) -> bool:
    """Return whether a process has the file open, or a file below the folder."""
    try:
        wanted = os.stat(path, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    below = f"{os.path.realpath(path)}/"
    for place, status in _open_files():
        is_file_below = place.startswith(below) and not stat.S_ISDIR(status.st_mode)
        if is_file_below if stat.S_ISDIR(wanted.st_mode) else os.path.samestat(wanted, status):
            return True
    return False


def _open_files() -> Iterator[tuple[str, os.stat_result]]:
    for descriptor in glob.iglob("/proc/[0-9]*/fd/*"):
        # Processes end, and those of others cannot be looked at.
        with suppress(OSError):
            yield os.readlink(descriptor), os.stat(descriptor)


def _without_mode(function: Callable[..., None]) -> Callable[..., None]:
    def unmoded(path: Path, *arguments: Any, **options: Any) -> None:
        if _caller_is_of_the_hospital():
            arguments, options = arguments[1:], {name: each for name, each in options.items() if name != "mode"}
        function(path, *arguments, **options)

    return unmoded
