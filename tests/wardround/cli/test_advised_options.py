"""What a message tells a person to type exists: options, commands, and options of the command that shows it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import typer

import client_sdk
from wardround.cli import main
from wardround.cli.lazy import loaded

ROOT = Path(client_sdk.__file__).parents[1]
PACKAGES = ("accounting", "study_protocol", "private_learning", "client_sdk", "server", "simulation", "wardround")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]\b")
# Of other programs, or of none.
OTHERS = {"--no-binary", "--upgrade", "--"}
# Of systemd and Podman, and of a server of MLflow.
OTHERS |= {"--system", "--umask", "--now", "--unit", "--follow", "--artifacts-destination"}
# Colours of a page: variables of its style sheet.
OTHERS |= {"--alarm", "--bar", "--line"}


@cache
def commands() -> dict[str, Any]:
    """Every command by what is typed behind `wardround`."""
    found: dict[str, Any] = {}

    def walk(command: Any, path: tuple[str, ...]) -> None:
        if hasattr(command, "commands"):
            for name, inner in command.commands.items():
                walk(inner, (*path, name))
        else:
            found[" ".join(path)] = command

    walk(loaded(typer.main.get_command(main.build())), ())
    return found


def options(command: Any) -> set[str]:
    return {"--help"} | {name for one in command.params for name in (*one.opts, *one.secondary_opts)}


def texts(path: Path) -> Iterator[str]:
    """Every text of a module that is no docstring; {} stands for what a format puts in."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not {id(node)} & (inner | said):
            yield node.value


def modules(*within: str) -> list[Path]:
    return sorted(path for package in within for path in (ROOT / package).rglob("*.py"))


@pytest.mark.slow
def test_every_option_that_is_named_anywhere_is_one_of_some_command() -> None:
    known = set[str]().union(*map(options, commands().values())) | OTHERS | {"--version"}
    wrong = {
        f"{path.relative_to(ROOT)}: {option}"
        for path in modules(*PACKAGES)
        for text in texts(path)
        for option in OPTION.findall(text)
        if option not in known
    }
    assert not wrong


def test_every_command_that_is_advised_exists_and_has_the_options_that_stand_behind_it() -> None:
    seen, wrong = 0, list[str]()
    for path in modules(*PACKAGES):
        for text in texts(path):
            for quoted in re.findall(r"`wardround ([a-z][^`]*)`", text):
                words = quoted.split()
                fits = [" ".join(words[:count]) for count in range(len(words), 0, -1)]
                name = next((one for one in fits if one in commands()), None)
                groups = {one.rpartition(" ")[0] for one in commands()}
                seen += 1
                if name is None and fits[-1] not in groups:
                    wrong.append(f"{path.relative_to(ROOT)}: there is no command {quoted}")
                elif name is not None:
                    missing = set(OPTION.findall(quoted)) - options(commands()[name])
                    wrong += [f"{path.relative_to(ROOT)}: {name} has no {one}" for one in missing]
    assert seen > 20
    assert not wrong


def reads_records(command: Any) -> bool:
    hints = get_type_hints(command.callback)
    return any("Path" in str(hints.get(name)) for name in ("data", "records"))


def test_every_command_that_reads_records_has_the_options_that_their_reader_advises() -> None:
    readers = {name for name, command in commands().items() if reads_records(command)}
    assert readers == {
        "join",
        "data check",
        "data columns",
        "objection add",
        "objection letter",
        "try",
        "simulate",
        "predict",
        "evaluate",
        "export",
        "adapt",
        "audit",
    }
    advised = {
        one for path in modules("private_learning/records") for text in texts(path) for one in OPTION.findall(text)
    }
    assert "--encoding" in advised
    for name in readers:
        assert advised <= options(commands()[name]), name


@pytest.mark.parametrize(
    "name", ["model", "plan", "suggest", "study", "templates", "ask", "query", "certificate", "card"]
)
def test_a_command_module_advises_options_of_its_own_commands_alone(name: str) -> None:
    (file,) = (ROOT / "wardround" / "cli").glob(f"*/{name}.py")
    path = f"wardround.cli.{file.parent.name}.{name}"
    # `suggest` is what `plan --suggest` says. What stands behind `wardround` is tested above.
    owner = "wardround.cli.lead.plan" if name == "suggest" else path
    own = [one for one in commands().values() if one.callback is not None and _module(one) == owner]
    assert own
    known = set[str]().union(*map(options, own))
    said = [re.sub(r"`[^`]*`|wardround .*", "", text) for text in texts(file)]
    unknown = {option for text in said for option in OPTION.findall(text)} - known
    assert unknown <= {"--i-know"}


def _module(command: Any) -> str:
    callback = command.callback
    return getattr(getattr(callback, "__wrapped__", callback), "__module__", "")
