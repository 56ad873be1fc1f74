"""The files of `wardround query template`: a question file of each kind, with every entry described."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast, get_args

from study_protocol.queries.kinds import Question
from study_protocol.queries.question import BaseQuestion
from wardround.cli.shared.settings_help import WIDTH, Node, toml

HEAD = """\
# A question for `wardround ask STUDY FILE`. See first what it costs: `wardround ask STUDY FILE --plan`.
# Bins, categories and ranges come from public knowledge, never from the records."""
COLUMNS = """\
# Columns for ready questions: wardround ask STUDY --ready table-one --columns FILE --noise 6
# Ranges and categories come from public knowledge, never from the records.

[[columns]]
column = "age"
low = 18.0
high = 90.0

[[columns]]
column = "sex"
categories = ["female", "male"]

# What a file writes for missing, beside an empty cell:
[[columns]]
column = "cholesterol"
low = 100.0
high = 400.0
missing_values = ["-9"]
"""
# Example columns of the templates, to be replaced. Each is used once, because a column may stand only once.
_EXAMPLES: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "Range": (
        {"column": "pressure", "low": 60.0, "high": 220.0},
        {"column": "weight", "low": 40.0, "high": 150.0},
        {"column": "lactate", "low": 0.0, "high": 20.0},
    ),
    "Variable": (
        {"column": "sex", "categories": ["female", "male"]},
        {"column": "age", "edges": [40.0, 60.0, 80.0]},
        {"column": "smoker", "categories": ["no", "yes"]},
        {"column": "centre", "categories": ["north", "south"]},
    ),
    "Indicator": ({"column": "died", "categories": ["yes"]}, {"column": "diabetes", "categories": ["yes"]}),
}
# Examples of entries with rules beyond their type.
_OF_KIND: Mapping[str, Mapping[str, Any]] = {
    "glm": {
        "outcome": {"column": "died", "categories": ["yes"]},
        "predictors": [
            {"column": "pressure", "low": 60.0, "high": 220.0},
            {"column": "sex", "categories": ["female", "male"], "reference": "male"},
        ],
    },
    "marginals": {"cliques": [[0, 1]]},
    "survival": {"time": {"column": "days", "edges": [0.0, 90.0, 180.0, 365.0, 730.0]}},
}
_NOISE = 6.0
_FIRST = ("kind", "title", "noise_multiplier")
_LAST = ("where", "rows")
# `wardround ask` chooses these for the study where a file leaves them out.
_CHOSEN_BY_ASK = ("centred",)
# The coordinator fills these in, at later steps of a question.
_TOTAL = "total_noise_multiplier"
_OF_LATER_STEPS = ("step", "at", "frame", _TOTAL)


def kinds() -> dict[str, type[BaseQuestion]]:
    """Return every kind of question by its name."""
    union, *_ = get_args(Question)
    return {get_args(kind.model_fields["kind"].annotation)[0]: kind for kind in get_args(union)}


def template(kind: type[BaseQuestion], values: Mapping[str, Any] | None = None) -> str:
    """Return the file of a question. values: its entries as JSON. None: an example."""
    schema = kind.model_json_schema()
    definitions = cast("dict[str, Node]", schema.get("$defs", {}))
    entry_values = example(kind) if values is None else _as_written(values)
    fields: dict[str, Node] = schema["properties"]
    order = [*_FIRST, *(name for name in fields if name not in _FIRST + _LAST + _OF_LATER_STEPS), *_LAST]
    return (
        "\n".join([HEAD, *(line for name in order for line in _entry(name, fields[name], definitions, entry_values))])
        + "\n"
    )


