"""The documentation site: it builds without a warning, has every page and every public name, and its notebooks run."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml
from nbclient import NotebookClient

import wardround
from client_sdk.study.joining import Computing, Listeners, LocalTerms

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DIRECTIVE = re.compile(r"^::: (\S+)$", re.M)


def _site() -> dict[str, Any]:
    # The base loader reads tags of Python's own as plain values.
    return yaml.load((ROOT / "mkdocs.yml").read_text(), Loader=yaml.BaseLoader)


def _leaves(nav: list[Any] | dict[str, Any] | str) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
        return
    for part in nav.values() if isinstance(nav, dict) else nav:
        yield from _leaves(part)


def test_every_page_is_in_the_navigation() -> None:
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    notebooks = {page.relative_to(DOCS).with_suffix(".md").as_posix() for page in DOCS.rglob("*.ipynb")}
    others = {"commands.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"}
    assert sorted(_leaves(_site()["nav"])) == sorted(pages | notebooks | others)


def test_every_public_name_is_in_the_reference_once() -> None:
    named = [name for page in sorted((DOCS / "reference").glob("*.md")) for name in DIRECTIVE.findall(page.read_text())]
    found = [getattr(importlib.import_module(module), name) for module, _, name in (n.rpartition(".") for n in named)]
    spaces = [wardround, wardround.accounting, wardround.learning, wardround.queries]
    public = {id(value) for space in spaces for name in space.__all__ if (value := getattr(space, name)) not in spaces}
    # They are no names to import, and describe the arguments of Hospital.join.
    described = {id(kind) for kind in (LocalTerms, Computing, Listeners)}
    assert sorted(map(id, found)) == sorted(public | described)


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    for name in ("docs", "accounting", "study_protocol", "private_learning", "client_sdk", "wardround"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("Makefile", "mkdocs.yml", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    # As `make docs` does it, in the environment that the tests run in. Notebooks are run by another test.
    recipe = ["make", "--old-file", "installed", "docs", "DOCS=installed", f"BIN={Path(sys.executable).parent}"]
    (tmp_path / "installed").touch()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    run = subprocess.run(
        [*recipe, "EXECUTE="], cwd=tmp_path, capture_output=True, text=True, check=False, env=environment
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    site = tmp_path / "build" / "site"
    assert {f"{page}.html" for page in ("index", "commands", "SECURITY", "reference/accounting")} <= {
        page.relative_to(site).as_posix() for page in site.rglob("*.html")
    }
    # Nobody's browser is sent elsewhere for a font, a script or a picture.
    for page in site.rglob("*.html"):
        loaded = re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"(https?://[^\"]*)\"", page.read_text())
        assert not loaded, page


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.ipynb")), ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore")  # of the kernel's own
def test_a_notebook_runs_from_top_to_bottom(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "committed without outputs"
    done = NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert any(cell.get("outputs") for cell in done.cells)
