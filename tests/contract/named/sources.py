"""The texts that name things: pages, notebooks, scripts, source files, the dashboard. Pieces of code and of prose."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from wardround.installation import PACKAGES

ROOT = Path(__file__).parents[3]
SOURCE = (*PACKAGES, "research")
_BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.M | re.S)
_SPAN = re.compile(r"`([^`\n]+)`")
_HTML = re.compile(r"<code>([^<]+)</code>")
# A template string of JavaScript quotes code with escaped backticks, an element has its text as last argument.
_JS_SPANS = (re.compile(r"\\`([^`\\]+)\\`"), re.compile(r'element\("code", \{[^}]*\}, "([^"]+)"'))
_JS_STRING, _JS_TEMPLATE = re.compile(r'"((?:[^"\\\n]|\\.)*)"'), re.compile(r"`((?:[^`\\]|\\.)*)`")
_JS_VALUE = re.compile(r"\$\{[^}]*\}")


@cache
def parsed(text: str) -> ast.Module:
    """Return the syntax tree of a program. Several checks walk over it."""
    return ast.parse(text)


@dataclass(frozen=True)
class Piece:
    """One piece of a text.

    Attributes:
        place: the file, relative to the repository.
        kind: `span` (code in a sentence), `message` (prose of a program) or the language of a block of code.
        text: its characters.
        is_page: whether it stands on a page. Pages must name names that exist, programs may quote others.
    """

    place: str
    kind: str
    text: str
    is_page: bool = False


def pieces_of_page(place: str, text: str) -> Iterator[Piece]:
    """Yield the blocks and the spans of code of a Markdown text."""
    for language, block in _BLOCK.findall(text):
        yield Piece(place, language or "text", block, is_page=True)
    for span in _SPAN.findall(_BLOCK.sub("", text)):
        yield Piece(place, "span", span.strip(), is_page=True)


def pieces_of_notebook(place: str, text: str) -> Iterator[Piece]:
    """Yield the cells of code as one program, and the pieces of the other cells."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    yield Piece(place, "python", "\n".join(source for kind, source in cells if kind == "code"), is_page=True)
    for kind, source in cells:
        if kind != "code":
            yield from pieces_of_page(place, source)


def pieces_of_program(place: str, text: str) -> Iterator[Piece]:
    """Yield the spans and the prose of every string of a Python file: docstrings, help texts, messages."""
    for node in ast.walk(parsed(text)):
        string = ""
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
            string = "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            string = node.value
        yield from (Piece(place, "span", span.strip()) for span in _SPAN.findall(string))
        if any(sign in string for sign in ("wardround", "python -m", "WARDROUND_", "/v1/", "docs/")):
            yield Piece(place, "message", _SPAN.sub("…", string))


def pieces_of_dashboard(place: str, text: str) -> Iterator[Piece]:
    """Yield the code and the sentences of a file of JavaScript or HTML."""
    for pattern in (_HTML, *_JS_SPANS):
        yield from (Piece(place, "span", _JS_VALUE.sub("…", span)) for span in pattern.findall(text))
    strings = _JS_STRING.findall(text)
    yield from (Piece(place, "span", span) for string in strings for span in _SPAN.findall(string))
    for string in (*strings, *_JS_TEMPLATE.findall(_JS_STRING.sub("", text))):
        yield Piece(place, "message", _JS_VALUE.sub("…", _SPAN.sub("…", _JS_SPANS[0].sub("…", string))))


def pieces_of_script(place: str, text: str) -> Iterator[Piece]:
    """Yield a Makefile, a Dockerfile, a workflow or a shell script as one piece."""
    yield Piece(place, "sh", text)


def current_part(changelog: str) -> str:
    """Return the newest version of a changelog: older parts speak of what was."""
    return "\n## ".join(changelog.split("\n## ")[:2])


def pages() -> Iterator[Piece]:
    """Yield the pieces of every page and notebook."""
    for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))):
        text = path.read_text()
        yield from pieces_of_page(_place(path), current_part(text) if path.name == "CHANGELOG.md" else text)
    for path in sorted((ROOT / "docs").rglob("*.ipynb")):
        yield from pieces_of_notebook(_place(path), path.read_text())


def programs() -> Iterator[Piece]:
    """Yield the pieces of every source file, of the dashboard and of the scripts around them."""
    for package in SOURCE:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield from pieces_of_program(_place(path), path.read_text())
    for path in sorted((ROOT / "server" / "web").rglob("*")):
        if path.suffix in (".js", ".html") and "bundle" not in path.parts:
            yield from pieces_of_dashboard(_place(path), path.read_text())
    deployed = [path for path in (ROOT / "deploy").rglob("*") if path.suffix in (".sh", ".yml", ".yaml", ".toml")]
    workflows = sorted((ROOT / ".github").rglob("*.yml"))
    scripts = [ROOT / "Makefile", ROOT / "Dockerfile", ROOT / "docker-compose.yml", *sorted(deployed), *workflows]
    for path in scripts:
        yield from pieces_of_script(_place(path), path.read_text())
    for path in sorted((ROOT / "docs").glob("*.toml")):
        comments = re.sub(r"\s*\n *#\s*", " ", path.read_text())
        yield Piece(_place(path), "toml", path.read_text())
        yield from (Piece(_place(path), "span", span) for span in _SPAN.findall(comments))
        yield Piece(_place(path), "message", _SPAN.sub("…", comments))


def _place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
