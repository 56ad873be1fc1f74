"""The glossary names every command and every scheme, and explains each word once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from accounting.plan.schemes import SCHEMES
from wardround.cli.main import build

GLOSSARY = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text()
COMMANDS = set(re.findall(r"`([a-z -]+)`", GLOSSARY.split("## Commands")[1]))


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    parts = getattr(command, "commands", None)
    if parts is None:
        yield " ".join(path)
        return
    for name, part in parts.items():
        yield from _commands(part, (*path, name))


def test_every_command_is_named_and_no_other() -> None:
    assert set(_commands(get_command(build()))) == COMMANDS


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_has_its_plain_title(scheme: str) -> None:
    (row,) = re.findall(rf"^\| `{scheme}` \| ([^|]+) \|", GLOSSARY, re.M)
    assert row == SCHEMES[scheme].title


def test_every_word_is_explained_once() -> None:
    tables = GLOSSARY.split("## Commands")[0]
    words = [word.strip().lower() for word in re.findall(r"^\| ([^|]+) \|", tables, re.M)]
    words = [word for word in words if word not in ("word", "id") and set(word) - {"-"}]
    assert len(words) > 50
    assert len(set(words)) == len(words)
