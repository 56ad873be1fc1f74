"""Python that a text shows or names: imports, names of examples, dotted names, calls, and words of the source."""

from __future__ import annotations

import ast
import builtins
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.contract.named.sources import ROOT, SOURCE, Piece, parsed
from wardround.installation import PACKAGES

PUBLIC = ("wardround", "wardround.accounting", "wardround.learning", "wardround.queries")
_DOTTED = re.compile(rf"^((?:{'|'.join((*PACKAGES, 'research', 'tests'))})(?:\.\w+)+)(?:\(.*)?$")
_IMPORT = re.compile(r"^(?:from [\w.]+ )?import [\w., ()]+$")
_CALL = re.compile(r"^(?:[\w.]+ = )?((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)\(.*\)(?:\.\w+(?:\(.*\))?)*$")
_WORD = re.compile(r"^[a-z][a-z0-9]*(?:[_-][a-z0-9]+)+$")
# Groups of entry points in a package's pyproject.toml.
_GROUPS = {"wardround.tasks", "wardround.backbones"}
# Words of other programs and of this one's past: Opacus and dp_accounting, the papers, PostgreSQL, Keycloak, NVFlare,
# InterpretML, examples.
_FOREIGN_WORDS = frozenset(
    """
    target_epsilon clipping_norm guaranteed_noise_std sample_rate num_shares reconstruction_threshold
    get_noise_multiplier eps_delta_calibrator archive_timeout synchronous_standby_names pg_wal length-of-stay
    wardround_rounds_total wardround_session_failures_total pinned_roster unknown-graph smartnoise-synth
    wardround-dedicated importlib-metadata to_jsonable
    apply_filters before_task_sent_cb control_flow default_scope result_received_cb task_data_filters task_done_cb
    task_result_filters
    """.split()  # noqa: SIM905 - a list of words is easier to read
)
_FOREIGN_CALLS = {
    *("get_delta", "get_approxDP", "ExactGaussianMechanism", "pytest.param"),
    # FHIRPath's.
    *("getReferenceKey", "today"),
    # InterpretML's and NVFlare's.
    *("ExplainableBoostingClassifier", "DXOFilter.process_dxo"),
}
_FOREIGN = re.compile(r"^(?:torch|nn|numpy|np|pandas|PIL|functional|random|jax|opacus|flwr|hashlib|datetime)\b")


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # A module that needs a package which is not installed here exists all the same.
        return None if error.name is not None and name.startswith(error.name) else ModuleType(name)


def is_dotted_name(name: str) -> bool:
    """Return whether a module, or a name in it, has this dotted name. `research.x` may need packages of its own."""
    path = ROOT / name.replace(".", "/")
    if path.with_suffix(".py").exists() or path.is_dir():
        return True
    words = name.split(".")
    for end in range(len(words) - 1, 0, -1):
        value: Any = _module(".".join(words[:end]))
        if value is None:
            continue
        for word in words[end:]:
            if not hasattr(value, word) and word not in getattr(value, "model_fields", {}):
                return word in getattr(value, "__annotations__", {})
            value = getattr(value, word, None)
        return True
    return False


def wrong_imports(piece: Piece) -> Iterator[str]:
    """Yield a sentence for every import that fails, and for every one that pages should not show."""
    if (piece.kind == "python" and piece.is_page) or (piece.kind == "span" and _IMPORT.match(piece.text)):
        tree = ast.parse(piece.text)
    else:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            package = name.split(".")[0]
            if package in PACKAGES and not is_dotted_name(name):
                yield f"{name}: it cannot be imported"
            elif isinstance(node, ast.ImportFrom) and node.module in (*PACKAGES, *PUBLIC) and not _is_public(name):
                yield f"{name}: pages import from {', '.join(PUBLIC)} alone"


def _is_public(name: str) -> bool:
    module, _, attribute = name.rpartition(".")
    if module not in PUBLIC:
        return False
    return attribute in importlib.import_module(module).__all__


