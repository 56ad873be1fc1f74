"""Whether a file is the one that was made here, or was copied or put back."""

from __future__ import annotations

import os

if os.name == "nt":
    import ctypes
    import msvcrt

    class _BasicInformation(ctypes.Structure):
        _fields_ = (
            *((name, ctypes.c_int64) for name in ("created", "accessed", "written", "changed")),
            ("attributes", ctypes.c_uint32),
        )

    def _change_time(descriptor: int) -> int:
        # Python's `st_ctime` is the time of creation there, which tools set.
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        basic, handle = _BasicInformation(), ctypes.c_void_p(msvcrt.get_osfhandle(descriptor))
        if not kernel.GetFileInformationByHandleEx(handle, 0, ctypes.byref(basic), ctypes.sizeof(basic)):
            raise OSError(ctypes.get_last_error(), "the time of the file's last change cannot be read")
        return basic.changed
else:

    def _change_time(descriptor: int) -> int:
        return os.fstat(descriptor).st_ctime_ns


def origin_of(descriptor: int) -> str:
    """Return a text that a copy of the open file does not have, nor the file after a copy was written over it.

    It holds the file's number and the time of its last change, which no tool sets. A file that is only opened and
    locked keeps it.

    Raises:
        OSError: the system does not tell.
    """
    return f"{os.fstat(descriptor).st_ino} {_change_time(descriptor)}"
