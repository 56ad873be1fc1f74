"""The annex of an impact assessment: every line of the Regulation is answered or marked, numbers follow."""

from __future__ import annotations

from typing import Any

import pytest

from study_protocol.documents.check import OpenedCertificate, check_signature
from study_protocol.documents.dpia import dpia_annex
from tests.factories.certificates import ONE, PUBLIC, signed, text_of
from tests.study_protocol.documents.test_dossier import NUMBERS, with_value

# A certificate has more numbers than an assessment needs.
IN_DOSSIER_ALONE = {("rounds", "in_full"), ("rounds", "cancelled")}
MORE: list[tuple[tuple[Any, ...], Any, str]] = [
    (("mechanism", "levels", 0, "noise_multiplier"), 3.4567, "noise multiplier at least 3.456"),
    (("mechanism", "levels", 0, "clip_norm"), 0.75, "clip norm 0.75"),
    (("mechanism", "levels", 0, "sampling_rate"), 0.125, "sampling rate credited 0.125"),
    (("round",), 93, "up to round 93"),
]


def text(document: OpenedCertificate) -> str:
    signature = check_signature(document, PUBLIC, "its key", is_confirmed=True)
    assert signature.result == "good"
    return dpia_annex(document, signature).to_markdown()


CHANGES = [*(row for row in NUMBERS if row[0] not in IN_DOSSIER_ALONE), *MORE]


@pytest.mark.parametrize(("path", "value", "written"), CHANGES, ids=[".".join(map(str, row[0])) for row in CHANGES])
def test_a_changed_certificate_changes_the_number(path: tuple[Any, ...], value: Any, written: str) -> None:
    assert written not in text(ONE)
    assert written in text(with_value(path, value))


def test_a_study_that_protects_hospitals_alone_promises_nothing_of_a_patient() -> None:
    limits = [{"level": "client", "definition": "classical", "epsilon": 50.0, "delta": 1e-5}]
    document = signed(scheme="client", limits=limits)
    written = text(document)
    assert "does not protect a single patient by itself" in written
    assert "chance of a right guess about a patient" not in written
    assert "chance of a right guess about a patient" in text(ONE)


def test_what_was_released_is_never_said_to_change() -> None:
    assert "What was released before does not change" in text(ONE)
    assert "unlearn" not in text(ONE).lower()


@pytest.mark.slow
def test_the_pdf_can_be_made() -> None:
    signature = check_signature(ONE, PUBLIC, "its key", is_confirmed=True)
    words = " ".join(text_of(dpia_annex(ONE, signature).to_pdf()).split())
    assert "30(1)(g)" in words
