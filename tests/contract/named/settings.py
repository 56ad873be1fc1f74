"""Settings that a text names: sections and entries of settings files, variables of the environment, routes, files."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from client_sdk.api.config import ClientSettings
from client_sdk.guard.policy import SitePolicy
from record_sources.source_file.description import SourceFile
from server.app import ROUTERS
from server.config import Settings
from server.single_sign_on.grants import GrantsFile
from study_protocol.documents.card import Notes
from study_protocol.queries.kinds import Question
from study_protocol.study.settings import StudySettings
from tests.contract.named.sources import ROOT, SOURCE, Piece, parsed
from wardround.cli.lead.ready_questions import ColumnsFile

_SECTION = re.compile(r"^\[{1,2}([a-z_]+(?:\.[a-z_]+)*)\]{1,2}(?: ([a-z_]+)(?: = .*)?)?$")
_ENTRY = re.compile(r"^([a-z][a-z_]*(?:\.[a-z_]+)*) = (?:[\"\[{]|[\d.]+$|true|false)")
_DOTTED = re.compile(r"^[a-z_]+(?:\.[a-z_]+)+$")
_VARIABLE = re.compile(r"\bWARDROUND_[A-Z][A-Z_]*[A-Z]\b")
_READ = re.compile(r"(?:environ[^\n]*?|getenv\(|\$\{?|^\s*)[\"']?(WARDROUND_[A-Z_]+)", re.M)
_ROUTE = re.compile(
    r"(?:^|[\s\"'`(])(?:https?://[\w.:…-]+)?(/v1/[\w/{}<>….-]*|/dashboard(?:/[\w.{}-]*)?|/[a-z]+z)(?=$|[\s\"'`?),])"
)
_EXTRA = re.compile(r"wardround\[([a-z,]+)\]")
_TARGET = re.compile(r"(?:^|\$ |`)make ([a-z][a-z-]*)", re.M)
# Tables of TOML that other programs read, as in the pyproject.toml of a task's package.
# Pieces of patterns and lists in brackets.
_NO_SECTIONS = {"[abc]"}
_FOREIGN_TABLES = {"build-system", "project", "tool"}
_FOLDERS = ("docs", "tests", "research", "deploy", "migrations", "server", "accounting", "study_protocol",
            "private_learning", "synthesis", "client_sdk", "simulation", "wardround")  # fmt: skip
# Files that a reader makes.
_MADE = {"deploy/secrets/database_password"}
_PAGE = re.compile(r"(?<![\w/])docs/[\w/-]+\.(?:md|toml|ipynb)")
_FILE = re.compile(rf"^(?:\.\./)?((?:{'|'.join(_FOLDERS)})/[\w./*-]+)$")


@cache
def schemas() -> Mapping[str, dict[str, Any]]:
    """Return the schema of every kind of file that people write."""
    models = {
        "study": StudySettings,
        "policy": SitePolicy,
        "card": Notes,
        "columns": ColumnsFile,
        "source": SourceFile,
        "grants": GrantsFile,
    }
    schemas = {name: model.model_json_schema() for name, model in models.items()}
    return schemas | {"question": TypeAdapter(Question).json_schema(), "mapping": _mapping_schema()}


def _mapping_schema() -> dict[str, Any]:
    """Return the schema of columns.toml of a hospital, whose columns have any names."""
    codes = {"additionalProperties": {"type": "string"}}
    entry = {"properties": {"map": codes, **{name: {} for name in ("from", "multiply", "add", "missing", "days_from")}}}
    columns = {"additionalProperties": entry}
    return {"properties": {"columns": columns, "events": {"additionalProperties": columns}}}


def _kinds(node: Any, root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the objects that a node of a schema may be, through references, choices and lists."""
    if "$ref" in node:
        yield from _kinds(root["$defs"][node["$ref"].rpartition("/")[2]], root)
        return
    for choice in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        yield from _kinds(choice, root)
    if isinstance(node.get("items"), dict):
        yield from _kinds(node["items"], root)
    if "properties" in node or _of_any_name(node):
        yield node


def _of_any_name(node: dict[str, Any]) -> list[Any]:
    """Return the schemas of entries whose names are free, such as the parameters of a task."""
    schemas = [*node.get("patternProperties", {}).values(), node.get("additionalProperties")]
    return [schema for schema in schemas if isinstance(schema, dict)]


def _is_entry(path: list[str], root: dict[str, Any]) -> bool:
    """Return whether a schema has the entry at this path."""
    nodes = list(_kinds(root, root))
    for name in path:
        below: list[dict[str, Any]] = []
        for node in nodes:
            properties = node.get("properties", {})
            if name in properties:
                below += [*_kinds(properties[name], root), {}]
            elif free := _of_any_name(node):
                below += [*(kind for schema in free for kind in _kinds(schema, root)), {}]
        if not below:
            return False
        nodes = below
    return True


def is_setting(path: str) -> bool:
    """Return whether a file that people write has an entry at this path from its top."""
    return any(_is_entry(path.split("."), schema) for schema in schemas().values())


@cache
def entry_names() -> frozenset[str]:
    """Return the name of every entry in any section."""
    names: set[str] = set(Settings.model_fields) | set(ClientSettings.model_fields)

    def collect(node: Any) -> None:
        if isinstance(node, dict):
            names.update(node.get("properties", {}))
            for value in node.values():
                collect(value)
        elif isinstance(node, list):
            for value in node:
                collect(value)

    for schema in schemas().values():
        collect(schema)
    return frozenset(names)


