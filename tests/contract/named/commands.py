"""Command lines that a text names: every command, option, argument and choice of them exists."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any, cast

from typer import BadParameter
from typer.core import TyperGroup
from typer.main import get_command

from tests.contract.named.sources import ROOT, SOURCE, Piece
from wardround.cli.commands import COMMANDS, GROUPS
from wardround.cli.lazy import loaded
from wardround.cli.main import build
from wardround.installation import PACKAGES

FIRST_PARTY = (*PACKAGES, "research", "tests", "migrations")
# The rest of a line, up to what ends a command: a pipe, another command, a comment, the end of a sentence.
_LINE = re.compile(r"(^|[^\n]*?[^\w./\n-])(?<!from )(?<!import )wardround((?: +(?!< )[^\s|&;>#]+)+)", re.M)
# What stands before a command in a line of code. Elsewhere the word may be an argument, as in `docker stop wardround`.
_BEFORE = re.compile(r"(?:^|\$ |[|;&(]|\bapi |\bworker |[\"'`])\s*$")
_MODULE = re.compile(r"python3? -m ([\w.]+)((?: +[^\s|&;>#]+)*)")
_OPTION = re.compile(r"--[a-z][a-z0-9-]*[a-z0-9]")
_PLACEHOLDER = re.compile(r"[…\[\]{}<>=%]|^[A-Z_-]+$|\.\.\.")
# Texts that begin with the program's name and are no commands: names of the purposes of digests and draws.
_PURPOSES = ("seeded source", "seeded address", "simulated split", "table 1", "version of")
_END_OF_SENTENCE = re.compile(r"[.,:;)\"']+$")
# Values that a text leaves out or writes as …, N or FILE are no faults of it.
_LEFT_OUT = re.compile(r"^Missing |'1' is not|requires an argument|does not exist")
_USAGE_ERROR: Any = BadParameter.__mro__[1]
# Options of other programs that pages name alone.
_FOREIGN_OPTIONS = {"--scale", "--cov", "--unsafe-package", "--extra", "--build-arg"}


@cache
def root() -> TyperGroup:
    """Return the root command with every command imported."""
    return loaded(cast("TyperGroup", get_command(build())))


def command_lines(piece: Piece) -> Iterator[list[str]]:
    """Yield the words after `wardround` of every command line in a piece."""
    text = piece.text.replace("\\\n", " ")
    for before, words in _LINE.findall(text):
        if words.strip().startswith(_PURPOSES) or (piece.kind != "message" and not _BEFORE.search(before)):
            continue
        cleaned = [_END_OF_SENTENCE.sub("", word) if piece.kind == "message" else word for word in words.split()]
        yield [word for word in cleaned if word]


def wrong_commands(piece: Piece) -> Iterator[str]:
    """Yield a sentence for every command line that cannot be run as it is written."""
    if piece.kind in ("python", "toml"):
        return
    for words in command_lines(piece):
        if fault := _fault(words, is_prose=piece.kind == "message"):
            yield f"wardround {' '.join(words)}: {fault}"
    # `roster pin STUDY` without the program's name. A reference such as `query 3` is no command.
    words = piece.text.split() if piece.kind == "span" else []
    is_command = len(words) > 1 and words[0] in GROUPS and re.fullmatch(r"[a-z]{3,}", words[1])
    if is_command and f"{words[0]} {words[1]}" not in COMMANDS:
        yield f"{piece.text}: there is no such command"


def _fault(words: list[str], *, is_prose: bool) -> str | None:
    first = words[0]
    if first.startswith("-"):
        return None if first in ("--help", "--version") else "no such option"
    if _PLACEHOLDER.search(first):
        return None
    if first in GROUPS:
        group = cast("TyperGroup", root().commands[first])
        if len(words) == 1 or words[1] == "--help" or _PLACEHOLDER.search(words[1]):
            return None
        return _unparsable(group.commands.get(words[1]), words[2:], is_prose)
    if first not in root().commands and not re.fullmatch(r"[a-z-]+", first):
        return None
    return _unparsable(root().commands.get(first), words[1:], is_prose)


def _unparsable(command: Any, words: list[str], is_prose: bool) -> str | None:
    if command is None:
        return "no such command"
    if is_prose:
        # The sentence may go on after the command, so that its options alone are checked.
        known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        wrong = [word for word in words if _OPTION.fullmatch(word.partition("=")[0]) and word not in known]
        return f"no such option: {wrong[0]}" if wrong else None
    try:
        arguments = shlex.split(" ".join(words), comments=True)
    except ValueError:
        arguments = words
    try:
        # Dots at the end stand for any number of arguments, and before others for one.
        while arguments and arguments[-1] in ("…", "..."):
            arguments.pop()
        shown = [word for word in arguments if word != "--help"]
        command.make_context(command.name, ["1" if _is_placeholder(word) else word for word in shown])
    except _USAGE_ERROR as error:
        return None if _LEFT_OUT.search(error.format_message()) else error.format_message()
    return None


def _is_placeholder(word: str) -> bool:
    # Two dashes alone end the options.
    return word != "--" and _PLACEHOLDER.search(word) is not None


@cache
def _options() -> set[str]:
    """Return every option of the commands, of the scripts in the checkout and of `make demo`."""
    names = {"--help", "--version"}

    def collect(command: Any) -> None:
        for parameter in command.params:
            names.update((*parameter.opts, *parameter.secondary_opts))
        for inner in getattr(command, "commands", {}).values():
            collect(inner)

    collect(root())
    for package in (*SOURCE, "deploy", "tests/harness", "tests/vectors"):
        for path in (ROOT / package).rglob("*.py"):
            names.update(re.findall(r"add_argument\(\s*\"(--[a-z-]+)\"", path.read_text()))
    return names


def wrong_options(piece: Piece) -> Iterator[str]:
    """Yield a sentence for every option that stands alone and belongs to no command and no script."""
    if piece.kind == "span" and re.match(r"--[a-z]", piece.text):
        for option in _OPTION.findall(piece.text.replace("/", " ")):
            if option not in _options() | _FOREIGN_OPTIONS:
                yield f"{option}: no command and no script has this option"


def wrong_modules(piece: Piece) -> Iterator[str]:
    """Yield a sentence for every `python -m` of a module that does not exist, or of an option that it does not read."""
    for name, words in _MODULE.findall(piece.text.replace("\\\n", " ")):
        module = name.rstrip(".")
        if module.split(".")[0] not in FIRST_PARTY:
            continue
        path = ROOT / f"{module.replace('.', '/')}.py"
        package = ROOT / module.replace(".", "/") / "__main__.py"
        if not path.exists() and not package.exists():
            yield f"python -m {module}: there is no such module"
            continue
        source = (path if path.exists() else package).read_text()
        for option in _OPTION.findall(words):
            if f'"{option}"' not in source and not _is_read_elsewhere(source, option):
                yield f"python -m {module} {option}: it does not read this option"


def _is_read_elsewhere(source: str, option: str) -> bool:
    """Return whether a module that this one imports reads the option."""
    for name in re.findall(r"^from ((?:research|tests|wardround)[\w.]*) import", source, re.M):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None and f'"{option}"' in (ROOT / spec.origin).read_text():
            return True
    return False
