"""The OpenAPI document: every field described, an example of every body, every error that an operation answers with.

Fields are described where they are defined: by `Field(description=…)`, or in the table of the class's docstring, whose
lines are `name, other  what it is`.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from server.api.problems import CATALOGUE, MEDIA_TYPE
from server.api.refusals import refusals_of
from server.api.session_cookie import CSRF_HEADER, SESSION_COOKIE
from study_protocol.study.messages import Problem
from study_protocol.study.roles import OPERATIONS, ROLES
from study_protocol.wire.values import Message

Node = dict[str, Any]
_REF = "#/components/schemas/"
_SIGNED = """A hospital signs every request: a JWT (`EdDSA`, its Ed25519 identity key), new for each, with the claims

- `iss`, `sub`: the client's name and the study's, as enrolled
- `aud`: the coordinator's public origin, `https://study.example.org`
- `htm`, `htu`: the method in capitals, and origin, path and query as they are sent
- `bh`: SHA-256 of the body in hex, of no bytes where there is no body
- `iat`, `exp`: whole seconds since 1970, `exp` at most 60 later
- `jti`: in a POST and in the rotation of a key, 16 to 64 letters, digits, `-` and `_` that were not used before
- `pro`, `ver`: the number of the protocol that the program speaks, from 1, and its version. Without them it is 1 and
  unknown. A study may need more.

Other signatures in bodies, but those of a secure sum, are Ed25519 over the length of a label (four octets, the highest
first), the label, and the SHA-256 of the document as canonical JSON (UTF-8, keys in the order of their code points, no
spaces). Octets in JSON are base64url without padding. An enrolment's label is `wardround/1/enrolment`."""
_SCHEMES = {
    "client": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": _SIGNED},
    "key": {
        "type": "http",
        "scheme": "bearer",
        "description": "A person's API key (`wrk_<id>_<secret>`) or session (`wrs_<id>_<secret>`), as it was shown. No "
        "signature.",
    },
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": SESSION_COOKIE,
        "description": "A person's session in a browser, which `/login` begins. A request that changes something has "
        f"`csrf_token` of `GET /v1/person` as the header `{CSRF_HEADER}`. `Authorization` goes before the cookie.",
    },
}
# Mistakes in a field are 422, and a body that cannot be read at all is 400.
_UNREADABLE = "invalid-request"
# A line of a docstring's table: names, at least two spaces, words.
_ROW = re.compile(r"(\w+(?:, \w+)*)  +(\S.*)")


def describe(app: FastAPI) -> Node:
    """Return the OpenAPI document of `app`."""
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    components = document.setdefault("components", {})
    schemas: Node = components.setdefault("schemas", {})
    # FastAPI's own form of a 422. Ours is a problem document like every other error.
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas["Problem"] = Problem.model_json_schema(ref_template=_REF + "{model}")
    components["securitySchemes"] = _SCHEMES
    for name, schema in schemas.items():
        _describe_fields(schema, _tables().get(name, {}))
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _complete(path, method, operation, schemas)
    return document


def security_of(operation: str) -> list[dict[str, list[str]]]:
    """Return the schemes by which an operation knows its callers."""
    callers = OPERATIONS[operation]
    schemes = {"client": {"member", "itself"}, "key": set(ROLES), "session": set(ROLES)}
    return [{scheme: []} for scheme, admitted in schemes.items() if callers & admitted]


def _complete(path: str, method: str, operation: Node, schemas: Node) -> None:
    operation["responses"].pop("422", None)
    responses: Node = operation["responses"]
    if method == "put" and "201" in responses and "200" not in responses:
        # A repeated request is answered again.
        responses["200"] = responses["201"] | {"description": "Recorded before"}
    for content in _contents(operation):
        schema = content.get("schema", {})
        if schema.get("$ref") == f"{_REF}QueryDocument":
            content.setdefault("examples", _questions(schema, schemas))
        else:
            content.setdefault("example", example_of(schema, schemas))
    by_status: dict[int, list[str]] = {}
    for code in sorted(refusals_of(path, method, operation)):
        by_status.setdefault(CATALOGUE[code].status, []).append(code)
    if "requestBody" in operation and _UNREADABLE not in by_status.setdefault(400, []):
        by_status[400].append(_UNREADABLE)
    for status, codes in sorted(by_status.items()):
        responses[str(status)] = _refused(status, codes)


def _questions(schema: Node, schemas: Node) -> Node:
    """Return examples of a query's document: a small table, a question of a synthesis, and a regression."""
    table = example_of(schema, schemas)
    others = {"marginals": "Marginals", "glm": "GeneralisedLinear"}
    return {
        "table": {"value": table},
        **{
            kind: {"value": table | {"question": example_of({"$ref": f"{_REF}{name}"}, schemas)}}
            for kind, name in others.items()
        },
    }


