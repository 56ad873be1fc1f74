"""The tables of docs/settings.md, read off the models: python -m wardround.cli.lead.reference docs/settings.md

Replaces what stands between `<!-- study -->` or `<!-- policy -->` and `<!-- end -->`.
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
from wardround.cli.shared.described import Entry, entries, toml

_PART = re.compile(r"(<!-- (study|policy) -->\n).*?(<!-- end -->)", re.DOTALL)
_HEAD = (
    "| entry | what may stand there | template | left out | what it is, and what it costs |",
    "|---|---|---|---|---|",
)


def page(text: str) -> str:
    """`text` with its tables as the models are now."""
    study = _sections("", entries(StudySettings), study_values(masked=True, bayesian=True))
    found = {"study": "\n".join(study), "policy": "\n".join(_sections("", entries(SitePolicy), POLICY))}
    return _PART.sub(lambda part: f"{part[1]}\n{found[part[2]]}\n{part[3]}", text)


def _sections(path: str, found: tuple[Entry, ...], chosen: Mapping[str, Any] | None) -> Iterator[str]:
    """A table of the entries, then those of the sections among them."""
    rows = [_row(entry, (chosen or {}).get(entry.name)) for entry in found if not entry.inner]
    if rows:
        yield from (*_HEAD, *rows, "")
    for entry in found:
        if entry.inner:
            name, value = f"{path}{entry.name}", (chosen or {}).get(entry.name)
            needed = {"required": "must be there", "none": "may be left out"}.get(entry.default, "may be left out")
            yield f"### `{f'[[{name}]]' if entry.many else f'[{name}]'}`"
            yield from ("", f"{_cell(entry.about)} ({needed})", "")
            # Of several the last: what only some of them have is in it.
            yield from _sections(f"{name}.", entry.inner, value[-1] if entry.many and value else value)


def _row(entry: Entry, chosen: Any) -> str:
    plain = entry.default in ("required", "none")
    template = "" if chosen is None else "see there" if isinstance(chosen, dict) else f"`{toml(chosen)}`"
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
