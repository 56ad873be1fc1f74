"""The words of another machine on this one's terminal."""

from __future__ import annotations

import json
import unicodedata

import pytest

from study_protocol.wire.printable_text import escaped, printable


def test_nothing_that_a_terminal_obeys_is_left() -> None:
    turning = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    for number in range(0x110000):
        character = chr(number)
        kind, direction = unicodedata.category(character), unicodedata.bidirectional(character)
        obeyed = (kind in ("Cc", "Cs", "Zl", "Zp") and character != "\n") or direction in turning
        if obeyed:
            assert printable(f"a{character}b") == "a\N{REPLACEMENT CHARACTER}b"
            if kind != "Cs":
                assert json.loads(escaped(json.dumps(f"a{character}b", ensure_ascii=False))) == f"a{character}b"


@pytest.mark.parametrize(
    "text",
    ["", "two\nlines", "Zoë – 王 – حسن", "क्\u200dष", "[bold]brackets[/]"],
    ids=["empty", "lines", "scripts", "joiner", "brackets"],
)
def test_what_people_write_stays(text: str) -> None:
    assert (printable(text), escaped(text)) == (text, text)
