"""The page that shows the API's description: Swagger UI from its own wheel, no foreign host, no inline code."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Response
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles

STATIC = Path(__file__).parent.parent / "web" / "static"
SWAGGER_UI_FILES = ("swagger-ui.css", "swagger-ui-bundle.js")
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
# The page of `fastapi_offline` itself starts Swagger UI from an inline script, which the policy refuses.
_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Wardround API</title>
<link rel="icon" href="/static/icon.svg">
<link rel="stylesheet" href="/static/swagger-ui/swagger-ui.css"></head>
<body><div id="swagger-ui"></div>
<script src="/static/swagger-ui/swagger-ui-bundle.js"></script><script src="/static/docs.js"></script></body>
</html>
"""
router = APIRouter(include_in_schema=False)


class AssetsMissing(FileNotFoundError):
    """The installed `fastapi-offline` does not hold Swagger UI, or is not there."""


@router.get("/docs")
async def docs() -> HTMLResponse:
    return HTMLResponse(_PAGE, headers=PAGE_HEADERS)


def swagger_ui() -> Path:
    """Return the folder of Swagger UI's files in the installed wheel `fastapi-offline`.

    Raises:
        AssetsMissing: the wheel is not installed, or lacks a file that the page names.
    """
    try:
        folder = Path(str(resources.files("fastapi_offline") / "static"))
    except ModuleNotFoundError as error:
        raise AssetsMissing("the API page needs the package fastapi-offline: install 'wardround[server]'") from error
    for name in SWAGGER_UI_FILES:
        if not (folder / name).is_file():
            raise AssetsMissing(
                f"the installed fastapi-offline has no {name} for the API page: install the version in constraints.txt"
            )
    return folder


def mount_static(app: FastAPI) -> None:
    """Serve our own static files, and Swagger UI's from its wheel.

    Raises:
        AssetsMissing: as `swagger_ui`.
    """
    # The narrower path comes first: the first mount that matches answers.
    app.mount("/static/swagger-ui", _RevalidatedFiles(directory=swagger_ui()), name="swagger-ui")
    app.mount("/static", _RevalidatedFiles(directory=STATIC), name="static")


class _RevalidatedFiles(StaticFiles):
    """Browsers ask whether a file is still the same: after an upgrade they would mix scripts of two versions."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        response.headers.update({"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"})
        return response
