"""Lines on exports: each is answered or marked, as the specifications number and grade them."""

from __future__ import annotations

from study_protocol.documents.egress_lines import EHDSR, SATRE
from tests.factories.certificates import ONE
from tests.study_protocol.documents.test_dossier import text

# Which lines are in the documents, and what of them is the reader's own: written here once more, by hand.
MANDATORY = {"3.3.04", "3.3.05", "3.3.07", *(f"EHDSR-{n}" for n in (1, 2, 4, 5, 6, 7, 8, 12, 13))}
OWN_ALONE = {"3.3.05", "EHDSR-1", "EHDSR-3"}


def test_every_line_is_answered_or_marked() -> None:
    lines = [*SATRE, *EHDSR]
    names = [line.name for line in lines]
    assert names[:9] == [f"3.3.0{n}" for n in range(1, 10)]
    assert names[9:] == [f"EHDSR-{n}" for n in (*range(1, 9), 12, 13)]
    assert {line.name for line in lines if line.importance == "mandatory"} == MANDATORY
    written = text(ONE)
    for line in lines:
        answer = line.answer(ONE.certificate)
        assert answer.text or answer.yours, line.name
        assert f"| {line.name} | {line.importance} |" in written
        assert (not answer.text) == (line.name in OWN_ALONE), line.name
        # A process, a person or a place cannot follow from a certificate.
        assert answer.yours or line.importance != "mandatory", line.name
