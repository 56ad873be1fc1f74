"""What the documents name exists: files, modules, rooms, tables."""

from __future__ import annotations

import importlib
import re
import sqlite3
from pathlib import Path

import pytest

import server.db.people_tables
import server.db.query_tables  # noqa: F401 - these tables belong to the page, too
from client_sdk.guard import ledger_file
from server.db.tables import Base
from wardround.installation import PACKAGES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
SHIPPED = PACKAGES
FOLDERS = (*SHIPPED, "research", "tests", "docs", "migrations")
PATH = re.compile(rf"(?<![\w/.])((?:{'|'.join(FOLDERS)})/[\w./*-]*|[\w*]+\.py)(?![\w/])")
# The group of the tasks' entry points, a file of the backup, and one inside of an exported model.
NO_MODULES = ("wardround.tasks", "wardround.backbones", "wardround.dump", "wardround.json", "synthesis.columns")
MODULE = re.compile(rf"(?<![\w/.])((?:{'|'.join(FOLDERS)})(?:\.\w+)+)")


def _code(text: str) -> list[str]:
    """What is written as code: in backticks, or in a block."""
    return [*re.findall(r"`([^`\n]+)`", text), *re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)]


def _exists(path: str) -> bool:
    return any(ROOT.glob(path.rstrip("/"))) if "/" in path else any(_tracked(path))


def _tracked(name: str) -> list[Path]:
    return [found for folder in FOLDERS for found in (ROOT / folder).rglob(name)]


def _resolves(dotted: str) -> bool:
    """Whether a module or something in a module has this name."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:length])
        if place.is_dir() or place.with_suffix(".py").is_file():
            if length == len(parts):
                return True  # without an import: a benchmark may need an extra that is not installed
            found = importlib.import_module(".".join(parts[:length]))
            for name in parts[length:]:
                found = getattr(found, name, None)
            return found is not None
    return False


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_and_module_that_is_named_exists(document: Path) -> None:
    text = document.read_text()
    code = " ".join(_code(text))
    # A page may have its reader save a file.
    own = set(re.findall(r"[Ss]ave this as `([^`]+)`", text))
    assert [path for path in PATH.findall(code) if not _exists(path) and path not in own] == []
    modules = [name for name in MODULE.findall(code) if name not in NO_MODULES]
    assert [name for name in modules if not _resolves(name)] == []


def test_the_search_sees_what_does_not_exist() -> None:
    code = " ".join(_code("`server/app.py` and `server/nothing.py`, `accounting.nothing`, `test_nowhere.py`"))
    assert [path for path in PATH.findall(code) if not _exists(path)] == ["server/nothing.py", "test_nowhere.py"]
    assert [name for name in MODULE.findall(code) if not _resolves(name)] == ["accounting.nothing"]


def test_every_room_is_on_the_map() -> None:
    rooms = {
        str(init.parent.relative_to(ROOT)) for package in SHIPPED for init in (ROOT / package).rglob("*/__init__.py")
    }
    assert {"accounting/plan", "study_protocol/wire", "server/services/rounds"} <= rooms
    assert sorted(room for room in rooms if f"`{room}`" not in PAGE) == []


def test_every_table_has_its_journey() -> None:
    tables = set(Base.metadata.tables)
    hospital = sqlite3.connect(":memory:")
    hospital.executescript(ledger_file.SCHEMA + ledger_file.SEEN_SCHEMA)
    tables |= {name for (name,) in hospital.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    hospital.close()
    assert sorted(name for name in tables if f"`{name}`" not in PAGE) == []


def test_every_table_that_is_described_exists() -> None:
    coordinator = PAGE.split("**At the coordinator**")[1].split("**At the hospital**")[0]
    described = set(re.findall(r"^\| `([a-z_]+)` \|", coordinator, re.M))
    assert described == set(Base.metadata.tables)


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    pages = [path for path in (ROOT / "docs").glob("*") if path.suffix in (".md", ".toml") and path.name != "index.md"]
    assert [page.name for page in pages if f"]({page.name})" not in index] == []
