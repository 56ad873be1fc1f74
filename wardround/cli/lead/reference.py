"""Write the tables of docs/settings.md from the models: python -m wardround.cli.lead.reference docs/settings.md

The text between `<!-- study -->` or `<!-- policy -->` and `<!-- end -->` is replaced.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from client_sdk.guard.policy import SitePolicy
from study_protocol.study.settings import StudySettings
from wardround.cli.shared.settings_help import SettingsEntry, entries

_MODELS = {"study": StudySettings, "policy": SitePolicy}
_PART = re.compile(r"(<!-- (study|policy) -->\n).*?(<!-- end -->)", re.DOTALL)
_HEAD = ("| entry | values | default | meaning |", "|---|---|---|---|")


def page(text: str) -> str:
    """Return `text` with the tables of the current models."""
    tables = {name: "\n".join(_sections(entries(model))) for name, model in _MODELS.items()}
    return _PART.sub(lambda part: f"{part[1]}\n{tables[part[2]]}\n{part[3]}", text)


def _sections(section_entries: tuple[SettingsEntry, ...], path: str = "") -> Iterator[str]:
    """Yield the table of the entries, then the tables of the sections among them."""
    rows = [_row(entry) for entry in section_entries if not entry.inner]
    if rows:
        yield from (*_HEAD, *rows, "")
    for entry in section_entries:
        if entry.inner:
            name = f"{path}{entry.name}{'.NAME' if entry.is_named else ''}"
            needed = "required" if entry.default == "required" else "optional"
            yield f"### `{f'[[{name}]]' if entry.is_repeated else f'[{name}]'}`"
            yield from ("", f"{_cell(entry.about)} ({needed})", "")
            yield from _sections(entry.inner, f"{name}.")


def _row(entry: SettingsEntry) -> str:
    default = entry.default if entry.default in ("required", "none") else f"`{entry.default}`"
    return f"| {' | '.join(_cell(cell) for cell in (f'`{entry.name}`', entry.values, default, entry.about))} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    path = Path(sys.argv[1])
    path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
