"""The page of an audit: one HTML file that needs no other file, and the same figures as JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

FORMAT = "wardround/1/audit"
_WIDTH, _BAR, _LABELS = 640, 22, 250
_STYLE = """
:root { color-scheme: light dark; --line: #8885; --bar: #00897b; --alarm: #c62828 }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0 } th, td { border-bottom: 1px solid var(--line); padding: .3rem 1rem
.3rem 0; text-align: left } svg { max-width: 100%; height: auto } .alarm { color: var(--alarm); font-weight: 600 }
code { overflow-wrap: anywhere }
"""


@dataclass(frozen=True)
class AuditSection:
    """One part of the page.

    key      in the JSON
    figures  as JSON: all that the section says follows from them
    lines    paragraphs of plain text
    columns  heads of the table, and rows of as many cells
    chart    an SVG, or empty
    alarms   tests that a sound study passes, and that this one did not
    attacked False: it does not go with the settings, as a line says
    """

    key: str
    title: str
    figures: Mapping[str, Any]
    lines: Sequence[str] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    chart: str = ""
    alarms: Sequence[str] = ()
    attacked: bool = True

    @property
    def verdict(self) -> str:
        """Return its result in a few words."""
        if not self.attacked:
            return "not attacked"
        return f"ALARM, {', '.join(self.alarms)}" if self.alarms else "no alarm"


@dataclass(frozen=True)
class AuditReport:
    """What an audit found. facts: on what it was run, name -> words or number."""

    settings_sha256: str
    facts: Mapping[str, str | int]
    sections: Sequence[AuditSection]

    @property
    def alarms(self) -> list[str]:
        """Return the alarms of all sections."""
        return [alarm for section in self.sections for alarm in section.alarms]

    def figures(self) -> dict[str, Any]:
        """JSON, without the page's digest."""
        return {
            "format": FORMAT,
            "settings_sha256": self.settings_sha256,
            "facts": dict(self.facts),
            "alarms": self.alarms,
            **{section.key: dict(section.figures) for section in self.sections},
        }

    def page(self) -> str:
        """Return the HTML. It holds its figures as JSON, so that its digest is theirs too."""
        facts = [[name, str(value)] for name, value in self.facts.items()]
        alarms = ", ".join(self.alarms)
        missing = ", ".join(section.title for section in self.sections if not section.attacked)
        verdict = f'<p class="alarm">Alarm: {escape(alarms)}.</p>' if alarms else "<p>No alarm.</p>"
        verdict += f"<p>Not attacked: {escape(missing)}.</p>" if missing else ""
        data = json.dumps(self.figures(), ensure_ascii=True, allow_nan=False).replace("<", "\\u003c")
        return "\n".join(
            [
                '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Audit of a study</title>',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                f"<style>{_STYLE}</style></head><body><h1>Audit of a study's settings</h1>",
                "<p>The study's own engine ran on the records at hand, and was attacked. An audit finds faults. It "
                "proves no ε: that is done by the account.</p>",
                verdict,
                _table(("on what", ""), facts),
                *map(_section, self.sections),
                f"<p>Settings: <code>{self.settings_sha256}</code> (SHA-256)</p>",
                f'<script type="application/json" id="figures">{data}</script></body></html>\n',
            ]
        )

    @property
    def page_sha256(self) -> str:
        """SHA-256 (hex) of the page, as `sha256sum` prints it."""
        return hashlib.sha256(self.page().encode()).hexdigest()

    def files(self) -> dict[str, bytes]:
        """Return name -> content of the page, and of the JSON that names the page's SHA-256."""
        figures = self.figures() | {"page_sha256": self.page_sha256}
        text = json.dumps(figures, indent=1, allow_nan=False) + "\n"
        return {"audit.html": self.page().encode(), "audit.json": text.encode()}


def bars(values: Mapping[str, float], *, unit: str) -> str:
    """Return an SVG of one horizontal bar for each value, at least 0."""
    longest, height = max(*values.values(), 1e-9), _BAR * 1.5
    shapes = [
        f'<text x="0" y="{place * height + 16:g}" fill="currentColor">{escape(name)}</text>'
        f'<rect x="{_LABELS}" y="{place * height:g}" width="{(_WIDTH - _LABELS - 70) * value / longest:.1f}" '
        f'height="{_BAR}" fill="var(--bar)"/>'
        f'<text x="{_LABELS + (_WIDTH - _LABELS - 70) * value / longest + 6:.1f}" y="{place * height + 16:g}" '
        f'fill="currentColor">{value:.3g}</text>'
        for place, (name, value) in enumerate(values.items())
    ]
    size = f'viewBox="0 0 {_WIDTH} {len(values) * height:g}" width="{_WIDTH}" font-size="14"'
    return f'<svg role="img" aria-label="{escape(unit)}" {size}>{"".join(shapes)}</svg>'


def _section(section: AuditSection) -> str:
    lines = "".join(f"<p>{escape(line)}</p>" for line in section.lines)
    table = _table(section.columns, section.rows) if section.rows else ""
    return f"<h2>{escape(section.title)}</h2>{lines}{section.chart}{table}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
