"""Measure how the packages hang together: python -m research.quality.structure [ROOT]. Prints JSON.

The shipped packages are those that `pyproject.toml` lists for the wheel.

arrows           distinct (room, room) pairs of one package with at least one import from the first to the second.
                 A room is a module directly in a package's folder, or a whole folder directly below it. Imports in
                 functions and for type checkers count. Imports of an `__init__` do not.
circles          groups of modules that import one another in a ring. `arrow_circles` are the same of rooms.
arrows_per_module  distinct imports of shipped modules by shipped modules, per module
code_lines       lines that are neither blank, nor a comment, nor a docstring. Type stubs (.pyi) count too.
lines            all lines of .py files. `packages` has them by package, `largest_package` is the largest in percent.
mirrored         % of modules with tests/<same path>/test_<name>.py
untested         modules above 100 lines whose dotted name stands in no file of the tests
flat             modules directly in the package's own folder, by package
scheme_branches  comparisons and matches on a scheme's name outside a file called schemes.py
comments         lines that begin with # per 100 lines
twice            class names that are defined at the top of more than one module
mccabe           complexity as ruff computes it (C901)
decisions        1 + branches, loops, handlers, cases, asserts, conditional expressions, loops and conditions of
                 comprehensions, and the operands of `and` and `or` after the first one. This is what radon counts.
public_names     names that the type stub of `wardround` offers
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import statistics
import subprocess
import sys
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

SCHEMES = frozenset({"client", "parallel", "sequential", "joint"})
RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "structure.json"
# A module above this length needs a test file that names it.
SMALL_MODULE = 100
LONG_FILE = 400
LONG_FUNCTION = 50
COMPLEX = 10

_LAYOUT = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_DECISIONS = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.Assert, ast.match_case)

Function = ast.FunctionDef | ast.AsyncFunctionDef
Arrows = set[tuple[str, str]]


class MeasurementError(Exception):
    """The tree cannot be measured. The message says which file is the reason."""


@dataclass(frozen=True)
class Module:
    """One source file. `path` is relative to the root, `name` dotted. An `__init__` has the name of its folder."""

    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        try:
            return ast.parse(self.text)
        except SyntaxError as error:
            raise MeasurementError(f"{self.path} is no Python: {error}") from error

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree, the outer ones first."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def lines(self) -> int:
        return len(self.text.splitlines())

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


def shipped_packages(root: Path) -> tuple[str, ...]:
    """Return the names of the packages that `pyproject.toml` puts into the wheel."""
    path = root / "pyproject.toml"
    try:
        project = tomllib.loads(path.read_text(encoding="utf-8"))
        return tuple(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    except (OSError, tomllib.TOMLDecodeError, KeyError) as error:
        raise MeasurementError(f"{path} does not list the packages of the wheel: {error!r}") from error


def modules_of(root: Path, pattern: str = "*.py") -> list[Module]:
    """Read every source file of the shipped packages, or every file of another kind."""
    paths = sorted(path for package in shipped_packages(root) for path in (root / package).rglob(pattern))
    return [Module(path.relative_to(root), path.read_text(encoding="utf-8")) for path in paths]


def imports_of(module: Module, module_by_name: Mapping[str, Module]) -> set[str]:
    """Return the names of the `module_by_name` modules that `module` imports anywhere in its text, itself left out."""
    names: set[str] = set()
    for node in module.nodes:
        if isinstance(node, ast.Import):
            names |= {_longest(alias.name, module_by_name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = base_of(module, node)
            # `from package import module` reads the module, `from module import name` the module that stands first.
            names |= {_longest(f"{base}.{alias.name}", module_by_name) for alias in node.names}
    return names - {module.name, ""}


def base_of(module: Module, node: ast.ImportFrom) -> str:
    """Return the absolute name of the module that an import of names reads."""
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    above = parts[: len(parts) - node.level + module.is_init]
    return ".".join([*above, *([node.module] if node.module else [])])


def _longest(name: str, module_by_name: Mapping[str, Module]) -> str:
    while name and name not in module_by_name:
        name = name.rpartition(".")[0]
    return name


def arrows_between_rooms(
    imports: Mapping[str, Iterable[str]], module_by_name: Mapping[str, Module]
) -> dict[str, Arrows]:
    """Return per package the pairs (importing room, imported room)."""
    arrows: dict[str, Arrows] = defaultdict(set)
    for name, targets in imports.items():
        module = module_by_name[name]
        for target in (module_by_name[candidate] for candidate in targets):
            if not module.is_init and module.package == target.package and module.room != target.room:
                arrows[module.package].add((module.room, target.room))
    return arrows


def circles(arrows: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the strongly connected groups of more than one name (Tarjan 1972)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    open_nodes: list[str] = []
    groups: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        open_nodes.append(node)
        for target in arrows.get(node, ()):
            if target not in order:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in open_nodes:
                low[node] = min(low[node], order[target])
        if low[node] == order[node]:
            place = open_nodes.index(node)
            group = open_nodes[place:]
            del open_nodes[place:]
            if len(group) > 1:
                groups.append(sorted(group))

    for node in sorted(arrows):
        if node not in order:
            visit(node)
    return sorted(groups)


def code_lines(module: Module) -> int:
    """Count the lines of code. A string over several lines counts every one of them, a docstring counts none."""
    numbers: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type not in _LAYOUT:
            numbers.update(range(token.start[0], token.end[0] + 1))
    for node in module.nodes:
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            numbers.difference_update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return len(numbers)


def scheme_branches(nodes: Iterable[ast.AST]) -> int:
    """Count comparisons with a scheme's name where the other side speaks of a scheme, and matches on a scheme."""
    count = 0
    for node in nodes:
        if isinstance(node, ast.Compare):
            names = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
            count += bool(names & SCHEMES) and "scheme" in ast.unparse(node)
        elif isinstance(node, ast.Match):
            count += "scheme" in ast.unparse(node.subject)
    return count


