"""A card as Markdown with the metadata that model hubs read. Words of others are text: no link, no markup, no HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from study_protocol.documents.card import Card, Section
from study_protocol.documents.registry import yaml_lines
from study_protocol.study.any_settings import require_training

# Of CommonMark and its tables, what begins HTML, and what hubs make a link of.
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~&!$]|:(?=//)|(?<=www)\.)")


def plain(text: str) -> str:
    """Return the text so that Markdown shows it as it is, on one line."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def as_markdown(card: Card) -> str:
    """Return the whole card. Notes are Markdown that people wrote, and stay as they are."""
    head = ["---", *yaml_lines(_metadata(card)), "---", "", f"# {plain(card.title)}"]
    return "\n".join([*head, *(line for section in card.sections() for line in section_lines(section))]) + "\n"


def section_lines(section: Section) -> list[str]:
    """Return a section as lines of Markdown."""
    lines = ["", f"## {section.title}", ""]
    lines += [part for line in section.lines for part in (plain(line), "")]
    if section.rows:
        lines += [_row(section.columns), _row(["---"] * len(section.columns), raw=True), *map(_row, section.rows), ""]
    if section.code is not None:
        lines += ["```console", f"$ {section.code}", "```", ""]
    if section.written is not None:
        lines += [section.written.strip(), ""]
    return lines[:-1]


def _row(cells: Sequence[str], *, raw: bool = False) -> str:
    return f"| {' | '.join(cells if raw else map(plain, cells))} |"


def _metadata(card: Card) -> dict[str, Any]:
    """Return metadata with names as model hubs have them (`model-index` after Papers with Code)."""
    results = [
        {
            "task": {"type": "other", "name": require_training(card.study.settings).training.task},
            "dataset": {"type": "other", "name": measured.evaluation_set},
            "metrics": [{"type": name, "value": value} for name, value in measured.values.items()],
        }
        for _, measured in card.metrics[-1:]
    ]
    licence = {} if card.notes.license is None else {"license": card.notes.license}
    index = {"model-index": [{"name": card.title, "results": results}]} if results else {}
    tags = ["federated-learning", "differential-privacy"]
    return {**licence, "library_name": "wardround", "tags": tags, **index}
