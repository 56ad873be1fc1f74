"""Text that one person writes and another one's terminal, page or log shows: no character of it is a command."""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated

from pydantic import AfterValidator, Field

# C0, DEL, C1, marks, overrides and isolates of direction, separators of lines and paragraphs, the byte order mark.
_UNPRINTABLE_RANGES = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff"
# Half a character, which JSON's escapes can name: it has no UTF-8, so that no text with it can be signed or stored.
_SURROGATES = r"\ud800-\udfff"
_UNPRINTABLE = re.compile(f"[{_UNPRINTABLE_RANGES}{_SURROGATES}]")
# Invisible, although Unicode counts them as letters, marks or symbols.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def require_plain(value: str) -> str:
    """Return the text itself.

    Raises:
        ValueError: it holds a control character, half a character, or one that turns the direction of writing.
    """
    if _UNPRINTABLE.search(value):
        raise ValueError("text holds no control character, not half a character, and none that turns its direction")
    return value


def visible(value: str) -> str:
    """Return the text with one blank a gap and in the form NFC.

    Raises:
        ValueError: a character of it is invisible, it begins with an accent, or none is a letter or a digit.
    """
    gaps = "".join(" " if unicodedata.category(character) == "Zs" else character for character in value)
    trimmed = unicodedata.normalize("NFC", " ".join(filter(None, gaps.split(" "))))
    for place, character in enumerate(trimmed, start=1):
        if _is_invisible(character):
            raise ValueError(
                f"has visible characters only, and number {place} of this one is U+{ord(character):04X}: leave it out"
            )
    if unicodedata.category(trimmed[:1] or "A")[0] == "M":
        raise ValueError("begins with a letter, and not with the accent of one")
    if not any(character.isalnum() for character in trimmed):
        raise ValueError("needs at least one letter or digit")
    return trimmed


def _is_invisible(character: str) -> bool:
    # C: control, format, surrogate, private and unassigned. Zl, Zp: ends of lines.
    category = unicodedata.category(character)
    return category[0] == "C" or category in ("Zl", "Zp") or _INVISIBLE.match(character) is not None


Text = Annotated[
    str, AfterValidator(require_plain), Field(json_schema_extra={"pattern": f"^[^{_UNPRINTABLE_RANGES}]*$"})
]
