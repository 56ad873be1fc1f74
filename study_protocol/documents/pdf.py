"""PDFs by typst, from data and a layout of this package. Texts of others are never source, and no network is used.

Equal data give equal bytes. The fonts are typst's own or those of a named folder, and the time is in the data.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

_LAYOUT = Path(__file__).with_name("layout")
# PDF/UA-1: read aloud in order, with a title, a language and a text for every drawing.
_STANDARD = "ua-1"
_WORD = 24
# A place where a line may break, inside of words that would be longer than it.
_BREAK = "\N{ZERO WIDTH SPACE}"


def rendered(layout: str, data: Mapping[str, Any], *, issued: int, fonts: Path | None = None) -> bytes:
    """Return the PDF of one layout.

    Args:
        issued: seconds since the epoch, stated as the file's own time.

    Raises:
        ModuleNotFoundError: typst is missing, which the extra `documents` brings.
    """
    return _compiled(_LAYOUT / f"{layout}.typ", _as_input(data, fonts), issued, fonts)


def _compiled(source: Path, inputs: dict[str, str], issued: int, fonts: Path | None) -> bytes:
    # Large, and an extra: loaded when a PDF is made.
    import typst

    return typst.compile(
        source,
        root=_LAYOUT,
        sys_inputs=inputs,
        font_paths=[] if fonts is None else [fonts],
        ignore_system_fonts=True,
        format="pdf",
        timestamp=issued,
        pdf_standards=[_STANDARD],
    )


def _as_input(data: Mapping[str, Any], fonts: Path | None) -> dict[str, str]:
    unshown = {letter for letter in set(_letters(data)) if not letter.isascii() and not _has_glyph(letter, fonts)}
    clear = cast("dict[str, Any]", _in_glyphs(data, unshown))
    return {"data": json.dumps({**clear, "unshown": bool(unshown)}, ensure_ascii=False)}


def _letters(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        # Attachments and drawings are no text.
        inner = [part for name, part in cast("Mapping[str, Any]", value).items() if name not in ("json", "qr")]
        return "".join(map(_letters, inner))
    return "".join(map(_letters, cast("Sequence[Any]", value))) if isinstance(value, list | tuple) else ""


def _in_glyphs(value: Any, unshown: set[str]) -> Any:
    """Return the data with every character that has no glyph named by its number, as Unicode writes it."""
    if isinstance(value, str):
        return "".join(f"[U+{ord(letter):04X}]" if letter in unshown else letter for letter in value)
    if isinstance(value, Mapping):
        mapping = cast("Mapping[str, Any]", value)
        return {name: part if name in ("json", "qr") else _in_glyphs(part, unshown) for name, part in mapping.items()}
    if isinstance(value, list | tuple):
        return [_in_glyphs(part, unshown) for part in cast("Sequence[Any]", value)]
    return value


@functools.lru_cache(maxsize=4096)
def _has_glyph(letter: str, fonts: Path | None) -> bool:
    import typst

    try:
        _compiled(_LAYOUT / "glyph.typ", {"letter": letter}, 0, fonts)
    except typst.TypstError:
        return False
    return True


def breakable(text: str) -> str:
    """Return the text with places to break inside of words that are longer than a line could be."""
    words = text.split(" ")
    return " ".join(_BREAK.join(word[i : i + _WORD] for i in range(0, len(word), _WORD)) for word in words)
