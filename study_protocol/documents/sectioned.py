"""Documents in sections for people, such as letters and dossiers: one content, as Markdown and as PDF."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from study_protocol.documents.card import Section
from study_protocol.documents.markdown import plain, section_lines
from study_protocol.documents.pdf import breakable, rendered
from study_protocol.documents.pdf_content import UNSHOWN

_DIGEST_LENGTH = 64


@dataclass(frozen=True)
class SectionedDocument:
    """One document.

    kind      such as "Egress dossier"
    running   the line at the foot of each page
    issued    when it was written. The PDF states it as its own time
    attached  JSON from which it was made, which the PDF carries. Empty: none
    """

    kind: str
    title: str
    running: str
    issued: datetime
    sections: tuple[Section, ...]
    attached: str = ""

    def to_markdown(self) -> str:
        """Return the document as Markdown. Words of others are text: no link, no markup, no HTML."""
        head = [f"# {plain(self.kind)}: {plain(self.title)}"]
        return "\n".join([*head, *(line for section in self.sections for line in section_lines(section))]) + "\n"

    def to_pdf(self, fonts: Path | None = None) -> bytes:
        """Return the document as PDF. Equal content gives equal bytes.

        Raises:
            ModuleNotFoundError: the extra `documents` is missing.
        """
        issued = self.issued
        data = {
            "kind": self.kind,
            "document_title": f"{self.kind}: {self.title}",
            "title": breakable(self.title),
            "running": breakable(self.running),
            "issued": {"year": issued.year, "month": issued.month, "day": issued.day},
            "sections": [_laid_out(section) for section in self.sections],
            "json": self.attached,
            "unshown_said": UNSHOWN,
        }
        return rendered("sectioned", data, issued=int(issued.timestamp()), fonts=fonts)


def _laid_out(section: Section) -> dict[str, Any]:
    """Return a section for the layout, with places to break within long words. Commands and digests are copied."""
    rows = [[cell if _is_copied(cell) else breakable(cell) for cell in row] for row in section.rows]
    return vars(section) | {"lines": [breakable(line) for line in section.lines], "rows": rows}


def _is_copied(cell: str) -> bool:
    return cell.startswith("wardround ") or (len(cell) == _DIGEST_LENGTH and " " not in cell)
