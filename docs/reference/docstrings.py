"""For the site: the columns in which our docstrings name parameters become a list, and their examples code."""

from __future__ import annotations

import re
from typing import Any

import griffe

# `name  what it is`: two spaces or more between.
_ENTRY = re.compile(r"^(?P<names>\*{0,2}[a-z_]\w*(?:, [a-z_]\w*)*) {2,}(?P<what>\S.*)$")


class Docstrings(griffe.Extension):
    """Rewrites the docstring of every object that the site shows."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called once for each object that was loaded."""
        if obj.docstring is not None:
            obj.docstring.value = "\n\n".join(map(_shown, re.split(r"\n{2,}", obj.docstring.value)))


def _shown(paragraph: str) -> str:
    if paragraph.startswith(">>> "):
        return f"```pycon\n{paragraph}\n```"
    return _listed(paragraph)


def _listed(paragraph: str) -> str:
    """With each `name  text` as an item of a list; lines that continue one stay with it."""
    lines: list[str] = []
    inside = False
    for line in paragraph.splitlines():
        found = _ENTRY.match(line)
        if found is not None:
            names = ", ".join(f"`{name.strip()}`" for name in found["names"].split(","))
            lines += [*([] if inside else [""]), f"- {names}: {found['what']}"]
        else:
            lines.append(line)
        inside = found is not None or (inside and line.startswith("  "))
    return "\n".join(lines)
