"""Two read-only pages. They hold no data: their scripts read the page data with a person's key, or with a login.

So there is no cache that could leak.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import cast

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from server.api.auth import Context, StudyName
from server.api.docs import PAGE_HEADERS
from server.web.bundle import Bundle, find_bundle
from study_protocol.study.limit_words import NOT_CHARGED
from study_protocol.study.reasons import ENDINGS, FOR_GOOD, REASONS

FOLDER = Path(__file__).parent
# Open to all, because the pages are empty. Data needs a key.
router = APIRouter(include_in_schema=False)
logger = logging.getLogger("wardround.dashboard")


def open_charts(app: FastAPI) -> None:
    """Find the script that draws the charts, or make it, which takes two seconds once in a checkout."""
    app.state.charts = find_bundle()
    if app.state.charts is None:
        logger.warning("the dashboard shows tables without charts: install vl-convert-python and start again")


def _charts(request: Request) -> Bundle | None:
    return cast("Bundle | None", request.app.state.charts)


def _page(request: Request, name: str) -> HTMLResponse:
    text, charts = (FOLDER / name).read_text(), _charts(request)
    if charts is not None:
        text = text.replace('data-charts=""', f'data-charts="/charts/{charts.name}"')
    if cast(Context, request.app.state.context).provider is not None:
        text = text.replace('data-login=""', 'data-login="/login"')
    return HTMLResponse(text, headers=PAGE_HEADERS)


@router.get("/dashboard")
def all_studies(request: Request) -> HTMLResponse:
    return _page(request, "studies.html")


@router.get("/dashboard/{study}")
def study_page(request: Request, study: StudyName) -> HTMLResponse:
    return _page(request, "study.html")


@router.get("/reasons.js")
def reasons() -> Response:
    """Return the texts about abandoned rounds and ended studies as a script module."""
    tables = {"REASONS": REASONS, "ENDINGS": ENDINGS, "FOR_GOOD": FOR_GOOD, "NOT_CHARGED": NOT_CHARGED}
    script = "".join(f"export const {name} = {json.dumps(table)};\n" for name, table in tables.items())
    return Response(script, media_type="text/javascript", headers=PAGE_HEADERS)


@router.get("/charts/{name}")
def charts(request: Request, name: str) -> Response:
    """Return the charts' library. Its name changes with its content, so a browser that has it need not ask again."""
    bundle = _charts(request)
    if bundle is None or name != bundle.name:
        raise HTTPException(404)
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
    headers["X-Content-Type-Options"] = "nosniff"
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(bundle.script, media_type="text/javascript", headers=headers)
    return Response(bundle.compressed, media_type="text/javascript", headers=headers | {"Content-Encoding": "gzip"})
