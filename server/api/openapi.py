"""The API's own description: one error document for everything, and how requests are signed."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from client_sdk.protocol.study.messages import Problem
from server.api.problems import MEDIA_TYPE

OPEN = {"/livez", "/readyz", "/v1/enrolments"}
_SCHEMES = {
    "client": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "EdDSA, per request: iss client, sub study, aud origin, htm, htu, bh, iat, exp; jti on POST",
    },
    "key": {"type": "http", "scheme": "bearer", "description": "wrk_<id>_<secret>"},
}


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document of `app`."""
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas["Problem"] = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    components["securitySchemes"] = _SCHEMES
    problem = {"content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}, "description": "Problem"}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = problem
            if path not in OPEN:
                operation["security"] = [{"client": []}, {"key": []}]
    return document