def _paths(table: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for name, value in table.items():
        path = f"{above}{name}"
        if "." in name:
            # A quoted name such as "column.age" is a parameter of a task.
            continue
        yield path
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, dict):
                yield from _paths(inner, f"{path}.")


def wrong_settings(piece: Piece) -> Iterator[str]:
    """Yield a sentence for every section and entry that no file of settings, rules, questions or notes has."""
    if piece.kind == "toml":
        table = tomllib.loads(piece.text)
        if not _FOREIGN_TABLES & set(table):
            paths = list(_paths(table))
            # All entries of one block belong to one kind of file.
            if not any(all(_is_entry(path.split("."), schema) for path in paths) for schema in schemas().values()):
                yield f"{', '.join(path for path in paths if not is_setting(path)) or paths}: no file has these entries"
    elif piece.kind == "span":
        yield from _wrong_in_span(piece)


def _wrong_in_span(piece: Piece) -> Iterator[str]:
    section = None if piece.text in _NO_SECTIONS else _SECTION.match(piece.text)
    if section is not None:
        path = ".".join(part for part in section.groups() if part)
        if not (is_setting(path) or any(is_setting(f"{above}.{path}") for above in ("privacy", "training"))):
            yield f"{piece.text}: there is no such section or entry"
    elif entry := _ENTRY.match(piece.text):
        names = entry[1].split(".")
        is_name = len(names) == 1 and (names[0] in entry_names() or names[0] in _parameters())
        if not is_name and not is_setting(entry[1]):
            yield f"{piece.text}: no file has this entry"
    elif _DOTTED.match(piece.text) and piece.text.split(".")[0] in schemas()["study"]["properties"]:
        yield from () if is_setting(piece.text) else (f"{piece.text}: there is no such entry",)


@cache
def _parameters() -> frozenset[str]:
    """Return names of parameters and attributes in the source: pages write arguments as they write entries."""
    names: set[str] = set()
    for package in SOURCE:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(parsed(path.read_text())):
                if isinstance(node, ast.arg):
                    names.add(node.arg)
                elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    names.add(node.target.id)
    return frozenset(names)


@cache
def _variables() -> frozenset[str]:
    """Return every variable that the coordinator, the commands and the scripts read."""
    names = {f"WARDROUND_{name.upper()}" for model in (Settings, ClientSettings) for name in model.model_fields}
    names |= {f"{name}_FILE" for name in names}
    paths = [path for package in (*SOURCE, "tests") for path in (ROOT / package).rglob("*.py")]
    scripts = [ROOT / "Makefile", ROOT / "docker-compose.yml", *(ROOT / "deploy").rglob("*")]
    for path in [*paths, *(script for script in scripts if script.is_file())]:
        if "contract" not in path.parts:
            names |= set(_READ.findall(path.read_text()))
    return frozenset(names)


def wrong_variables(piece: Piece) -> Iterator[str]:
    """Yield a sentence for every variable of the environment that no program reads."""
    for name in _VARIABLE.findall(piece.text):
        if name not in _variables():
            yield f"{name}: no program reads this variable"


@cache
def _routes() -> tuple[re.Pattern[str], ...]:
    paths = [str(getattr(route, "path", "")) for router in ROUTERS for route in router.routes]
    return tuple(re.compile(re.sub(r"\{[^}]+\}", "[^/]+", path) + "/?") for path in (*paths, "/static/.*"))


def wrong_routes(piece: Piece) -> Iterator[str]:
    """Yield a sentence for every address that the coordinator does not have."""
    for address in _ROUTE.findall(piece.text):
        address = address.rstrip(".")
        # A beginning such as /v1/studies/… stands for every address below.
        begins = address.endswith(("…", "/"))
        known = any(route.fullmatch(address) for route in _routes())
        if not known and not (begins and any(r.pattern.startswith(address.rstrip("…/")) for r in _routes())):
            yield f"{address}: the coordinator has no such address"


@cache
def _extras() -> set[str]:
    # The last one stands for any extra.
    return {*tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"], "extra"}


def wrong_extras(piece: Piece) -> Iterator[str]:
    """Yield a sentence for every extra of `pip install` that the package does not have."""
    for names in _EXTRA.findall(piece.text):
        for name in names.split(","):
            if name not in _extras():
                yield f"wardround[{name}]: there is no such extra"


@cache
def _targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.M))


def wrong_targets(piece: Piece) -> Iterator[str]:
    """Yield a sentence for every target that the Makefile does not have."""
    found = _TARGET.findall(piece.text) if piece.kind in ("span", "console", "text", "bash", "sh") else []
    for name in found:
        if piece.is_page and name not in _targets():
            yield f"make {name}: there is no such target"


def wrong_files(piece: Piece) -> Iterator[str]:
    """Yield a sentence for every file of the repository that does not exist."""
    for page in _PAGE.findall(piece.text):
        if not (ROOT / page).exists():
            yield f"{page}: there is no such page"
    file = _FILE.match(piece.text) if piece.kind == "span" and piece.is_page else None
    if file and file[1] not in _MADE and not any(ROOT.glob(file[1].rstrip("/"))):
        yield f"{piece.text}: there is no such file"
