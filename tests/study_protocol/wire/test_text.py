"""Text that is only text."""

from __future__ import annotations

import unicodedata

import pytest

from study_protocol.wire.text import require_plain, visible


def test_every_control_character_and_every_turn_of_direction_is_refused() -> None:
    turning = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    found = 0
    for number in [*range(0xD800), *range(0xE000, 0x110000)]:
        character = chr(number)
        kind, direction = unicodedata.category(character), unicodedata.bidirectional(character)
        if kind in ("Cc", "Zl", "Zp") or direction in turning:
            found += 1
            with pytest.raises(ValueError, match="control"):
                require_plain(f"a{character}b")
    assert found == 65 + 2 + 9


@pytest.mark.parametrize("half", [0xD800, 0xDBFF, 0xDC00, 0xDFFF], ids=hex)
def test_half_a_character_is_refused(half: int) -> None:
    with pytest.raises(ValueError, match="half a character"):
        require_plain(f"a{chr(half)}b")


@pytest.mark.parametrize(
    "text", ["", "Zoë – 王 – حسن – नमस्ते", "क्\u200dष", "👩\u200d⚕️"], ids=["empty", "scripts", "joiner", "emoji"]
)
def test_what_people_write_is_text(text: str) -> None:
    assert require_plain(text) == text


def test_blanks_of_every_kind_are_one_plain_blank_and_no_accent_begins() -> None:
    assert visible("\u00a0Ada \u2003 Lovelace\u3000") == "Ada Lovelace"
    for wrong, words in (("\u0301Ada", "accent"), ("\u3000", "letter or digit"), ("A\u202eb", "U.202E")):
        with pytest.raises(ValueError, match=words):
            visible(wrong)
