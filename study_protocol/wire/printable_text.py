"""Words of another machine as a terminal, a log or an error may show them: no character of them is a command."""

from __future__ import annotations

import re

# C0 but the line end, DEL, C1, marks, overrides and isolates of direction, separators of lines and paragraphs, halves
# of surrogate pairs, and the byte order mark.
_COMMANDS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def printable(text: str) -> str:
    """Return the text without characters that could move a cursor or turn a line's direction. Line ends stay.

    Each of them is replaced.
    """
    return _COMMANDS.sub("\N{REPLACEMENT CHARACTER}", text)


def escaped(document: str) -> str:
    """Return JSON with the same characters as escapes, which mean the same: there they stand in strings only."""
    return _COMMANDS.sub(lambda match: f"\\u{ord(match[0]):04x}", document)
