"""Certificates and cards as PDF: no text becomes source, and every byte repeats."""

from __future__ import annotations

import hashlib
import io
import json
from typing import Any

import pytest
from pypdf import PdfReader

from study_protocol.documents.pdf_content import certificate_pdf, digest
from tests.factories.certificates import HOSTILE, ONE, signed, text_of


@pytest.mark.parametrize("title", HOSTILE, ids=["source", "long", "scripts", "inputs"])
def test_no_title_becomes_source_and_equal_certificates_are_equal_bytes(title: str) -> None:
    document = signed(title)
    pdf = certificate_pdf(document)
    assert certificate_pdf(document) == pdf
    said = text_of(pdf)
    assert "root:" not in said
    for page in PdfReader(io.BytesIO(pdf)).pages:
        assert float(page.mediabox.width) == pytest.approx(595.28, abs=1)
    attached = PdfReader(io.BytesIO(pdf)).attachments["certificate.json"][0]
    assert json.loads(attached) == document.raw
    if title.startswith("中"):
        assert "U+4E2D" in said


def test_the_pdf_can_be_read_aloud() -> None:
    reader = PdfReader(io.BytesIO(certificate_pdf(ONE)))
    root: Any = reader.trailer["/Root"]
    assert root["/Lang"] == "en-GB"
    assert root["/MarkInfo"]["/Marked"]
    assert reader.metadata is not None
    assert "Sepsis at four hospitals" in str(reader.metadata.title)
    assert len(reader.pages) <= 4


def test_the_code_of_the_drawing_is_the_digest_of_the_signed_content() -> None:
    """Canonical JSON by hand: sorted names, no spaces, UTF-8."""
    text = json.dumps(ONE.raw["certificate"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert digest(ONE) == hashlib.sha256(text.encode()).hexdigest()
    assert digest(ONE) in "".join(text_of(certificate_pdf(ONE)).split())


def test_losses_on_the_page_are_rounded_up() -> None:
    """5.5685… of 40 is 13.93 %."""
    said = " ".join(text_of(certificate_pdf(ONE)).split())
    assert "5.569" in said
    assert "5.568" not in said
    assert "14.0 %" in said
