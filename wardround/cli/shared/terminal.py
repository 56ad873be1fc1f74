"""Standard output and standard error that no character and no closed pipe can break."""

from __future__ import annotations

import codecs
import io
import os
import select
import sys

_HANDLER = "wardround-escapes"


def escape_what_cannot_be_shown() -> None:
    """Write characters that the terminal's encoding lacks as JSON and TOML do: \\u03b5 for ε.

    Windows' cp1252 has no ε, no ≤ and no frames. LANG=C has only ASCII.
    """
    codecs.register_error(_HANDLER, _escaped)
    for stream in (sys.stdout, sys.stderr):
        # A replacement of the stream, such as a test's, keeps its own handler.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    # As surrogate pairs where needed: JSON has no other form.
    halves = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    codes = [halves[place : place + 2].hex() for place in range(0, len(halves), 2)]
    return "".join(f"\\u{code}" for code in codes), error.end


def output_is_closed() -> bool:
    """Return whether the reader of standard output has closed the pipe, as after `| head`."""
    if sys.stdout is None:
        return False
    try:
        sys.stdout.flush()
        descriptor = sys.stdout.fileno()
    except BrokenPipeError:
        return True
    except (OSError, ValueError):
        return False
    # Text that could not be written may have been dropped. Then flushing raises no error.
    if not hasattr(select, "poll"):
        return False
    poller = select.poll()
    poller.register(descriptor, 0)
    return any(event & select.POLLERR for _, event in poller.poll(0))


def close_quietly() -> None:
    """Drop all text that is not written yet, so that the interpreter does not report it at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
