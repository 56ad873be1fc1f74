"""The egress dossier: every line is answered or marked, every number follows the certificate."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest

from study_protocol.documents.check import OpenedCertificate, check_signature
from study_protocol.documents.dossier import dossier
from tests.factories.certificates import ONE, PUBLIC, sealed, text_of

OTHER = "12" * 32


def text(document: OpenedCertificate, *, is_confirmed: bool = True) -> str:
    signature = check_signature(document, PUBLIC, "its key", is_confirmed=is_confirmed)
    assert signature.result != "bad"
    return dossier(document, signature).to_markdown()


def with_value(path: tuple[Any, ...], value: Any) -> OpenedCertificate:
    changed = copy.deepcopy(ONE.raw["certificate"])
    inner = changed
    for name in path[:-1]:
        inner = inner[name]
    assert inner[path[-1]] != value
    inner[path[-1]] = value
    return sealed(changed)


# Place in the certificate, another value, and how the documents write it.
NUMBERS: list[tuple[tuple[Any, ...], Any, str]] = [
    (("limits", 1, "spent"), 7.12301, "7.124"),
    (("limits", 1, "epsilon"), 61.5, "61.5"),
    (("limits", 1, "delta"), 3e-7, "3e-7"),
    (("limits", 1, "attack_success"), 0.81234, "81.3 %"),
    (("limits", 0, "spent"), 2.50001, "2.501"),
    (("rounds", "charged"), 5, "3 questions"),
    (("rounds", "steps"), 1, "1 round of training"),
    (("rounds", "most"), 77, "77"),
    (("rounds", "in_full"), 41, "at their worst | 41 |"),
    (("rounds", "cancelled"), 43, "of which nothing left | 43 |"),
    (("mechanism", "max_steps"), 91, "91 noised steps"),
    (("members", "active"), 17, "17 hospitals"),
    (("ledger", "entries"), 913, "913"),
    (("ledger", "sha256"), OTHER, OTHER),
    (("model", "sha256"), OTHER, OTHER),
    (("model", "bytes"), 98765, "98765 bytes"),
    (("settings_sha256",), OTHER, OTHER),
]


@pytest.mark.parametrize(("path", "value", "written"), NUMBERS, ids=[".".join(map(str, row[0])) for row in NUMBERS])
def test_a_changed_certificate_changes_the_number(path: tuple[Any, ...], value: Any, written: str) -> None:
    assert written not in text(ONE)
    assert written in text(with_value(path, value))


def test_it_says_whether_the_signature_was_verified() -> None:
    assert "The signature was verified with a key from outside of the document" in text(ONE)
    assert "This proves nothing about who made it" in text(ONE, is_confirmed=False)


def test_questions_and_models_are_counted_apart() -> None:
    asked = text(with_value(("rounds", "charged"), 3))
    assert "at most one model from each of 2 rounds of training, and at most one answer to each of 1 question" in asked


@pytest.mark.slow
def test_the_pdf_holds_the_same_and_carries_the_certificate() -> None:
    signature = check_signature(ONE, PUBLIC, "its key", is_confirmed=True)
    report = dossier(ONE, signature)
    pdf = report.to_pdf()
    assert pdf == report.to_pdf()
    words = " ".join(text_of(pdf).split())
    assert "EHDSR-13" in words
    assert "5.569" in words
    assert dataclasses.replace(report, title="x").to_pdf() != pdf
