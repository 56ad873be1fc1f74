"""`wardround query template KIND`: a whole question file, every entry described, to change and to ask."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast, get_args

from study_protocol.queries.kinds import Question
from study_protocol.queries.question import BaseQuestion
from wardround.cli.shared.described import WIDTH, Node, toml

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
# What stands in a template; whoever asks has columns of their own. Each stands once, because a column may.
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
# Where an entry's own rules ask for more than its type says.
_OF_KIND: Mapping[str, Mapping[str, Any]] = {
    "survival": {"time": {"column": "days", "edges": [0.0, 90.0, 180.0, 365.0, 730.0]}},
}
_NOISE = 6.0
_FIRST = ("kind", "title", "noise_multiplier")
_LAST = ("where", "rows")


def kinds() -> dict[str, type[BaseQuestion]]:
    """Every kind of question by its name."""
    union, *_ = get_args(Question)
    return {get_args(kind.model_fields["kind"].annotation)[0]: kind for kind in get_args(union)}


def template(kind: type[BaseQuestion], values: Mapping[str, Any] | None = None) -> str:
    """The file of a question. values: what it says, as JSON; None: an example."""
    schema = kind.model_json_schema()
    known = cast("dict[str, Node]", schema.get("$defs", {}))
    shown = example(kind) if values is None else values
    fields: dict[str, Node] = schema["properties"]
    order = [*_FIRST, *(name for name in fields if name not in _FIRST + _LAST), *_LAST]
    return "\n".join([HEAD, *(line for name in order for line in _entry(name, fields[name], known, shown))]) + "\n"


def example(kind: type[BaseQuestion]) -> dict[str, Any]:
    """What the template of a kind asks, as JSON."""
    schema = kind.model_json_schema()
    made, known = _Examples(), cast("dict[str, Node]", schema.get("$defs", {}))
    name = get_args(kind.model_fields["kind"].annotation)[0]
    own = _OF_KIND.get(name, {})
    asked: dict[str, Any] = {
        entry: own[entry] if entry in own else made.of(schema["properties"][entry], known)
        for entry in schema["required"]
        if entry not in _FIRST
    }
    return {"kind": name, "title": "", "noise_multiplier": _NOISE} | asked


class _Examples:
    """One example after another, each of another column."""

    def __init__(self) -> None:
        self._left = {name: iter(examples) for name, examples in _EXAMPLES.items()}

    def of(self, node: Node, known: Mapping[str, Node], *, inside: bool = False) -> Any:
        """inside: of a list in a list, where one is enough."""
        if "examples" in node:
            return node["examples"][0]
        first: Node = node.get("anyOf", node.get("oneOf", [node]))[0]
        if "$ref" in first:
            return dict(next(self._left[first["$ref"].removeprefix("#/$defs/")]))
        if "const" in first or "enum" in first:
            return first["const"] if "const" in first else first["enum"][0]
        match first.get("type"):
            case "array":
                return [self.of(first["items"], known, inside=True) for _ in range(1 if inside else 2)]
            case "integer":
                return first.get("minimum", 1)
            case "number":
                return float(first.get("minimum", first.get("exclusiveMinimum", 0.0) + 1.0))
            case "boolean":
                return True
            case _:
                return "text"


def _entry(name: str, node: Node, known: Mapping[str, Node], values: Mapping[str, Any]) -> Iterator[str]:
    value = values.get(name)
    yield ""
    yield from _comment(node.get("description", ""))
    yield from _parts(node, known)
    if name == "where" and not value:
        yield '# where = [{ column = "age", low = 18.0 }]'
    elif value is None:
        default = node.get("default")
        yield f"# {name}: left out" if default is None else f"# {name} = {toml(default)}"
    else:
        yield from _value(name, value)


def _parts(node: Node, known: Mapping[str, Node]) -> Iterator[str]:
    """What each table inside has, a line for every entry."""
    for name in dict.fromkeys(_references(node)):
        yield f"# {_KIND_WORDS.get(name, name)}:"
        for entry, inner in known[name]["properties"].items():
            text = f"{entry}: {inner.get('description', '')}"
            yield from (f"#   {line}" for line in textwrap.wrap(text, WIDTH - 4, subsequent_indent="  "))


_KIND_WORDS = {
    "Variable": "a column with bins (edges), categories, or presence alone",
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
        for one in cast("list[Any]", node):
            yield from _references(one)


def _value(name: str, value: Any) -> Iterator[str]:
    parts = cast("list[Any]", value) if isinstance(value, list) else []
    if any(isinstance(one, dict | list) for one in parts):
        yield f"{name} = ["
        yield from (f"  {inline(one)}," for one in parts)
        yield "]"
    else:
        yield f"{name} = {inline(value)}"


def inline(value: Any) -> str:
    """A value as TOML writes it in one line; what is null or empty in a table is left out."""
    if isinstance(value, Mapping):
        said = [
            (key, one)
            for key, one in cast("Mapping[str, Any]", value).items()
            if not (one is None or one is False or one == [])
        ]
        return f"{{ {', '.join(f'{key} = {inline(one)}' for key, one in said)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(inline(one) for one in cast('list[Any]', value))}]"
    return toml(value)


def _comment(text: str) -> Iterator[str]:
    yield from (f"# {line}" for line in textwrap.wrap(text, WIDTH - 2, break_on_hyphens=False))
