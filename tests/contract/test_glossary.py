"""The glossary explains every setting of a study, every command and every scheme, and each word once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel
from typer.main import get_command

from accounting.plan.schemes import SCHEMES
from study_protocol.study.settings import Privacy, StudySettings
from wardround.cli.main import build

GLOSSARY = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text()
NAMES = set(re.findall(r"[a-z0-9_]+", " ".join(re.findall(r"`([^`]+)`", GLOSSARY))))
COMMANDS = set(re.findall(r"`wardround ([a-z -]+)`", GLOSSARY))


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _fields(model: type[BaseModel]) -> set[str]:
    found = set(model.model_fields)
    for field in model.model_fields.values():
        for part in _models(field.annotation):
            found |= _fields(part)
    return found


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    parts = getattr(command, "commands", None)
    if parts is None:
        yield " ".join(path)
        return
    for name, part in parts.items():
        yield from _commands(part, (*path, name))


def test_every_setting_of_a_study_is_explained() -> None:
    fields = _fields(StudySettings)
    assert {"estimator_failure_probability", "filter_order", "step_deadline_seconds"} <= fields
    assert sorted(fields - NAMES) == []


def test_no_setting_is_explained_that_does_not_exist() -> None:
    """Entries are written with their section: `privacy.max_steps`."""
    fields = StudySettings.model_fields.items()
    sections = {name: model for name, field in fields for model in _models(field.annotation)}
    named = re.findall(r"`(training|privacy|schedule|robustness)\.([a-z_]+)`", GLOSSARY)
    assert len(named) >= len(Privacy.model_fields)
    assert [(section, name) for section, name in named if name not in sections[section].model_fields] == []


def test_every_command_is_named_and_no_other() -> None:
    assert set(_commands(get_command(build()))) == COMMANDS


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_has_its_plain_title(scheme: str) -> None:
    (row,) = re.findall(rf"^\| `{scheme}` \| ([^|]+) \|", GLOSSARY, re.M)
    assert row == SCHEMES[scheme].title


def test_every_word_is_explained_once() -> None:
    tables = GLOSSARY.split("## Settings of a study")[0]
    words = [word.strip().lower() for word in re.findall(r"^\| ([^|]+) \|", tables, re.M)]
    words = [word for word in words if word not in ("word", "id") and set(word) - {"-"}]
    assert len(words) > 50
    assert len(set(words)) == len(words)
