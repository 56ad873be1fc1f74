"""The OpenAPI document says everything: every field in words, an example of every body that fits, every error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field

from server.api import description, problems, refusals
from server.api.description import docstring_table, problem_example
from server.api.problems import CATALOGUE, MEDIA_TYPE
from study_protocol.study.messages import Problem
from study_protocol.wire.signing import ENROLMENT, request_token
from study_protocol.wire.values import Message
from tests.contract.test_openapi import _document, _operations

DOCUMENT = _document()
SCHEMAS: dict[str, dict[str, Any]] = DOCUMENT["components"]["schemas"]
OPERATIONS = [(name, path, method, DOCUMENT["paths"][path][method]) for path, method, name in _operations()]
IDS = [name for name, *_ in OPERATIONS]


def _resolved(node: Any) -> Any:
    """With references into the whole document, as a validator wants them."""
    return {**node, "components": DOCUMENT["components"]}


def _properties(node: Any, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(node, dict):
        for name, field in node.get("properties", {}).items() if isinstance(node.get("properties"), dict) else ():
            yield f"{place}.{name}", field
        for name, inner in node.items():
            yield from _properties(inner, place if name == "properties" else f"{place}.{name}")
    elif isinstance(node, list):
        for inner in node:
            yield from _properties(inner, place)


def test_every_field_is_described_in_words() -> None:
    found = [*_properties(SCHEMAS, "schemas"), *_properties(DOCUMENT["paths"], "paths")]
    assert len(found) > 150
    assert [place for place, field in found if not field.get("description", "").strip()] == []


def test_every_parameter_is_described() -> None:
    missing = [
        f"{name} {p['name']}"
        for name, _, _, op in OPERATIONS
        for p in op.get("parameters", ())
        if not p.get("description")
    ]
    assert missing == []


def test_a_mistake_in_any_parameter_is_named_by_its_word() -> None:
    parameters = {p["name"] for *_, op in OPERATIONS for p in op.get("parameters", ()) if p["in"] != "header"}
    assert parameters - problems._words() == set()  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(("name", "path", "method", "operation"), OPERATIONS, ids=IDS)
def test_every_body_has_an_example_that_fits(name: str, path: str, method: str, operation: dict[str, Any]) -> None:
    for part in (operation.get("requestBody", {}), *operation["responses"].values()):
        for content in part.get("content", {}).values():
            examples = (
                [one["value"] for one in content["examples"].values()]
                if "examples" in content
                else [content["example"]]
            )
            assert examples
            for example in examples:
                jsonschema.Draft202012Validator(_resolved(content["schema"])).validate(example)


@pytest.mark.parametrize("name", sorted(description._written()))
def test_every_written_example_is_a_message_of_its_name(name: str) -> None:
    (kind,) = [one for one in description._messages(Message) if one.__name__ == name]
    kind.model_validate(description._filled(description._written()[name]))


@pytest.mark.parametrize(("name", "path", "method", "operation"), OPERATIONS, ids=IDS)
def test_every_operation_lists_its_errors_by_status(
    name: str, path: str, method: str, operation: dict[str, Any]
) -> None:
    assert "default" not in operation["responses"], "an error that is not listed is an error of the description"
    listed: set[str] = set()
    for status, answer in operation["responses"].items():
        if int(status) < 400:
            continue
        ((media_type, content),) = answer["content"].items()
        assert media_type == MEDIA_TYPE
        codes = content["schema"]["allOf"][1]["properties"]["code"]["enum"]
        assert set(codes) == set(content["examples"])
        assert all(f"`{code}`: {CATALOGUE[code].title}" in answer["description"] for code in codes)
        assert {str(CATALOGUE[code].status) for code in codes} - {status} <= ({"422"} if status == "400" else set())
        listed |= set(codes)
    assert listed == refusals.refusals_of(path, method, operation)
    assert "internal" in listed


def test_every_code_is_listed_by_some_operation() -> None:
    listed = set().union(*(refusals.refusals_of(path, method, operation) for _, path, method, operation in OPERATIONS))
    # Of addresses and methods that are none.
    assert set(CATALOGUE) - listed == {"not-found", "method-not-allowed"}


def test_the_table_names_operations_that_exist() -> None:
    assert set(refusals._OF_OPERATION) <= {name for name, *_ in OPERATIONS}


def test_what_is_open_to_anybody_is_listed() -> None:
    found = {path for _, path, _, operation in OPERATIONS if "security" not in operation}
    assert found == refusals.OPEN


@pytest.mark.parametrize(
    ("method", "path", "schemes"),
    [
        ("post", "/v1/studies", ["key", "session"]),
        ("get", "/v1/studies", ["key", "session"]),
        ("put", "/v1/studies/{study}/models/0", ["key", "session"]),
        ("get", "/v1/studies/{study}/budget", ["client", "key", "session"]),
        ("get", "/v1/studies/{study}/assignment", ["client"]),
        ("put", "/v1/studies/{study}/rounds/{round}/updates/{client}", ["client"]),
        ("put", "/v1/studies/{study}/clients/{client}/withdrawn", ["client"]),
    ],
)
def test_an_operation_says_whose_requests_it_takes(method: str, path: str, schemes: list[str]) -> None:
    assert [name for one in DOCUMENT["paths"][path][method]["security"] for name in one] == schemes


def test_operations_have_names_of_their_own() -> None:
    assert len(set(IDS)) == len(IDS) > 30
    assert {"HTTPValidationError", "ValidationError"}.isdisjoint(SCHEMAS)


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_an_example_of_a_problem_is_one(code: str) -> None:
    problem = Problem.model_validate(problem_example(code))
    assert (problem.code, problem.status) == (code, CATALOGUE[code].status)


class _Parent(Message):
    """A parent.

    first  said by the parent
    """

    first: int


class _Child(_Parent):
    """A child: no row  of this line.

    second, third  said by the child,
                   on two lines
    nobody         no field of this name
    """

    second: int
    third: int = Field(description="beside")


def test_the_table_of_a_docstring_is_read_row_by_row() -> None:
    two = "said by the child, on two lines"
    assert docstring_table(_Child) == {"first": "said by the parent", "second": two, "third": two}


def test_how_a_request_is_signed_is_described_to_the_last_claim() -> None:
    """Whoever writes another client has this document alone."""
    said = DOCUMENT["components"]["securitySchemes"]["client"]["description"]
    key = Ed25519PrivateKey.generate()
    target = {"audience": "a", "method": "POST", "url": "u", "body_sha256": "b"}
    token = request_token(key, client="c", study="s", **target, now=1.0, token_id="t")
    claims = jwt.decode(token, options={"verify_signature": False})
    assert [name for name in (*claims, ENROLMENT) if f"`{name}`" not in said] == []
    assert f"at most {claims['exp'] - claims['iat']} later" in said
