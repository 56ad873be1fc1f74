"""Notes of a card, and how it ends where it cannot be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from client_sdk.errors import ConfigurationError
from study_protocol.documents.card import TO_WRITE
from tests.factories.commands import Run
from wardround.cli.lead.card import read_notes


def test_notes_are_read_and_the_rest_is_left_to_write(tmp_path: Path) -> None:
    path = tmp_path / "notes.toml"
    path.write_text('intended_use = "Beds"\nlicense = "cc-by-4.0"\n')
    notes = read_notes(path)
    assert (notes.intended_use, notes.license, notes.contacts) == ("Beds", "cc-by-4.0", TO_WRITE)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("intended_us = 'x'", "intended_us: there is no such entry. Did you mean intended_use?"),
        ("intended_use = 3", "is no file of notes:\n  intended_use: "),
        ("intended_use = ", "is no TOML: line 1"),
    ],
)
def test_what_is_no_file_of_notes_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "notes.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as error:
        read_notes(path)
    assert words in str(error.value)


def test_the_kind_of_the_file_and_its_folder_are_looked_at_before_anybody_is_asked(run: Run, tmp_path: Path) -> None:
    said = run("card", "sepsis", "-o", str(tmp_path / "card.docx"), code=1).stderr
    assert "'.docx' is neither .md nor .pdf" in said
    assert "there is no folder" in run("card", "sepsis", "-o", str(tmp_path / "a" / "card.md"), code=1).stderr
    assert list(tmp_path.iterdir()) == []