def functions(modules: Iterable[Module]) -> Iterator[tuple[Function, str]]:
    """Yield every function and its place as "path:name"."""
    for module in modules:
        for node in module.nodes:
            if isinstance(node, Function):
                yield node, f"{module.path.as_posix()}:{node.name}"


def decisions(function: Function) -> int:
    """Return 1 + the decisions of a function, nested functions included."""
    count = 1
    for node in ast.walk(function):
        if isinstance(node, _DECISIONS):
            count += 1
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
    return count


def mccabe(root: Path, packages: Sequence[str]) -> list[tuple[int, str]]:
    """Ask ruff for the complexity of every function, as (complexity, "path:name")."""
    folders = [package for package in packages if (root / package).is_dir()]
    if not folders:
        return []
    options = ("--isolated", "--no-cache", "--ignore-noqa", "--exit-zero", "--output-format=json", "--select=C901")
    command = [sys.executable, "-m", "ruff", "check", *options, "--config=lint.mccabe.max-complexity=0", *folders]
    process = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if process.returncode:
        raise MeasurementError(f"ruff did not measure the complexity: {process.stderr.strip()}")
    measured: list[tuple[int, str]] = []
    for entry in json.loads(process.stdout):
        if match := re.match(r"`(.+)` is too complex \((\d+) > 0\)", entry["message"]):
            path = Path(entry["filename"]).relative_to(root.resolve()).as_posix()
            measured.append((int(match[2]), f"{path}:{match[1]}"))
    return measured


def defined_twice(modules: Iterable[Module]) -> dict[str, list[str]]:
    """Return class names at the top of a module and their modules, where there are several."""
    places: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name].add(module.name)
    return {name: sorted(homes) for name, homes in sorted(places.items()) if len(homes) > 1}


def public_names(root: Path, package: str = "wardround") -> set[str]:
    """Return the names that the type stub of `package` offers. A name that begins with _ offers it without the _."""
    path = root / package.replace(".", "/") / "__init__.pyi"
    if not path.exists():
        return set()
    names: set[str] = set()
    for node in Module(path.relative_to(root), path.read_text(encoding="utf-8")).tree.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                names |= public_names(root, str(node.module)) if alias.name == "*" else {alias.asname or alias.name}
    return {name.lstrip("_") for name in names}


def untested(root: Path, modules: Iterable[Module]) -> list[str]:
    """Return the paths of the large modules whose dotted name stands in no file of the tests."""
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (root / "tests").rglob("*.py"))
    large = [module for module in modules if module.lines > SMALL_MODULE and not module.is_init]
    return [module.path.as_posix() for module in large if module.name not in tests]


