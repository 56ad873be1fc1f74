"""The entries of a settings file, read off the models that check it: in words, and as TOML with comments."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic import BaseModel

Node = dict[str, Any]
WIDTH = 118
# Names of the bounds in pydantic, if a validator follows them, and in JSON Schema.
_BOUNDS = {
    "above": ("gt", "exclusiveMinimum"),
    "below": ("lt", "exclusiveMaximum"),
    "at least": ("ge", "minimum"),
    "at most": ("le", "maximum"),
}


@dataclass(frozen=True)
class SettingsEntry:
    """One entry of a settings file.

    values       the allowed values, in words
    about        its meaning
    default      its default as TOML. "required": it has none. "none": the entry is then absent
    inner        the entries of a section
    is_repeated  the section may stand several times
    is_named     the section is one of several with names, which a person chooses
    """

    name: str
    values: str
    about: str
    default: str
    inner: tuple[SettingsEntry, ...] = ()
    is_repeated: bool = False
    is_named: bool = False


def entries(model: type[BaseModel]) -> tuple[SettingsEntry, ...]:
    """Return every entry of the model. Sections have their own entries."""
    schema = model.model_json_schema()
    return _entries(schema, cast("dict[str, Node]", schema.get("$defs", {})))


def _entries(schema: Node, definitions: Mapping[str, Node]) -> tuple[SettingsEntry, ...]:
    required: list[str] = schema.get("required", [])
    return tuple(_entry(name, node, definitions, name in required) for name, node in schema["properties"].items())


def _entry(name: str, node: Node, definitions: Mapping[str, Node], required: bool) -> SettingsEntry:
    kinds: list[Node] = [kind for kind in node.get("anyOf", [node]) if kind.get("type") != "null"]
    # TOML has no null: an entry that may be null is left out.
    optional = len(kinds) < len(node.get("anyOf", [node]))
    section, is_repeated, is_named = _section_node(kinds[0])
    inner = ()
    if "$ref" in section:
        inner = _entries(definitions[section["$ref"].removeprefix("#/$defs/")], definitions)
    default = "none" if node.get("default") is None else toml(node["default"])
    if required:
        default = "none" if optional else "required"
    words = " or ".join(dict.fromkeys(_words(kind) for kind in kinds))
    return SettingsEntry(name, words, node.get("description", ""), default, inner, is_repeated, is_named)


def _section_node(kind: Node) -> tuple[Node, bool, bool]:
    """Return the node with an entry's sections, and whether they are in a list, and whether each has a name."""
    # A list of fixed length has no items: its places are described one by one.
    items: Node = kind.get("items", {})
    is_repeated = kind.get("type") == "array" and "$ref" in items
    # Sections under names, whose form has a pattern.
    patterns = cast("dict[str, Node]", kind.get("patternProperties", {}))
    under_names = next(iter(patterns.values()), Node())
    is_named = "$ref" in under_names
    return under_names if is_named else items if is_repeated else kind, is_repeated, is_named


def _words(node: Node) -> str:
    if "enum" in node:
        *first_values, last = (json.dumps(value) for value in node["enum"])
        return f"{', '.join(first_values)} or {last}"
    match node.get("type"):
        case "array":
            return "list of texts" if node.get("items", {}).get("type") == "string" else "list of numbers"
        case "number":
            return f"number{_range(node)}"
        case "integer":
            return f"whole number{_range(node)}"
        case "boolean":
            return "true or false"
        case "string":
            return "text"
        case _:
            return "section"


def _range(node: Node) -> str:
    bounds = {word: node[name] for word, names in _BOUNDS.items() for name in names if name in node}
    if set(bounds) == {"at least", "at most"}:
        return f" from {bounds['at least']:,} to {bounds['at most']:,}"
    if set(bounds) == {"above", "below"}:
        return f" between {bounds['above']:,} and {bounds['below']:,}"
    return " " + ", ".join(f"{word} {bound:,}" for word, bound in bounds.items()) if bounds else ""


def toml(value: object) -> str:
    """Return a value as TOML."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml(item) for item in cast('list[object]', value))}]"
    # A whole float keeps its point, because strict models tell floats from integers.
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def template(
    section_entries: tuple[SettingsEntry, ...], values: Node, path: str = "", *, described: bool = True
) -> Iterator[str]:
    """Yield lines of TOML: each entry below its description. Entries that `values` lacks become comments.

    values     the values to write, as the model's JSON
    described  False: the entries without their descriptions
    """
    sections = [entry for entry in section_entries if entry.values == "section" or entry.is_repeated]
    for entry in section_entries:
        if entry not in sections:
            yield from _line(entry, values.get(entry.name), described)
    for entry in sections:
        yield ""
        yield from _comment(entry.about) if described else ()
        yield from _section(entry, values.get(entry.name), f"{path}{entry.name}", described)


def _section(entry: SettingsEntry, value: Any, name: str, described: bool) -> Iterator[str]:
    if value is None:
        yield f"# [{name}]: left out"
    elif entry.is_named or entry.is_repeated:
        yield from _sections(entry, value, name, described)
    elif entry.inner:
        yield f"[{name}]"
        yield from template(entry.inner, value, f"{name}.", described=described)
    else:
        yield f"[{name}]"
        yield from (f"{_key(key)} = {toml(item)}" for key, item in value.items())


def _sections(entry: SettingsEntry, value: Any, name: str, described: bool) -> Iterator[str]:
    """Yield the sections of a list, or those under names. The first one has the descriptions."""
    names = [f"{name}.{_key(key)}" for key in value] if entry.is_named else [name] * len(value)
    items = value.values() if entry.is_named else value
    for place, (each, item) in enumerate(zip(names, items, strict=True)):
        if place:
            yield ""
        yield f"[{each}]" if entry.is_named else f"[[{each}]]"
        yield from template(entry.inner, item, f"{each}.", described=described and place == 0)


def _key(key: str) -> str:
    # Keys such as column.age contain a dot.
    return key if key.isalpha() else toml(key)


def _line(entry: SettingsEntry, value: Any, described: bool) -> Iterator[str]:
    if described:
        yield from _comment(f"{entry.about} ({entry.values})")
    if value is not None:
        yield f"{entry.name} = {toml(value)}"
    elif described:
        written = "left out" if entry.default in ("none", "required") else f"left out, which means {entry.default}"
        yield f"# {entry.name}: {written}"


def _comment(text: str) -> Iterator[str]:
    yield from (f"# {line}" for line in textwrap.wrap(text, WIDTH - 2, break_on_hyphens=False))