def _contents(operation: Node) -> Iterator[Node]:
    for part in (operation.get("requestBody", {}), *operation["responses"].values()):
        yield from part.get("content", {}).values()


def _refused(status: int, codes: list[str]) -> Node:
    """Return the answer of one status: a problem with one of these codes."""
    examples = {code: {"value": problem_example(code, status)} for code in codes}
    narrowed = {"type": "object", "properties": {"code": {"enum": codes, "description": "one of these"}}}
    return {
        "description": "; ".join(f"`{code}`: {CATALOGUE[code].title}" for code in codes),
        "content": {MEDIA_TYPE: {"schema": {"allOf": [{"$ref": f"{_REF}Problem"}, narrowed]}, "examples": examples}},
    }


def problem_example(code: str, status: int | None = None) -> Node:
    """Return a problem document as `server.api.problems.answer` makes it. docs/api-errors.md says how to react."""
    kind = CATALOGUE[code]
    details = {
        "type": f"urn:wardround:problem:{code}",
        "title": kind.title,
        "status": status or kind.status,
        "code": code,
    }
    return details | {"detail": "what to do next", "request_id": "5f0c1d2e3a4b5c6d"}


def _describe_fields(schema: Node, table: Mapping[str, str]) -> None:
    for name, field in schema.get("properties", {}).items():
        description = table.get(name) or field.get("description")
        if description:
            field["description"] = description


@functools.cache
def _tables() -> dict[str, dict[str, str]]:
    """Return by name of a message the descriptions of fields in its docstring."""
    return {kind.__name__: docstring_table(kind) for kind in _messages(Message)}


def _messages(kind: type[Message]) -> Iterator[type[Message]]:
    for below in kind.__subclasses__():
        yield below
        yield from _messages(below)


def docstring_table(kind: type[Message]) -> dict[str, str]:
    """Return the descriptions of fields in a message's docstring, with those of its parents where it has none."""
    rows: dict[str, str] = {}
    for parent in reversed(kind.__mro__):
        names: list[str] = []
        for line in inspect.cleandoc(parent.__doc__ or "").splitlines() if issubclass(parent, Message) else ():
            row = _ROW.fullmatch(line)
            if row and set(row[1].split(", ")) <= set(kind.model_fields):
                names = row[1].split(", ")
                rows |= dict.fromkeys(names, row[2])
            elif names and line.startswith("  "):
                rows |= {name: f"{rows[name]} {line.strip()}" for name in names}
            else:
                names = []
    return rows


@functools.cache
def _written() -> Node:
    """Return examples by the name of their message. `@Name` stands for the example of that name."""
    return cast("Node", json.loads(Path(__file__).with_name("examples.json").read_text()))


def example_of(schema: Node, schemas: Node) -> Any:
    """Return a value that fits: a written example of ours, and else the smallest there is."""
    if (reference := schema.get("$ref")) is not None:
        name = reference.removeprefix(_REF)
        return _filled(_written()[name]) if name in _written() else example_of(schemas[name], schemas)
    if "anyOf" in schema:
        return example_of(schema["anyOf"][0], schemas)
    if "enum" in schema or "const" in schema:
        return schema["enum"][0] if "enum" in schema else schema["const"]
    return _BY_TYPE.get(schema.get("type"), _text)(schema, schemas)


def _object(schema: Node, schemas: Node) -> Node:
    properties = schema.get("properties", {})
    # A mapping from names of vectors.
    values = [*schema.get("patternProperties", {}).values()]
    if not properties and values:
        return {"update": example_of(values[0], schemas)}
    return {
        name: example_of(field, schemas) for name, field in properties.items() if name in schema.get("required", ())
    }


def _text(schema: Node, _: Node) -> str:
    if schema.get("contentMediaType") == "application/octet-stream" or schema.get("format") == "binary":
        return "octets"
    if "pattern" in schema and "[a-z0-9]" in schema["pattern"]:
        return "mercy"
    return "A" * max(schema.get("minLength", 4), 4)


def _minimum(schema: Node, _: Node) -> Any:
    return schema.get("minimum", 1)


_BY_TYPE: Mapping[str | None, Callable[[Node, Node], Any]] = {
    "object": _object,
    "array": lambda schema, schemas: [example_of(schema["items"], schemas)],
    "integer": _minimum,
    "number": _minimum,
    "boolean": lambda _, __: True,
}


def _filled(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _filled(inner) for name, inner in cast("Node", value).items()}
    if isinstance(value, list):
        return [_filled(inner) for inner in cast("list[Any]", value)]
    if isinstance(value, str) and value.startswith("@"):
        return _filled(_written()[value[1:]])
    return value
