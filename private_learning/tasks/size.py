"""How large a task's model is, found out without making it: a few bytes of parameters can ask for any amount."""

from __future__ import annotations

import os

import torch

from private_learning.errors import ConfigurationError
from private_learning.tasks.on_module import ModuleFeatures
from private_learning.tasks.task import Task

OF_ITS_OWN = 1 << 30
"""Bytes of numbers that a task may make by itself, such as tables of constants, beside those out of files."""


def model_bytes(task: Task) -> int | None:
    """Return the bytes of all parameters and buffers of the task's model, without taking memory for them.

    None: only making the model would tell. Its task is then installed code that does not build on the meta device.
    """
    try:
        with torch.device("meta"):
            # What its module has, its own code or file decides.
            model = task.linear(task.parameters.features) if isinstance(task, ModuleFeatures) else task.model()
    # Installed code may raise any error there: making the model for training reports it.
    except Exception:  # noqa: BLE001
        return None
    return sum(tensor.numel() * tensor.itemsize for tensor in (*model.parameters(), *model.buffers()))


def require_size(task: Task, max_bytes: int, owner: str) -> None:
    """Refuse a model of more than `max_bytes` bytes. owner: its origin, to begin a sentence.

    Raises:
        ConfigurationError: it is larger.
    """
    size = model_bytes(task)
    if size is not None and size > max_bytes:
        raise ConfigurationError(
            f"{owner} asks for a model of {size / (1 << 30):,.1f} GiB, and at most {max_bytes / (1 << 30):,.1f} GiB "
            "are possible here: the task's parameters are for another model, or were written to exhaust this machine"
        )


if os.name == "nt":
    import ctypes

    class _MemoryStatus(ctypes.Structure):
        _fields_ = (
            *((name, ctypes.c_uint32) for name in ("length", "percent_used")),
            *((name, ctypes.c_uint64) for name in ("total", "free", "commit_limit", "commit_free")),
            *((name, ctypes.c_uint64) for name in ("virtual_total", "virtual_free", "virtual_extended")),
        )

    def memory_of_machine() -> int:
        """Return the bytes of memory that this machine has."""
        status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
        if not ctypes.WinDLL("kernel32").GlobalMemoryStatusEx(ctypes.byref(status)):
            raise OSError("Windows does not say how much memory this machine has")
        return status.total
else:

    def memory_of_machine() -> int:
        """Return the bytes of memory that this machine has."""
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
