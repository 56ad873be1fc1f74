"""How the packages hang together, in figures: python -m research.quality.structure [ROOT] [--record KEY]. Prints JSON.

room             a module directly in a package's folder, or a whole sub-folder of it
arrows           distinct (room, room) pairs of one package with at least one import from the first to the second,
                 imports in functions and for type checkers included; what any `__init__` imports is not counted
circles          groups of modules that import one another in a ring, however far; `arrow_circles`: the same of rooms
code_lines       lines that hold code: neither blank, nor a comment, nor a docstring; type stubs (.pyi) count too
mirrored         % of modules with tests/<same path>/test_<name>.py
scheme_branches  comparisons and matches on a scheme's name outside a file called schemes.py
comments         lines that begin with # per 100 lines
twice            class names that are defined at the top of more than one module

`--record before` writes the figures under that key of benchmarks/results/structure.json, beside what is there.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

PACKAGES = ("accounting", "client_sdk", "server", "simulation", "wardround")
SCHEMES = frozenset({"client", "parallel", "sequential", "joint"})
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "structure.json"

_LAYOUT = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

Arrows = set[tuple[str, str]]


@dataclass(frozen=True)
class Module:
    """One source file. `path` is relative to the root, `name` dotted; a folder's `__init__` has the folder's name."""

    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def is_init(self) -> bool:
        return self.path.stem == "__init__"

    @property
    def name(self) -> str:
        return ".".join((self.path.parent if self.is_init else self.path.with_suffix("")).parts)

    @property
    def package(self) -> str:
        return self.path.parts[0]

    @property
    def room(self) -> str:
        """The first name below the package: a file's or a folder's."""
        return self.path.parts[1].removesuffix(".py")


def modules_of(root: Path, pattern: str = "*.py") -> list[Module]:
    """Every source file of the packages that are there, or every file of another kind."""
    files = sorted(path for package in PACKAGES for path in (root / package).rglob(pattern))
    return [Module(path.relative_to(root), path.read_text()) for path in files]


def imports_of(module: Module, known: Mapping[str, Module]) -> set[str]:
    """Names of the `known` modules that it imports anywhere in its text, itself left out."""
    found: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found |= {_longest(alias.name, known) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = base_of(module, node)
            # `from package import module` reads the module, `from module import name` the module that stands first.
            found |= {_longest(f"{base}.{alias.name}", known) for alias in node.names}
    return found - {module.name, ""}


def base_of(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    above = parts[: len(parts) - node.level + module.is_init]
    return ".".join([*above, *([node.module] if node.module else [])])


def _longest(name: str, known: Mapping[str, Module]) -> str:
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def arrows_between_rooms(modules: Iterable[Module], known: Mapping[str, Module]) -> dict[str, Arrows]:
    """Per package, (importing room, imported room)."""
    found: dict[str, Arrows] = defaultdict(set)
    for module in modules:
        for other in (known[name] for name in imports_of(module, known)):
            if not module.is_init and module.package == other.package and module.room != other.room:
                found[module.package].add((module.room, other.room))
    return found


def circles(arrows: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Strongly connected groups of more than one (Tarjan 1972)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    open_: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        open_.append(node)
        for other in arrows.get(node, ()):
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in open_:
                low[node] = min(low[node], order[other])
        if low[node] == order[node]:
            place = open_.index(node)
            group = open_[place:]
            del open_[place:]
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(arrows):
        if node not in order:
            visit(node)
    return sorted(found)


def code_lines(module: Module) -> int:
    """Lines that hold code; a string over several lines counts every one of them, a docstring none."""
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type not in _LAYOUT:
            held.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(module.tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            held.difference_update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return len(held)


def scheme_branches(tree: ast.AST) -> int:
    """Comparisons with a scheme's name where the other side speaks of a scheme, and matches on a scheme."""
    found = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            names = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
            found += bool(names & SCHEMES) and "scheme" in ast.unparse(node)
        elif isinstance(node, ast.Match):
            found += "scheme" in ast.unparse(node.subject)
    return found


def functions(modules: Iterable[Module]) -> Iterator[tuple[int, str]]:
    """(lines, "path:name") of every function."""
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield (node.end_lineno or node.lineno) - node.lineno + 1, f"{module.path.as_posix()}:{node.name}"


def defined_twice(modules: Iterable[Module]) -> dict[str, list[str]]:
    """Class names at the top of a module -> the modules, where there are several."""
    places: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name].add(module.name)
    return {name: sorted(found) for name, found in sorted(places.items()) if len(found) > 1}


def figures(root: Path) -> dict[str, Any]:
    """All figures of the tree under `root`."""
    modules = modules_of(root)
    known = {module.name: module for module in modules}
    here = sorted({module.package for module in modules})
    rooms = arrows_between_rooms(modules, known)
    named = [m for m in modules if m.path.name not in ("__init__.py", "__main__.py")]
    mirrored = [m for m in named if (root / "tests" / m.path.parent / f"test_{m.path.name}").exists()]
    lengths = {module.path.as_posix(): len(module.text.splitlines()) for module in modules}
    remarks = sum(line.lstrip().startswith("#") for module in modules for line in module.text.splitlines())
    coded = modules + modules_of(root, "*.pyi")
    code = {package: sum(code_lines(m) for m in coded if m.package == package) for package in here}
    largest = max(lengths, key=lambda path: lengths[path])
    longest = max(functions(modules))
    return {
        "modules": len(modules),
        "arrows": {package: len(rooms[package]) for package in here},
        "circles": circles({module.name: sorted(imports_of(module, known)) for module in modules}),
        "arrow_circles": {package: circles(_targets(rooms[package])) for package in here},
        "scheme_branches": sum(scheme_branches(m.tree) for m in modules if m.path.name != "schemes.py"),
        "code_lines": code | {"all": sum(code.values())},
        "mirrored": round(100 * len(mirrored) / max(1, len(named)), 1),
        "largest_file": {"path": largest, "lines": lengths[largest]},
        "largest_function": {"path": longest[1], "lines": longest[0]},
        "comments": round(100 * remarks / max(1, sum(lengths.values())), 2),
        "twice": defined_twice(modules),
    }


def _targets(arrows: Arrows) -> dict[str, list[str]]:
    return {room: sorted(other for first, other in arrows if first == room) for room, _ in arrows}


def record(path: Path, key: str, part: str, found: dict[str, Any]) -> None:
    """Write `found` as file[key][part] and keep everything else that stands there."""
    known = json.loads(path.read_text()) if path.exists() else {}
    known.setdefault(key, {})[part] = found
    path.write_text(json.dumps(known, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=Path, default=Path())
    parser.add_argument("--record", metavar="KEY", choices=("before", "after"))
    options = parser.parse_args()
    found = figures(options.root.resolve())
    print(json.dumps(found, indent=1))
    if options.record:
        record(RESULTS, options.record, "structure", found)


if __name__ == "__main__":
    main()
