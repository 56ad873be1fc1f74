"""Measure how names and prose read: python -m research.quality.language [ROOT]. Prints JSON.

The source is every Python file outside of tests, documents and environments. The pages are docs/**/*.md, README.md and
CONTRIBUTING.md.

bindings         functions, classes, parameters, and names and attributes that are assigned
bare_names       bindings that are a bare participle or pronoun (found, shown, one, here), per 1,000 bindings
superlatives     bindings that begin with least_ or most_, per 1,000 bindings
shadowed         parameters that shadow a builtin
ambiguous        class names that are defined more than once
docs, docstrings sentences of at least four words: % with a semicolon, words such as whoever and nobody per 1,000 words,
                 % that begin with who, what or nobody, median and 90th percentile of the words in a sentence
page_words       words of docs/**/*.md and README.md as `wc -w` counts them: all, a page on average, the longest page
commits          of the last 60: % with a body, median length of the subject
"""

from __future__ import annotations

import argparse
import ast
import builtins
import collections
import json
import os
import re
import statistics
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from research.quality.structure import Function, Module

NO_SOURCE = frozenset({".venv", ".git", "build", "tests", "docs", "node_modules"})
BARE_NAMES = frozenset(
    """
    found given made taken shown told said asked known wanted held kept left seen drawn named believed allowed possible
    chosen meant tried gone come counted judged marked alike same one own here there others other whose who whom what
    which where why how few several many most least further both beside besides again already alone apart ahead away
    """.split()  # noqa: SIM905 - a list of words is easier to read
)
INDEFINITE = re.compile(r"\b(whoever|whatever|nobody|everybody|somebody|nothing)\b", re.IGNORECASE)
CLAUSE_SUBJECT = re.compile(r"(Whoever|Whatever|Who|What|Where|Whose|Which|Nobody|Everybody|Nothing|Somebody)\b")
COMMITS = 60

_BUILTINS = frozenset(dir(builtins))
_PARAGRAPH = re.compile(r"\n\s*\n|\n\s*[-*+] |\n\s*\d+\. ")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"(])")
# What is no prose, and what stands for it in the sentence: code blocks, tables and headings, code, links, tags.
_NO_PROSE = (
    (re.compile(r"```.*?```", re.DOTALL), " "),
    (re.compile(r"^\s*\|.*$|^#.*$", re.MULTILINE), " "),
    (re.compile(r"`[^`]*`"), "X"),
    (re.compile(r"\[([^\]]*)\]\([^)]*\)"), r"\1"),
    (re.compile(r"<[^>]+>"), " "),
)


def source_modules(root: Path) -> list[Module]:
    """Read every Python file below `root` outside of tests, documents, environments and hidden folders."""
    paths: list[Path] = []
    for folder, below, files in os.walk(root):
        below[:] = [name for name in below if name not in NO_SOURCE and not name.startswith(".")]
        paths += [Path(folder, name) for name in files if name.endswith(".py")]
    return [Module(path.relative_to(root), path.read_text(encoding="utf-8")) for path in sorted(paths)]


def parameters(function: Function) -> Iterator[str]:
    """Yield the names of the parameters of a function, those with a star left out."""
    arguments = function.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        yield argument.arg


