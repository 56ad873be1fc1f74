"""Public functions, classes and methods that only tests name: python -m research.benchmarks.uncalled [ROOT].

Prints lines.

A definition counts as called when code outside its own body, and outside other uncalled definitions, names it:

function, class   by its name in its own module, by an import of it, or as an attribute of its imported module
method            by an attribute of that name anywhere (types are not followed, so some uncalled methods stay hidden)

Called from elsewhere, so never listed: what carries a decorator that registers it (routers, validators, commands),
what a package's `__init__` or its stub offers, entry points, and names that begin with an underscore. Methods that a
library calls by name (`logging.Formatter.format`) are listed; look before deleting.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from research.quality.structure import Module, base_of, modules_of, shipped_packages

READERS = ("research",)
LISTED = ("accounting", "study_protocol", "private_learning", "client_sdk", "server")
# These decorators leave a definition to be called by its name; any other may register it somewhere.
PLAIN = frozenset(
    {"property", "cached_property", "staticmethod", "classmethod", "dataclass", "contextmanager", "abstractmethod"}
    | {"asynccontextmanager", "cache", "lru_cache", "override", "final", "overload", "total_ordering"}
    | {"runtime_checkable"}
)

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Defined:
    """One public definition. `owner` is its class's name, "" at the top of a module."""

    module: str
    owner: str
    name: str
    path: str
    first: int
    last: int

    def holds(self, path: str, line: int) -> bool:
        return self.path == path and self.first <= line <= self.last

    def __str__(self) -> str:
        name = f"{self.owner}.{self.name}" if self.owner else self.name
        return f"{self.path}:{self.first} {name} ({self.last - self.first + 1} lines)"


@dataclass(frozen=True)
class Mention:
    """A name in the text. `module` is where it surely comes from, "" if it may come from anywhere."""

    name: str
    module: str
    path: str
    line: int


def definitions(module: Module) -> Iterator[Defined]:
    """The public ones at the top of a module and in its classes."""
    path = module.path.as_posix()
    for node in module.tree.body:
        if not isinstance(node, Definition) or node.name.startswith("_") or not _plain(node):
            continue
        yield Defined(module.name, "", node.name, path, node.lineno, node.end_lineno or node.lineno)
        for inner in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(inner, Definition) and not inner.name.startswith("_") and _plain(inner):
                yield Defined(module.name, node.name, inner.name, path, inner.lineno, inner.end_lineno or inner.lineno)


def _plain(node: Definition) -> bool:
    decorators = (d.func if isinstance(d, ast.Call) else d for d in node.decorator_list)
    return all(ast.unparse(d).rpartition(".")[2] in PLAIN for d in decorators)


def mentions(module: Module) -> Iterator[Mention]:
    """Every name that the module reads, with the module it comes from where the text says so."""
    path = module.path.as_posix()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and not module.is_init:
            yield from (Mention(alias.name, base_of(module, node), path, node.lineno) for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield Mention(node.id, module.name, path, node.lineno)
        elif isinstance(node, ast.Attribute):
            yield Mention(node.attr, "", path, node.lineno)


def entry_points(root: Path) -> Iterator[Mention]:
    """What pyproject.toml names as `module:name`."""
    project = root / "pyproject.toml"
    text = project.read_text() if project.exists() else ""
    for match in re.finditer(r'"([\w.]+):(\w+)"', text):
        yield Mention(match[2], match[1], project.name, 0)


def uncalled(root: Path) -> list[Defined]:
    """Definitions of the LISTED packages under `root` that nothing called refers to."""
    files = (path for package in (*shipped_packages(root), *READERS) for path in sorted((root / package).rglob("*.py")))
    modules = [Module(path.relative_to(root), path.read_text()) for path in files]
    stubs = modules_of(root, "__init__.pyi")
    offered = {alias.asname or alias.name for m in (*modules, *stubs) if m.is_init for alias in _imported(m)}
    definitions_listed = [d for m in modules if m.package in LISTED for d in definitions(m) if d.name not in offered]
    mentions_by_name: dict[str, list[Mention]] = defaultdict(list)
    for mention in (*entry_points(root), *(mention for module in modules for mention in mentions(module))):
        mentions_by_name[mention.name].append(mention)
    inside: dict[str, list[Defined]] = defaultdict(list)
    for defined in definitions_listed:
        inside[defined.path].append(defined)
    dead = definitions_listed
    while True:
        # What only dead code mentions, a ring of definitions too, stays dead.
        still = [d for d in dead if not any(_calls(m, d, inside[m.path], dead) for m in mentions_by_name[d.name])]
        if len(still) == len(dead):
            return still
        dead = still


def _imported(module: Module) -> Iterator[ast.alias]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom):
            yield from node.names


def _calls(mention: Mention, defined: Defined, around: list[Defined], dead: list[Defined]) -> bool:
    if mention.module and (defined.owner or not _is_same_module(mention.module, defined.module)):
        return False
    return not any(d in dead for d in around if d.holds(mention.path, mention.line))


def _is_same_module(name: str, module: str) -> bool:
    """Whether a name of `name` may be the one of `module`: it is that module, or a package that offers it."""
    return module == name or module.startswith(f"{name}.")


def main() -> None:
    results = uncalled(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve())
    for defined in results:
        print(defined)
    outer = [d for d in results if not any(o != d and o.holds(d.path, d.first) for o in results)]
    print(f"{len(results)} definitions, {sum(d.last - d.first + 1 for d in outer)} lines")


if __name__ == "__main__":
    main()