def _as_written(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the entries as a person writes them: with the noise of all steps, from which that of each one follows."""
    total = values.get(_TOTAL)
    return values if total is None else {**values, "noise_multiplier": total}


def example(kind: type[BaseQuestion]) -> dict[str, Any]:
    """Return the example question of a kind, as JSON."""
    schema = kind.model_json_schema()
    examples, definitions = _Examples(), cast("dict[str, Node]", schema.get("$defs", {}))
    name = get_args(kind.model_fields["kind"].annotation)[0]
    kind_values = _OF_KIND.get(name, {})
    required_values: dict[str, Any] = {
        entry: kind_values[entry] if entry in kind_values else examples.of(schema["properties"][entry], definitions)
        for entry in schema["required"]
        if entry not in _FIRST
    }
    return {"kind": name, "title": "", "noise_multiplier": _NOISE} | required_values


class _Examples:
    """A supply of example columns. Each one is used once."""

    def __init__(self) -> None:
        self._remaining = {name: iter(examples) for name, examples in _EXAMPLES.items()}

    def of(self, node: Node, definitions: Mapping[str, Node], *, inside: bool = False) -> Any:
        """Return an example for a schema node. inside: a list within a list, for which one item is enough."""
        if "examples" in node:
            return node["examples"][0]
        first: Node = node.get("anyOf", node.get("oneOf", [node]))[0]
        if "$ref" in first:
            return dict(next(self._remaining[first["$ref"].removeprefix("#/$defs/")]))
        if "const" in first or "enum" in first:
            return first["const"] if "const" in first else first["enum"][0]
        if first.get("type") == "array":
            return [self.of(first["items"], definitions, inside=True) for _ in range(1 if inside else 2)]
        return _SMALLEST.get(first.get("type"), lambda _: "text")(first)


_SMALLEST: Mapping[str | None, Callable[[Node], Any]] = {
    "integer": lambda node: node.get("minimum", 1),
    "number": lambda node: float(node.get("minimum", node.get("exclusiveMinimum", 0.0) + 1.0)),
    "boolean": lambda _: True,
}


def _entry(name: str, node: Node, definitions: Mapping[str, Node], values: Mapping[str, Any]) -> Iterator[str]:
    value = values.get(name)
    yield ""
    yield from _comment(node.get("description", ""))
    yield from _parts(node, definitions)
    if name == "where" and not value:
        yield '# where = [{ column = "age", low = 18.0 }]'
    elif value is None and name in _CHOSEN_BY_ASK:
        yield f"# {name}: left out, so that `wardround ask` takes true where the study allows it"
    elif value is None:
        default = node.get("default")
        yield f"# {name}: left out" if default is None else f"# {name} = {toml(default)}"
    else:
        yield from _value(name, value)


def _parts(node: Node, definitions: Mapping[str, Node]) -> Iterator[str]:
    """Yield a comment for each table within the entry, with a line for each of its entries."""
    for name in dict.fromkeys(_references(node)):
        yield f"# {_KIND_WORDS.get(name, name)}:"
        for entry, inner in definitions[name]["properties"].items():
            text = f"{entry}: {inner.get('description', '')}"
            yield from (f"#   {line}" for line in textwrap.wrap(text, WIDTH - 4, subsequent_indent="  "))


_KIND_WORDS = {
    "Variable": "a column with bins (edges), categories, or presence alone",
    "Factor": "a categorical variable",
    "Range": "a number in a public range",
    "Indicator": "a column as a number, 1 for its categories",
    "Condition": "a condition",
}


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        for key, value in cast("Mapping[str, Any]", node).items():
            if key == "$ref":
                yield str(value).removeprefix("#/$defs/")
            elif key != "discriminator":
                yield from _references(value)
    elif isinstance(node, list):
        for item in cast("list[Any]", node):
            yield from _references(item)


def _value(name: str, value: Any) -> Iterator[str]:
    parts = cast("list[Any]", value) if isinstance(value, list) else []
    if any(isinstance(part, dict | list) for part in parts):
        yield f"{name} = ["
        yield from (f"  {inline(part)}," for part in parts)
        yield "]"
    else:
        yield f"{name} = {inline(value)}"


def inline(value: Any) -> str:
    """Return a value as TOML in one line. Null, false and empty entries of a table are left out."""
    if isinstance(value, Mapping):
        present_entries = [
            (key, item)
            for key, item in cast("Mapping[str, Any]", value).items()
            if not (item is None or item is False or item == [])
        ]
        return f"{{ {', '.join(f'{key} = {inline(item)}' for key, item in present_entries)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(inline(item) for item in cast('list[Any]', value))}]"
    return toml(value)


def _comment(text: str) -> Iterator[str]:
    yield from (f"# {line}" for line in textwrap.wrap(text, WIDTH - 2, break_on_hyphens=False))
