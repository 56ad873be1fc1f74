"""Every line of the papers' tables, and who runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from research.tables.result import Papers, Row

# Each has ENTRIES: Sequence[Entry]. The page shows tables in this order.
_MODULES = ("research.tables.clients", "research.tables.not_run", "research.tables.icml")


@dataclass(frozen=True)
class CatalogueEntry:
    """One line: `run(seeds)` measures it; None: it needs records that are not here, and `reason` says which.

    own        measures it on the pictures of a folder, by features of a frozen program (ONNX) if one is given
    selectors  what `python -m research.tables` may be told to pick it by, as text: {"clients": "100"}
    """

    table: str
    name: str
    papers: Papers
    run: Callable[[Sequence[int]], Row] | None
    selectors: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    own: Callable[[Path, Path | None, Sequence[int]], Row] | None = None


def entries() -> list[CatalogueEntry]:
    """All lines, in the page's order."""
    return [entry for module in _MODULES for entry in import_module(module).ENTRIES]


def selected_entries(table: str, selectors: Mapping[str, str]) -> list[CatalogueEntry]:
    """The lines of one table that have every wanted selector.

    Raises:
        ValueError: none has; the message names those that there are.
    """
    entries_of_table = [entry for entry in entries() if entry.table == table]
    matches = [
        entry
        for entry in entries_of_table
        if all(entry.selectors.get(key) == value for key, value in selectors.items())
    ]
    if not matches:
        names = "; ".join(entry.name for entry in entries_of_table) or "none"
        raise ValueError(f"table {table} has no line with {dict(selectors)}; it has: {names}")
    return matches
