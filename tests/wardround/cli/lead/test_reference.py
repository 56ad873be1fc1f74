"""docs/settings.md says what the models say."""

from __future__ import annotations

import re
from pathlib import Path

from wardround.cli.lead.reference import page

PAGE = Path(__file__).parents[4] / "docs" / "settings.md"


def test_the_page_is_as_the_models_are_now() -> None:
    text = PAGE.read_text()
    assert page(text) == text
    # Written anew from nothing, so that an empty page does not equal itself.
    emptied = re.sub(r"(<!-- (?:study|policy) -->\n).*?(<!-- end -->)", r"\1\2", text, flags=re.S)
    assert len(emptied) < len(text) / 2
    assert page(emptied) == text
    assert "| `noise_multiplier` | number above 0 | required |" in text
