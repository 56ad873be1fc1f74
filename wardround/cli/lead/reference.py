"""Write the tables of docs/settings.md from the models: python -m wardround.cli.lead.reference docs/settings.md

The text between `<!-- study -->` or `<!-- policy -->` and `<!-- end -->` is replaced.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from client_sdk.guard.policy import SitePolicy
from study_protocol.study.settings import StudySettings
from wardround.cli.lead.templates import POLICY, study_values
from wardround.cli.shared.settings_help import SettingsEntry, entries, toml

_PART = re.compile(r"(<!-- (study|policy) -->\n).*?(<!-- end -->)", re.DOTALL)
_HEAD = ("| entry | values | template | default | meaning |", "|---|---|---|---|---|")


def page(text: str) -> str:
    """Return `text` with the tables of the current models."""
    study = _sections("", entries(StudySettings), study_values(masked=True, bayesian=True))
    tables = {"study": "\n".join(study), "policy": "\n".join(_sections("", entries(SitePolicy), POLICY))}
    return _PART.sub(lambda part: f"{part[1]}\n{tables[part[2]]}\n{part[3]}", text)


def _sections(
    path: str, section_entries: tuple[SettingsEntry, ...], template_values: Mapping[str, Any] | None
) -> Iterator[str]:
    """Yield the table of the entries, then the tables of the sections among them."""
    values = template_values or {}
    rows = [_row(entry, values.get(entry.name)) for entry in section_entries if not entry.inner]
    if rows:
        yield from (*_HEAD, *rows, "")
    for entry in section_entries:
        if entry.inner:
            name, value = f"{path}{entry.name}", values.get(entry.name)
            needed = {"required": "required", "none": "optional"}.get(entry.default, "optional")
            yield f"### `{f'[[{name}]]' if entry.is_repeated else f'[{name}]'}`"
            yield from ("", f"{_cell(entry.about)} ({needed})", "")
            # The last of several, because it has the entries that only some of them have.
            yield from _sections(f"{name}.", entry.inner, value[-1] if entry.is_repeated and value else value)


def _row(entry: SettingsEntry, template_value: Any) -> str:
    plain = entry.default in ("required", "none")
    template = (
        ""
        if template_value is None
        else "see there"
        if isinstance(template_value, dict)
        else f"`{toml(template_value)}`"
    )
    left_out = entry.default if plain else f"`{entry.default}`"
    cells = (f"`{entry.name}`", entry.values, template, left_out, entry.about)
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    path = Path(sys.argv[1])
    path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
