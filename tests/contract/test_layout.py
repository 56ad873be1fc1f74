"""The import law, and what an import may cost: checked on the real import graph and in fresh interpreters."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import grimp
import pytest

from wardround.installation import PACKAGES

ROOT = Path(__file__).parents[2]
HERE = sorted(name for name in PACKAGES if (ROOT / name / "__init__.py").exists())
TOOLS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]


@cache
def _graph() -> grimp.ImportGraph:
    return grimp.build_graph(*HERE, include_external_packages=True, cache_dir=None)


def _imports(importer: str) -> set[str]:
    """Everything that the modules at and below `importer` import directly."""
    graph = _graph()
    modules = {module for module in graph.modules if module == importer or module.startswith(f"{importer}.")}
    assert modules, f"{importer} is empty"
    return set().union(*(graph.find_modules_directly_imported_by(module) for module in modules)) - modules


def _below(modules: set[str], *packages: str) -> set[str]:
    return {m for m in modules if any(m == package or m.startswith(f"{package}.") for package in packages)}


def test_the_declared_contracts_hold() -> None:
    run = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout


def _words(path: Path, pattern: str) -> list[str]:
    return [word for word in re.findall(pattern, path.read_text(), re.M) if word in PACKAGES]


@pytest.mark.parametrize(
    "listed",
    [
        TOOLS["hatch"]["build"]["targets"]["wheel"]["packages"],
        TOOLS["coverage"]["run"]["source_pkgs"],
        TOOLS["pyright"]["include"],
        TOOLS["pyright"]["strict"],
        TOOLS["importlinter"]["root_packages"],
        _words(ROOT / "Dockerfile", r"^COPY (\w+) \1$"),
        _words(ROOT / ".dockerignore", r"^!(\w+)$"),
    ],
    ids=["wheel", "coverage", "pyright", "pyright strict", "import-linter", "Dockerfile", ".dockerignore"],
)
def test_every_package_is_known_to_every_tool(listed: list[str]) -> None:
    assert sorted(listed) == HERE


def test_accounting_is_pure() -> None:
    imports = _imports("accounting")
    assert not _below(imports, "torch", "fastapi", "sqlalchemy", "httpx", "pydantic")
    assert not _below(imports, "time", "datetime", "socket", "os", "random", "secrets")


def test_the_protocol_stands_alone() -> None:
    """Documents apart: a certificate is computed from a ledger's entries, by the budget's own code."""
    rooms = [path.name for path in (ROOT / "study_protocol").iterdir() if path.is_dir() and path.name[0] != "_"]
    imports = set[str]().union(*(_imports(f"study_protocol.{room}") for room in rooms if room != "documents"))
    imports = {name for name in imports if not name.startswith("study_protocol")}
    allowed = ("accounting.plan", "accounting.units", "accounting.values", "accounting.errors")
    assert _below(imports, *PACKAGES) == _below(imports, *allowed)
    assert not _below(imports, "torch", "httpx", "fastapi", "sqlalchemy", "scipy", "dp_accounting")


def test_the_plan_is_pure() -> None:
    """What both sides of the wire may import: numbers, words, and nothing that computes."""
    imports = _imports("accounting.plan")
    assert _below(imports, "accounting") == _below(
        imports, "accounting.units", "accounting.values", "accounting.errors"
    )
    assert not _below(imports, "numpy", "scipy", "dp_accounting", "mpmath")


def test_the_coordinator_knows_accounting_the_protocol_and_how_a_certificate_is_computed_only() -> None:
    """What it signs and what others compute again from the ledger must be one function."""
    ours = _below(_imports("server"), *PACKAGES)
    assert ours == _below(ours, "accounting", "study_protocol", "study_protocol.documents.certify", "synthesis")
    assert not _below(_imports("server"), "torch")


def test_the_coordinator_asks_others_for_single_sign_on_only() -> None:
    importers = _graph().find_modules_that_directly_import("httpx") | _graph().find_modules_that_directly_import(
        "authlib"
    )
    room = "server.single_sign_on"
    assert _below(importers, "server") == {f"{room}.provider_http", f"{room}.authlib_calls"}


@pytest.mark.parametrize("package", [name for name in HERE if name not in ("wardround", "simulation")])
def test_nobody_imports_what_stands_at_the_top(package: str) -> None:
    assert not _below(_imports(package), "wardround", "simulation")


def test_experiments_and_benchmarks_alone_import_a_simulation() -> None:
    importers = {
        path.relative_to(ROOT).parts[0]
        for path in ROOT.glob("[!.]*/**/*.py")
        if re.search(r"^\s*(from|import) simulation\b", path.read_text(), re.M)
    }
    assert importers <= {"simulation", "wardround", "research", "tests"}


def test_the_domain_knows_no_database_no_web_no_clock() -> None:
    imports = _imports("server.domain")
    outside = ("sqlalchemy", "alembic", "psycopg", "fastapi", "starlette", "uvicorn", "httpx")
    assert not _below(imports, *outside, "time", "random", "server.db", "server.services", "server.api")
    assert not _below(_graph().find_modules_that_directly_import("pathlib"), "server.domain")


def test_the_domain_never_asks_what_time_it_is() -> None:
    for path in (ROOT / "server" / "domain").glob("*.py"):
        names = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        assert names.isdisjoint({"now", "utcnow", "today", "monotonic", "perf_counter"}), path.name


def _modules(package: str) -> list[str]:
    paths = sorted((ROOT / package.replace(".", "/")).rglob("*.py"))
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    # Single sign-on is imported where a provider is set, and needs an extra.
    left_out = ("server.migrations", "server.single_sign_on", "study_protocol.documents")
    return [name.removesuffix(".__init__") for name in names if not name.startswith(left_out)]


@pytest.mark.quick("accounting-absent1", "study_protocol-absent0")
@pytest.mark.parametrize(
    ("package", "absent"),
    [
        ("study_protocol", ["torch", "httpx", "fastapi", "sqlalchemy", "scipy", "dp_accounting"]),
        ("accounting", ["torch", "httpx", "fastapi", "sqlalchemy", "pydantic"]),
        ("server", ["torch", "httpx"]),
    ],
)
def test_importing_everything_of_a_package_loads_only_what_it_may(package: str, absent: list[str]) -> None:
    program = (
        f"import sys, importlib\nfor name in {_modules(package)!r}: importlib.import_module(name)\n"
        f"sys.exit(', '.join(sorted(set({absent!r}) & set(sys.modules))) or 0)"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, f"{package} loads {run.stderr}"
