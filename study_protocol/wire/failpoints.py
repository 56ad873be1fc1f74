"""Named places where a process can be told to die, so that tests can kill it exactly there.

`WARDROUND_FAILPOINT=name[:nth]` ends the process at the nth passage (the first if unsaid), after writing the name to
the file `WARDROUND_FAILPOINT_LOG`. Unset, a failpoint has no effect.
"""

from __future__ import annotations

import os
from collections.abc import Callable

EXIT_CODE = 86

_names: set[str] = set()
_passages: dict[str, int] = {}


def register(*names: str) -> None:
    """Declare failpoints, so that a test can walk through every one of them."""
    _names.update(names)


def names(prefix: str = "") -> list[str]:
    """Return the failpoints declared so far whose name starts with `prefix`."""
    return sorted(name for name in _names if name.startswith(prefix))


def failpoint(name: str) -> None:
    """Die here if the environment, or its replacement, says so.

    Raises:
        ValueError: the name is not registered, so that a test could never find it.
    """
    if name not in _names:
        raise ValueError(f"failpoint {name!r} is not registered")
    passage(name)


def follow_environment(name: str) -> None:
    """Die at the passage that the environment names."""
    failpoint, _, nth = os.environ.get("WARDROUND_FAILPOINT", "").partition(":")
    if failpoint != name:
        return
    _passages[name] = _passages.get(name, 0) + 1
    if _passages[name] == int(nth or 1):
        _die(name)


def _die(name: str) -> None:
    log = os.environ.get("WARDROUND_FAILPOINT_LOG")
    if log:
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"{name}\n")
            file.flush()
            os.fsync(file.fileno())
    # Not SystemExit: no handler, no finally block and no buffer may run, as when the power goes.
    os._exit(EXIT_CODE)


# Called at every passage. A simulation of many deaths in one process puts its own choice here.
passage: Callable[[str], None] = follow_environment
