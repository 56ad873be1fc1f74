"""PDFs from data: words that can be broken, letters without a glyph, equal bytes."""

from __future__ import annotations

import io

import pytest
from pypdf import PdfReader

from study_protocol.documents.pdf import breakable, rendered
from tests.factories.certificates import text_of

SPACE = "\N{ZERO WIDTH SPACE}"


def card(title: str) -> dict[str, object]:
    """Data of the card's layout without a section."""
    return {
        "document_title": f"Model card: {title}",
        "title": title,
        "running": "Model card",
        "issued": {"year": 2026, "month": 11, "day": 23},
        "sections": [],
        "unshown_said": "Some characters are shown as their numbers.",
    }


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("", ""),
        ("short words stay", "short words stay"),
        ("x" * 24, "x" * 24),
        ("x" * 25, "x" * 24 + SPACE + "x"),
        ("a " + "y" * 50, "a " + "y" * 24 + SPACE + "y" * 24 + SPACE + "yy"),
    ],
)
def test_a_word_that_is_longer_than_a_line_has_places_to_break(text: str, broken: str) -> None:
    assert breakable(text) == broken
    assert breakable(text).replace(SPACE, "") == text


def test_a_letter_without_a_glyph_stands_as_its_number_and_the_page_says_so() -> None:
    shown, plain = (rendered("card", card(title), issued=0) for title in ("Sepsis \u4e2d", "Sepsis \u00e9"))
    assert "Sepsis [U+4E2D]" in text_of(shown)
    assert "shown as their numbers" in text_of(shown)
    assert "U+" not in text_of(plain)
    assert "shown as their numbers" not in text_of(plain)


def test_equal_data_give_equal_bytes_and_the_time_is_that_of_the_data() -> None:
    first, again = (rendered("card", card("Sepsis"), issued=0) for _ in range(2))
    assert first == again
    metadata = PdfReader(io.BytesIO(first)).metadata
    assert metadata is not None
    assert str(metadata["/CreationDate"]).startswith("D:20261123")


def test_a_title_is_text_and_never_source() -> None:
    assert "#panic" in text_of(rendered("card", card('#panic("no")'), issued=0))
