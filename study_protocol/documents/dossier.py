"""The egress dossier of a study, for the people who decide whether its models and answers may leave."""

from __future__ import annotations

import json

from study_protocol.documents.asked_lines import YOURS, file, limit_rows, released, rounds, section_of
from study_protocol.documents.card import Section
from study_protocol.documents.check import Check, OpenedCertificate
from study_protocol.documents.egress_lines import EHDSR, SATRE
from study_protocol.documents.pdf_content import digest
from study_protocol.documents.sectioned import SectionedDocument

LIMIT_COLUMNS = ("Limit", "Guaranteed ε", "Limit ε", "δ", "Right guess at most")
MARKED = f"What is marked {YOURS} does not follow from the certificate: your organisation writes it."


def dossier(document: OpenedCertificate, signature: Check) -> SectionedDocument:
    """Return the egress dossier of a certificate.

    Args:
        signature: the check of its signature, which is stated. A bad one makes no dossier: the caller refuses it.
    """
    stated = document.certificate
    # With version and date: a later text may number its lines otherwise.
    satre = "SATRE 2, capability 3.3 Output Management (specification 2.0.1)"
    tehdas = "TEHDAS2 M7.4, requirements of the European Health Data Space (draft of 12 September 2025)"
    sections = (
        origin_section(document, signature),
        _leaves(document),
        Section("The bound", _bound_words(document), LIMIT_COLUMNS, limit_rows(stated)),
        _sees(document),
        Section(
            "What an output checker can compute again",
            columns=("What it shows", "Command"),
            rows=tuple((f"{step.shows[:1].upper()}{step.shows[1:]}", step.command) for step in stated.verify),
        ),
        section_of(satre, SATRE, stated, (MARKED,)),
        section_of(tehdas, EHDSR, stated, (MARKED, _SELECTION)),
    )
    return document_about("Egress dossier", document, sections)


_SELECTION = (
    "Lines 1 to 8 are on access and logs, 12 and 13 on what is taken out. The other lines are on the environment alone."
)


def document_about(kind: str, document: OpenedCertificate, sections: tuple[Section, ...]) -> SectionedDocument:
    """Return a document about a certificate, which is attached."""
    stated = document.certificate
    running = f"{kind} of study {stated.study}, certificate of {stated.issued_at:%Y-%m-%d %H:%M} UTC"
    attached = json.dumps(document.raw, indent=1, ensure_ascii=False, sort_keys=True)
    return SectionedDocument(kind, stated.title or stated.study, running, stated.issued_at, sections, attached)


def origin_section(document: OpenedCertificate, signature: Check) -> Section:
    """Return what the document was made of, and whether the signature was verified."""
    stated = document.certificate
    verdict = {
        "good": "The signature was verified with a key from outside of the document.",
        "not known": "The signature fits the key that the document names. This proves nothing about who made it.",
        "bad": "THE SIGNATURE IS NOT GOOD.",
    }[signature.result]
    # The digest is the one of the certificate's own PDF and QR code.
    rows = (
        ("Study", f"{stated.study} ({stated.state})"),
        ("Certificate of", f"{stated.issued_at:%Y-%m-%d %H:%M} UTC, up to round {stated.round}"),
        ("Certificate, SHA-256 of its canonical JSON", digest(document)),
        ("Signature", f"{verdict} Found: {signature.words}."),
        ("Coordinator's key, fingerprint", stated.coordinator_fingerprint),
        ("Settings, SHA-256", stated.settings_sha256),
        (f"Ledger, entry {stated.ledger.entries}", stated.ledger.sha256),
    )
    words = "Every number below is computed from the attached certificate. Losses are rounded up."
    return Section("What this document rests on", (words,), ("What", "Value"), rows)


def _leaves(document: OpenedCertificate) -> Section:
    stated = document.certificate
    rows = [
        ("Rounds", rounds(stated)),
        ("Models and answers", released(stated)),
        ("Abandoned rounds, charged at their worst", str(stated.rounds.in_full)),
        ("Cancelled rounds, of which nothing left", str(stated.rounds.cancelled)),
        ("The file that people use", file(stated)),
    ]
    # A mean is a file of its own, so that the newest model stands beside it.
    if stated.model is not None:
        rows.append((f"Newest model, of round {stated.model.version}", f"{stated.model.bytes} bytes"))
        rows.append(("Its SHA-256", stated.model.sha256))
    words = "The ledger names every released model by SHA-256 and size, if the coordinator binds models to it."
    return Section("What leaves", (words,), ("What", "Value"), tuple(rows))


def _bound_words(document: OpenedCertificate) -> tuple[str, ...]:
    return tuple(limit.meaning for limit in document.certificate.limits)


def _sees(document: OpenedCertificate) -> Section:
    stated = document.certificate
    lines = [f"{line[:1].upper()}{line[1:]}." for line in stated.who_sees_what]
    masks = [f"Under masks: {line}." for line in stated.under_masks]
    return Section("Who sees what", (*lines, *masks))
