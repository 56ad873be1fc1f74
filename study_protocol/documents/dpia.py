"""The annex for a data-protection impact assessment, with the entry for the record of processing."""

from __future__ import annotations

from study_protocol.documents.asked_lines import limit_rows, section_of
from study_protocol.documents.card import Section
from study_protocol.documents.check import Check, OpenedCertificate
from study_protocol.documents.dossier import LIMIT_COLUMNS, MARKED, document_about, origin_section
from study_protocol.documents.dpia_lines import ASSESSMENT, RECORD
from study_protocol.documents.sectioned import SectionedDocument


def dpia_annex(document: OpenedCertificate, signature: Check) -> SectionedDocument:
    """Return the annex for a certificate's study.

    Args:
        signature: as of `dossier`.
    """
    stated = document.certificate
    sections = (
        origin_section(document, signature),
        Section("The bound", tuple(limit.meaning for limit in stated.limits), LIMIT_COLUMNS, limit_rows(stated)),
        section_of("Impact assessment: GDPR Article 35, by WP 248 rev.01, Annex 2", ASSESSMENT, stated, (MARKED,)),
        section_of("Record of processing: GDPR Article 30(1)", RECORD, stated, (MARKED,)),
    )
    return document_about("Annex of an impact assessment", document, sections)