def wrong_names(piece: Piece) -> Iterator[str]:
    """Yield a sentence for every dotted name, call and word of code that does not exist."""
    if piece.kind != "span":
        return
    if dotted := _DOTTED.match(piece.text):
        name = dotted[1].rstrip(".")
        if not name.endswith((".toml", ".py", ".db", ".md", ".json")) and not (name in _GROUPS or is_dotted_name(name)):
            yield f"{dotted[1]}: there is no such module or name"
    elif (call := _CALL.match(piece.text)) and not _FOREIGN.match(piece.text) and call[1] not in _FOREIGN_CALLS:
        yield from _wrong_call(piece.text, call[1])
    elif _WORD.match(piece.text) and not ({piece.text, *_stems(piece.text)} & (words() | _FOREIGN_WORDS)):
        yield f"{piece.text}: no program has this word"


def _stems(word: str) -> Iterator[str]:
    """Yield the beginnings of a word that a program completes, such as `probability_` for `probability_yes`."""
    yield from (stem for stem in ("probability_", "survival_") if word.startswith(stem))


def _wrong_call(text: str, name: str) -> Iterator[str]:
    last = name.rpartition(".")[2]
    if last not in words() and not hasattr(builtins, last):
        yield f"{text}: there is no function {last}"
    try:
        tree = ast.parse(text.replace("…", "..."))
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg is not None and node.arg not in words():
            yield f"{text}: no function has the argument {node.arg}"


@cache
def words() -> frozenset[str]:
    """Return every word of the source outside of docstrings and comments, and of the files that come with it."""
    collected: set[str] = set()
    for package in (*SOURCE, "migrations", "tests/harness", "tests/vectors"):
        for path in (ROOT / package).rglob("*"):
            if path.suffix == ".py":
                collected |= _words_of_program(path)
            elif path.suffix in (".js", ".html", ".css", ".sql", ".typ") and "bundle" not in path.parts:
                collected |= set(re.findall(r"[\w-]+", path.read_text()))
    others = [*ROOT.glob("*.toml"), *(ROOT / "deploy").rglob("*"), *ROOT.glob("docker*"), ROOT / "Makefile"]
    for path in (path for path in others if path.is_file()):
        collected |= set(re.findall(r"[\w-]+", path.read_text()))
    return frozenset(collected)


def _words_of_program(path: Path) -> set[str]:
    """Return names and the words of strings. Docstrings and quoted names are no witnesses."""
    tree = parsed(path.read_text())
    prose = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    collected = set(re.findall(r"\w+", path.stem))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in prose:
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            text = re.sub(r"`[^`\n]*`", "", text)
            collected |= set(re.findall(r"[\w-]+", text)) | set(re.findall(r"\w+", text))
        elif isinstance(node, ast.AST):
            # Names of definitions, variables, attributes, arguments and keywords are strings of their node.
            names = (getattr(node, field, None) for field in ("name", "id", "attr", "arg", "module", "asname", "rest"))
            collected |= {part for name in names if isinstance(name, str) for part in name.split(".")}
    return collected


def examples(pieces: Iterable[Piece]) -> dict[str, str]:
    """Return the examples of every page as one program, in their order."""
    programs: dict[str, str] = {}
    for piece in pieces:
        if piece.kind == "python" and piece.is_page:
            programs[piece.place] = f"{programs.get(piece.place, '')}\n{piece.text}"
    return programs


def undefined_names(programs: dict[str, str], folder: Path, given: dict[str, str]) -> list[str]:
    """Return what a type checker says about the examples: unknown names, attributes, arguments.

    Args:
        folder: an empty folder for the programs and the type checker's settings.
        given: page -> the lines that a page takes as given, such as `token = ""`.
    """
    for place, program in programs.items():
        name = re.sub(r"\W", "_", place)
        (folder / f"{name}.py").write_text(f"{given.get(place, '')}\n{program}")
    rules = ("UndefinedVariable", "AttributeAccessIssue", "CallIssue", "MissingImports")
    about = {f"report{rule}": "error" for rule in rules} | {"typeCheckingMode": "off", "extraPaths": [str(ROOT)]}
    (folder / "pyrightconfig.json").write_text(json.dumps(about))
    checker = [str(Path(sys.executable).with_name("pyright")), "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run([*checker, "-p", str(folder)], capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    return [f"{Path(one['file']).stem}: {one['message']}" for one in found if one["severity"] == "error"]
