"""The picture of docs/synthetic-records.md: where noise enters, what ε covers, and what follows from the answers.

python -m research.figures.synthetic_records docs/figures/synthetic-records.svg
"""

from __future__ import annotations

import sys
from pathlib import Path

_BOXES = (
    ("Patients", "stay at their hospitals", "#f4e3d7"),
    ("Noised sums", "noise is added here: ε", "#dbe7f4"),
    ("Signed answers", "three tables of counts", "#dbe7f4"),
    ("Synthetic records", "drawn from the answers", "#dff0e0"),
)
_WIDTH, _HEIGHT, _GAP = 170, 70, 40


def picture() -> str:
    """Return the SVG."""
    whole = len(_BOXES) * (_WIDTH + _GAP) - _GAP + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole} 150" font-family="sans-serif" role="img">',
        "<title>From patients to synthetic records</title>",
        f'<rect width="{whole}" height="150" fill="#fff"/>',
    ]
    for place, (name, words, colour) in enumerate(_BOXES):
        left = 10 + place * (_WIDTH + _GAP)
        middle = left + _WIDTH / 2
        parts += [
            f'<rect x="{left}" y="15" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="{colour}" stroke="#555"/>',
            f'<text x="{middle}" y="46" text-anchor="middle" font-size="16" font-weight="600">{name}</text>',
            f'<text x="{middle}" y="68" text-anchor="middle" font-size="13">{words}</text>',
        ]
        if place:
            parts.append(f'<path d="M{left - _GAP + 4} 50h{_GAP - 12}m-7 -5l7 5l-7 5" fill="none" stroke="#555"/>')
    edge = 10 + _WIDTH + _GAP
    parts += [
        f'<path d="M{edge} 100v8H{whole - 10}v-8" fill="none" stroke="#175fa8"/>',
        f'<text x="{(edge + whole) / 2}" y="130" text-anchor="middle" font-size="14" fill="#175fa8">'
        "one ε covers all of this, however many records are drawn</text>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture(), encoding="utf-8")
