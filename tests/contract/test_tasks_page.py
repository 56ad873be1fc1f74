"""docs/tasks.md against the code: every parameter that a task reads, every example, the size of its model."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic.fields import FieldInfo

from private_learning.tasks import load
from private_learning.tasks.columns import OPTIONS, PREFIX, read_columns
from private_learning.tasks.events import PREFIX as EVENTS
from private_learning.tasks.registry import BUILT_IN
from private_learning.tasks.registry import EXAMPLES as EXAMPLE_OF
from private_learning.tasks.sequences import CodeSequences
from private_learning.tasks.tables import TableTask

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "tasks.md").read_text()
# Tasks of one kind may have a page of their own: tasks-NAME.md.
SECTIONS = {
    found[1]: found[2]
    for page in sorted(DOCS.glob("tasks*.md"))
    for found in re.finditer(r"^## `([a-z-]+)`\n(.*?)(?=^## |\Z)", page.read_text(), re.M | re.S)
}
ROW = re.compile(r"^\| `([^`]+)` \| (.*) \| (.*) \| (.*) \|$", re.M)
# Parameters of several tasks stand once, in a section that the tasks link to.
SHARED = {
    anchor: rows
    for page in sorted(DOCS.glob("tasks*.md"))
    for heading, text in re.findall(r"^## ([A-Z][^`\n]*)\n(.*?)(?=^## |\Z)", page.read_text(), re.M | re.S)
    for anchor, rows in [(heading.lower().replace(" ", "-"), ROW.findall(text))]
    if rows
}
KINDS: dict[Any, str] = {int: "whole number", float: "number", str: "text", bool: "`true` or `false`"}


def _kind(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{choice}`" for choice in get_args(annotation))
    # What may be left out is written as what it is.
    kinds = [one for one in get_args(annotation) if one is not type(None)] or [annotation]
    return KINDS[kinds[0]]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default is None:
        return "–"
    return f"`{field.default}`".lower() if isinstance(field.default, str | bool) else f"{field.default:g}"


def _row(name: str, field: FieldInfo) -> tuple[str, str, str, str]:
    """name, what it may be, default, description: as the page writes them."""
    bounds = {key: getattr(one, key) for one in field.metadata for key in ("ge", "le", "gt") if hasattr(one, key)}
    reach = f", {bounds['ge']:,} to {bounds['le']:,}" if {"ge", "le"} <= set(bounds) else ""
    reach += f", above {bounds['gt']:,}" if "gt" in bounds else ""
    return field.alias or name, _kind(field.annotation) + reach, _default(field), str(field.description)


def test_every_built_in_task_has_its_section() -> None:
    assert set(SECTIONS) == set(BUILT_IN)


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_parameters_of_a_task_are_those_that_it_reads(name: str) -> None:
    task: Any = BUILT_IN[name]
    expected = [_row(field, info) for field, info in task.kind.model_fields.items()]
    shared = [row for anchor, rows in SHARED.items() if f"#{anchor})" in SECTIONS[name] for row in rows]
    listed, inherited = (
        [row for row in rows if not row[0].startswith((PREFIX, EVENTS))]
        for rows in (ROW.findall(SECTIONS[name]), shared)
    )
    assert listed == [row for row in expected if row not in inherited]
    assert set(inherited) <= set(expected)
    assert ("`column.NAME`" in SECTIONS[name]) == issubclass(task, TableTask)
    assert ("`events.TABLE`" in SECTIONS[name]) == issubclass(task, CodeSequences)


def test_every_shared_table_belongs_to_several_tasks() -> None:
    links = {anchor: sum(f"#{anchor})" in section for section in SECTIONS.values()) for anchor in SHARED}
    assert len(links) == 4
    assert min(links.values()) > 1


def test_the_forms_of_a_column_are_read_and_every_option_is_among_them() -> None:
    section = PAGE.partition("## Columns of a table")[2].partition("\n## ")[0]
    forms = tomllib.loads(re.findall(r"```toml\n(.*?)```", section, re.S)[0])
    assert len(read_columns(forms, trends=True)) == len(forms)
    options = {part.partition("=")[0].strip() for form in forms.values() for part in form.split(";")[1:]}
    assert options == set(OPTIONS)
    assert all(f"`{mark}`" in section for mark in ("?", "NA", "N/A", "NaN", "NULL", "#N/A"))


EXAMPLES = [
    pytest.param(name, example, said, id=f"{name} {place}")
    for name, section in SECTIONS.items()
    for place, (example, said) in enumerate(re.findall(r"```toml\n(.*?)```\n\n(.*?)\n\n", section + "\n\n", re.S))
]


@pytest.mark.parametrize(("name", "example", "said"), EXAMPLES)
def test_every_example_is_a_task_of_the_size_that_is_said(name: str, example: str, said: str) -> None:
    training = tomllib.loads(example)["training"]
    assert training == {"task": name, "task_parameters": EXAMPLE_OF[name]}
    task: Any = load(name, training["task_parameters"])
    inputs, parameters = (
        int(number.replace(",", "")) for number in re.findall(r"([\d,]+) (?:inputs|parameters)", said)
    )
    model = task.model()
    assert sum(weights.numel() for weights in model.parameters() if weights.requires_grad) == parameters
    if isinstance(task, TableTask):
        assert task.features == inputs


def test_there_is_an_example_of_every_task() -> None:
    assert {str(example.values[0]) for example in EXAMPLES} == set(BUILT_IN)
