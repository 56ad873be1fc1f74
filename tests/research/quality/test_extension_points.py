"""The page of extension points lists what the tables hold, and every entry is described."""

from __future__ import annotations

import pytest

from private_learning.tasks.registry import BUILT_IN
from research.quality.extension_points import PAGE, Undescribed, described, first_sentence, page, tables


def test_the_page_is_what_the_tables_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_built_in_task_has_a_row() -> None:
    (tasks,) = (table for table in tables() if table.kind == "Tasks")
    assert [entry.name for entry in tasks.entries] == list(BUILT_IN)


def test_an_entry_without_a_docstring_of_its_own_is_refused() -> None:
    class Described:
        """A base. With a docstring."""

    class Silent(Described):
        pass

    assert described("base", Described).description == "A base."
    with pytest.raises(Undescribed, match="silent has no description"):
        described("silent", Silent)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("One.\nTwo. Three.", "One."),
        ("Two\n  lines | here. And more.", "Two lines \\| here."),
        ("No stop\n\nNext", "No stop"),
    ],
    ids=["two sentences", "two lines", "no stop"],
)
def test_the_first_sentence_stands_in_one_line(text: str, sentence: str) -> None:
    assert first_sentence("name", text) == sentence