def figures(root: Path) -> dict[str, Any]:
    """Measure the tree under `root`. See the top of this file for the meaning of each figure."""
    root = root.resolve()
    modules = modules_of(root)
    module_by_name = {module.name: module for module in modules}
    packages = sorted({module.package for module in modules})
    imports = {module.name: sorted(imports_of(module, module_by_name)) for module in modules}
    rooms = arrows_between_rooms(imports, module_by_name)
    named_modules = [m for m in modules if m.path.name not in ("__init__.py", "__main__.py")]
    mirrored = [m for m in named_modules if (root / "tests" / m.path.parent / f"test_{m.path.name}").exists()]
    sizes = {package: sum(m.lines for m in modules if m.package == package) for package in packages}
    total = sum(sizes.values())
    largest = max(sizes, key=lambda package: sizes[package], default="")
    remarks = sum(line.lstrip().startswith("#") for module in modules for line in module.text.splitlines())
    sources = modules + modules_of(root, "*.pyi")
    code = {package: sum(code_lines(m) for m in sources if m.package == package) for package in packages}
    return {
        "modules": len(modules),
        "lines": total,
        "packages": sizes,
        "largest_package": {"package": largest, "percent": _percent(sizes.get(largest, 0), total)},
        "code_lines": code | {"all": sum(code.values())},
        "arrows": {package: len(rooms[package]) for package in packages},
        "arrows_per_module": round(sum(map(len, imports.values())) / max(1, len(modules)), 2),
        "circles": circles(imports),
        "arrow_circles": {package: circles(_targets(rooms[package])) for package in packages},
        "flat": {package: sum(m.path.parent == Path(package) for m in modules) for package in packages},
        "mirrored": _percent(len(mirrored), len(named_modules)),
        "untested": untested(root, modules),
        "scheme_branches": sum(scheme_branches(m.nodes) for m in modules if m.path.name != "schemes.py"),
        "comments": round(100 * remarks / max(1, total), 2),
        "twice": defined_twice(modules),
        "public_names": len(public_names(root)),
        "file_lines": _lengths([(m.lines, m.path.as_posix()) for m in modules], LONG_FILE),
        "function_lines": _lengths([(_length(node), place) for node, place in functions(modules)], LONG_FUNCTION),
        "mccabe": _lengths(mccabe(root, packages), COMPLEX),
        "decisions": _lengths([(decisions(node), place) for node, place in functions(modules)], COMPLEX),
    }


def _length(node: Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _percent(part: int, whole: int) -> float:
    return round(100 * part / max(1, whole), 1)


def _lengths(values: Sequence[tuple[int, str]], limit: int) -> dict[str, Any]:
    """Summarise (value, place): median, mean, 90th percentile, the largest, and how many are above `limit`."""
    numbers = sorted(value for value, _ in values) or [0]
    above = sum(number > limit for number in numbers)
    return {
        "median": statistics.median(numbers),
        "mean": round(statistics.mean(numbers), 1),
        "p90": numbers[int(0.9 * (len(numbers) - 1))],
        "max": numbers[-1],
        "largest": max(values, default=(0, ""))[1],
        "above": above,
        "above_percent": round(100 * above / len(numbers), 2),
    }


def limited(measured: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures that `quality.toml` limits, under their names there."""
    return {
        "largest_package_percent": measured["largest_package"]["percent"],
        "shipped_lines": measured["lines"],
        "arrows_per_module": measured["arrows_per_module"],
        "import_circles": len(measured["circles"]),
        "flat_modules": max(measured["flat"].values(), default=0),
        "mirrored_tests_percent": measured["mirrored"],
        "untested_large_modules": len(measured["untested"]),
        "scheme_branches": measured["scheme_branches"],
        "comments_per_100_lines": measured["comments"],
        "public_names": measured["public_names"],
        "file_lines_mean": measured["file_lines"]["mean"],
        "file_lines_p90": measured["file_lines"]["p90"],
        "file_lines_max": measured["file_lines"]["max"],
        "long_files": measured["file_lines"]["above"],
        "function_lines_p90": measured["function_lines"]["p90"],
        "function_lines_max": measured["function_lines"]["max"],
        "long_functions": measured["function_lines"]["above"],
        "mccabe_above_10_percent": measured["mccabe"]["above_percent"],
        "mccabe_max": measured["mccabe"]["max"],
        "decisions_above_10_percent": measured["decisions"]["above_percent"],
        "decisions_max": measured["decisions"]["max"],
    }


def _targets(arrows: Arrows) -> dict[str, list[str]]:
    return {room: sorted(target for first, target in arrows if first == room) for room, _ in arrows}


def record(path: Path, key: str, part: str, measured: Mapping[str, Any]) -> None:
    """Write `measured` as file[key][part] and keep everything else that stands there."""
    recorded = json.loads(path.read_text()) if path.exists() else {}
    recorded.setdefault(key, {})[part] = measured
    path.write_text(json.dumps(recorded, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=Path, default=Path())
    options = parser.parse_args()
    print(json.dumps(figures(options.root), indent=1))


if __name__ == "__main__":
    main()
