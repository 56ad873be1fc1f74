"""Text that one person writes and another one's terminal, page or log shows: no character of it is a command."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

# C0, DEL, C1, marks, overrides and isolates of direction, separators of lines and paragraphs, the byte order mark.
_UNPRINTABLE_RANGES = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff"
# Half a character, which JSON's escapes can name: it has no UTF-8, so that no text with it can be signed or stored.
_SURROGATES = r"\ud800-\udfff"
_UNPRINTABLE = re.compile(f"[{_UNPRINTABLE_RANGES}{_SURROGATES}]")


def require_plain(value: str) -> str:
    """Return the text itself.

    Raises:
        ValueError: it holds a control character, half a character, or one that turns the direction of writing.
    """
    if _UNPRINTABLE.search(value):
        raise ValueError("text holds no control character, not half a character, and none that turns its direction")
    return value


Text = Annotated[
    str, AfterValidator(require_plain), Field(json_schema_extra={"pattern": f"^[^{_UNPRINTABLE_RANGES}]*$"})
]
