"""The import law, and what an import may cost: checked on the real import graph and in fresh interpreters."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]


@cache
def _graph() -> grimp.ImportGraph:
    return grimp.build_graph("accounting", "client_sdk", "server", include_external_packages=True, cache_dir=None)


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


def test_accounting_is_pure() -> None:
    imports = _imports("accounting")
    assert not _below(imports, "client_sdk", "server", "torch", "fastapi", "sqlalchemy", "httpx", "pydantic")
    assert not _below(imports, "time", "datetime", "socket", "os", "random", "secrets")


def test_the_protocol_stands_alone() -> None:
    imports = _imports("client_sdk.protocol")
    allowed = ("accounting.plan", "accounting.units", "accounting.errors")
    assert _below(imports, "accounting", "client_sdk", "server") == _below(imports, *allowed)
    assert not _below(imports, "torch", "httpx", "fastapi", "sqlalchemy", "scipy", "dp_accounting")


def test_the_plan_is_pure() -> None:
    """What both sides of the wire may import: numbers, words, and nothing that computes."""
    imports = _imports("accounting.plan")
    assert _below(imports, "accounting") == _below(imports, "accounting.units", "accounting.errors")
    assert not _below(imports, "numpy", "scipy", "dp_accounting", "mpmath")


def test_the_coordinator_knows_accounting_and_the_protocol_only() -> None:
    ours = _below(_imports("server"), "accounting", "client_sdk")
    assert all(m.startswith(("accounting", "client_sdk.protocol")) for m in ours), ours
    assert not _below(_imports("server"), "torch", "httpx")


def test_the_domain_knows_no_database_no_web_no_clock() -> None:
    imports = _imports("server.domain")
    outside = ("sqlalchemy", "alembic", "psycopg", "fastapi", "starlette", "uvicorn", "httpx", "pathlib")
    assert not _below(imports, *outside, "time", "random", "server.db", "server.services", "server.api")


def test_the_domain_never_asks_what_time_it_is() -> None:
    for path in (ROOT / "server" / "domain").glob("*.py"):
        names = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        assert names.isdisjoint({"now", "utcnow", "today", "monotonic", "perf_counter"}), path.name


def _modules(package: str) -> list[str]:
    paths = sorted((ROOT / package.replace(".", "/")).rglob("*.py"))
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    return [name.removesuffix(".__init__") for name in names if not name.startswith("server.migrations")]


@pytest.mark.parametrize(
    ("package", "absent"),
    [
        ("client_sdk.protocol", ["torch", "httpx", "fastapi", "sqlalchemy", "scipy", "dp_accounting"]),
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


def test_importing_the_sdk_is_lazy() -> None:
    program = "import sys, client_sdk; sys.exit(', '.join({'torch', 'httpx', 'pydantic'} & set(sys.modules)) or 0)"
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, f"client_sdk loads {run.stderr}"
