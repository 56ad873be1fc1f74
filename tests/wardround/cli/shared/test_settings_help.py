"""Entries of a settings file, read off a model and written as TOML."""

from __future__ import annotations

import tomllib
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from wardround.cli.shared.settings_help import WIDTH, SettingsEntry, entries, template, toml


class Limit(BaseModel):
    epsilon: Annotated[float, Field(gt=0, description="never more")]
    level: Literal["patient", "hospital"] = Field(default="patient", description="who is protected")


class Section(BaseModel):
    rounds: Annotated[int, Field(ge=1, le=5000, description="most rounds")]
    rate: Annotated[float, Field(gt=0, lt=1)] = 0.5
    names: list[str] = Field(default_factory=list, description="of hospitals")
    seed: int | None = Field(default=None, description="for tests")


class Settings(BaseModel):
    title: str = Field(description="for people")
    limits: list[Limit] = Field(description="every limit")
    section: Section | None = Field(default=None, description="an optional part")
    columns: dict[str, str] = Field(default_factory=dict, description="free names")
    parts: dict[Annotated[str, Field(pattern="^[^:]*$")], Limit] = Field(default_factory=dict, description="of names")


FOUND = {entry.name: entry for entry in entries(Settings)}


def test_every_entry_has_its_values_and_its_default_in_words() -> None:
    assert FOUND["title"] == SettingsEntry("title", "text", "for people", "required")
    inner = {entry.name: entry for entry in FOUND["section"].inner}
    assert (inner["rounds"].values, inner["rounds"].default) == ("whole number from 1 to 5,000", "required")
    assert (inner["rate"].values, inner["rate"].default) == ("number between 0 and 1", "0.5")
    assert inner["names"].values == "list of texts"
    assert (inner["seed"].values, inner["seed"].default) == ("whole number", "none")
    (epsilon, level) = FOUND["limits"].inner
    assert (epsilon.values, level.values) == ("number above 0", '"patient" or "hospital"')
    assert (FOUND["limits"].is_repeated, FOUND["section"].is_repeated) == (True, False)
    assert (FOUND["parts"].inner, FOUND["parts"].is_named, FOUND["columns"].is_named) == ((epsilon, level), True, False)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1.0"), (1e-05, "1e-05"), (3, "3"), (True, "true"), ('ä "x"', '"ä \\"x\\""'), ((1, [2.0]), "[1, [2.0]]")],
)
def test_values_are_written_as_toml_reads_them(value: Any, text: str) -> None:
    assert toml(value) == text
    read = tomllib.loads(f"a = {text}")["a"]
    assert read == (list(value) if isinstance(value, tuple) else value)
    assert type(read) is (list if isinstance(value, tuple) else type(value))


VALUES: dict[str, Any] = {
    "title": "T",
    "limits": [{"epsilon": 1.0, "level": "patient"}, {"epsilon": 2.0, "level": "hospital"}],
    "section": {"rounds": 7, "rate": 0.25, "names": ["a"]},
    "columns": {"column.age": "0..1", "plain": "x"},
    "parts": {"a b.c": {"epsilon": 3.0, "level": "patient"}, "d": {"epsilon": 4.0, "level": "hospital"}},
}


@pytest.mark.parametrize("described", [True, False])
def test_a_template_is_read_back_as_the_values(described: bool) -> None:
    text = "\n".join(template(entries(Settings), VALUES, described=described))
    assert tomllib.loads(text) == VALUES
    assert max(map(len, text.splitlines())) <= WIDTH
    # Descriptions stand once, above the first of several sections.
    assert text.count("# never more (number above 0)") == 2 * described
    assert ("# seed: left out" in text) == described


def test_sections_and_entries_without_a_value_are_comments() -> None:
    text = "\n".join(template(entries(Settings), {"title": "T", "limits": [{"epsilon": 1.0}], "columns": {}}))
    assert "# [section]: left out" in text
    assert '# level: left out, which means "patient"' in text
    assert tomllib.loads(text) == {"title": "T", "limits": [{"epsilon": 1.0}], "columns": {}}


def test_long_descriptions_are_wrapped() -> None:
    entry = SettingsEntry("a", "text", "word " * 60, "none")
    lines = list(template((entry,), {"a": "x"}))
    assert len(lines) == 4
    assert all(line.startswith("# ") and len(line) <= WIDTH for line in lines[:-1])