def bindings(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield every name that is bound, `self` and `cls` left out."""
    for node in nodes:
        if isinstance(node, Function):
            yield node.name
            yield from (name for name in parameters(node) if name not in ("self", "cls"))
        elif isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def docstrings(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the docstrings of modules, classes and functions."""
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | Function) and (text := ast.get_docstring(node)):
            yield text


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of Markdown that have four words or more and are mostly letters."""
    for pattern, replacement in _NO_PROSE:
        text = pattern.sub(replacement, text)
    for paragraph in _PARAGRAPH.split(text):
        for sentence in _SENTENCE_END.split(" ".join(paragraph.split())):
            letters = sum(map(str.isalpha, sentence))
            if len(sentence.split()) >= 4 and letters > 0.6 * len(sentence.replace(" ", "")):
                yield sentence


def prose(texts: Iterable[str]) -> dict[str, float]:
    """Measure the sentences of `texts`. All figures are 0 where there is no sentence."""
    every = [sentence for text in texts for sentence in sentences(text)]
    lengths = sorted(len(sentence.split()) for sentence in every) or [0]
    count = max(1, len(every))
    indefinite = sum(len(INDEFINITE.findall(sentence)) for sentence in every)
    return {
        "sentences": len(every),
        "semicolon_percent": round(100 * sum(";" in sentence for sentence in every) / count, 1),
        "whoever_nobody_per_1000_words": round(1000 * indefinite / max(1, sum(lengths)), 2),
        "clause_subject_percent": round(100 * sum(bool(CLAUSE_SUBJECT.match(s)) for s in every) / count, 1),
        "median_words": statistics.median(lengths),
        "p90_words": lengths[int(0.9 * (len(lengths) - 1))],
    }


def page_words(root: Path) -> dict[str, float]:
    """Count the words of the pages and the README: `all`, `per_page`, `max`."""
    pages = [path for path in (*sorted((root / "docs").rglob("*.md")), root / "README.md") if path.exists()]
    # As `wc -w`: what ASCII white space separates.
    counts = [len(path.read_bytes().split()) for path in pages] or [0]
    return {"all": sum(counts), "per_page": round(statistics.mean(counts), 1), "max": max(counts)}


def commits(root: Path) -> dict[str, float]:
    """Measure the messages of the last commits that are no merge. Empty where git knows none."""
    command = ["git", "log", f"-{COMMITS}", "--no-merges", "--format=%s%x00%b%x01"]
    try:
        log = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False).stdout
    except OSError:
        return {}
    messages = [entry.strip("\n").split("\0") for entry in log.split("\1") if "\0" in entry]
    if not messages:
        return {}
    return {
        "with_body_percent": round(100 * sum(bool(body.strip()) for _, body in messages) / len(messages)),
        "median_subject": statistics.median(len(subject) for subject, _ in messages),
    }


def figures(root: Path) -> dict[str, Any]:
    """Measure the tree under `root`. See the top of this file for the meaning of each figure."""
    root = root.resolve()
    modules = source_modules(root)
    names = [name.strip("_") for module in modules for name in bindings(module.nodes)]
    bare = sum(name.lower() in BARE_NAMES for name in names)
    superlatives = sum(name.startswith(("least_", "most_")) for name in names)
    every_node = [node for module in modules for node in module.nodes]
    classes = collections.Counter(node.name for node in every_node if isinstance(node, ast.ClassDef))
    shadowed = sum(name in _BUILTINS for n in every_node if isinstance(n, Function) for name in parameters(n))
    pages = [*sorted((root / "docs").rglob("*.md")), root / "README.md", root / "CONTRIBUTING.md"]
    return {
        "bindings": len(names),
        "bare_names": _per_thousand(bare, names),
        "superlatives": _per_thousand(superlatives, names),
        "shadowed": shadowed,
        "ambiguous": sum(count > 1 for count in classes.values()),
        "docs": prose(page.read_text(encoding="utf-8") for page in pages if page.exists()),
        "docstrings": prose(docstrings(every_node)),
        "page_words": page_words(root),
    }


def _per_thousand(count: int, names: Sequence[str]) -> float:
    return round(1000 * count / max(1, len(names)), 1)


def limited(measured: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures that `quality.toml` limits, under their names there."""
    values = {
        "bare_names_per_1000": measured["bare_names"],
        "superlatives_per_1000": measured["superlatives"],
        "shadowed_builtins": measured["shadowed"],
        "ambiguous_classes": measured["ambiguous"],
        "docs_words": measured["page_words"]["all"],
        "words_per_page": measured["page_words"]["per_page"],
        "longest_page_words": measured["page_words"]["max"],
    }
    for part in ("docs", "docstrings"):
        values |= {f"{part}_{name}": value for name, value in measured[part].items() if name != "sentences"}
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=Path, default=Path())
    options = parser.parse_args()
    print(json.dumps(figures(options.root) | {"commits": commits(options.root)}, indent=1))


if __name__ == "__main__":
    main()
