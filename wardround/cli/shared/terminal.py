"""Standard output and standard error as this project writes to them: no character and no closed pipe ends a command."""

from __future__ import annotations

import codecs
import io
import os
import select
import sys

_HANDLER = "wardround-escapes"


def escape_what_cannot_be_shown() -> None:
    """A character that the terminal's encoding has not is written as JSON and TOML write it: \\u03b5 for ε.

    Windows' cp1252 has no ε, no ≤ and no frames; LANG=C has ASCII alone.
    """
    codecs.register_error(_HANDLER, _escaped)
    for stream in (sys.stdout, sys.stderr):
        # What a program puts in their place, as a test does, keeps its own way.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    # By halves of pairs where it has to be: JSON knows no other form.
    halves = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    codes = [halves[place : place + 2].hex() for place in range(0, len(halves), 2)]
    return "".join(f"\\u{code}" for code in codes), error.end


def output_is_closed() -> bool:
    """Whether nobody reads standard output any more, as after `| head`."""
    if sys.stdout is None:
        return False
    try:
        sys.stdout.flush()
        descriptor = sys.stdout.fileno()
    except BrokenPipeError:
        return True
    except (OSError, ValueError):
        return False
    # What failed to be written may have been dropped: then flushing says nothing.
    if not hasattr(select, "poll"):
        return False
    poller = select.poll()
    poller.register(descriptor, 0)
    return any(event & select.POLLERR for _, event in poller.poll(0))


def close_quietly() -> None:
    """What is still to be written goes nowhere, so that the interpreter does not complain of it when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
