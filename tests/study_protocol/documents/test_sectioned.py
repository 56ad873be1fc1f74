"""Documents in sections: words of others stay words, in Markdown and in the PDF."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime

import pytest
from pypdf import PdfReader

from study_protocol.documents.card import Section
from study_protocol.documents.sectioned import SectionedDocument
from tests.factories.certificates import HOSTILE, text_of

WHEN = datetime(2026, 11, 27, tzinfo=UTC)


@pytest.mark.parametrize("words", HOSTILE, ids=["source", "long", "scripts", "inputs"])
def test_no_words_become_source(words: str) -> None:
    section = Section("Part", (words,), ("What", "Value"), ((words, "ab" * 32), ("do", "wardround doctor --json")))
    report = SectionedDocument("Dossier", words, words, WHEN, (section,), attached='{"a": 1}')
    pdf = report.to_pdf()
    assert pdf == report.to_pdf()
    assert "root:" not in text_of(pdf)
    reader = PdfReader(io.BytesIO(pdf))
    assert json.loads(reader.attachments["certificate.json"][0]) == {"a": 1}
    # Digests and commands can be copied: no place to break is within them.
    assert "ab" * 32 in text_of(pdf).replace("\n", "")
    assert "wardround doctor --json" in text_of(pdf)
    markdown = report.to_markdown()
    assert "<script>" not in markdown
    assert markdown.startswith("# Dossier: ")


def test_without_an_attachment_there_is_none() -> None:
    report = SectionedDocument("Letter", "objection 1", "", WHEN, (Section("To"),))
    assert not PdfReader(io.BytesIO(report.to_pdf())).attachments
