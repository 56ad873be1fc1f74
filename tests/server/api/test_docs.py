"""The API page: Swagger UI comes from its wheel, and nothing of it needs what the policy refuses."""

from __future__ import annotations

import re
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from server.api.docs import CONTENT_SECURITY_POLICY, SWAGGER_UI_FILES, AssetsMissing, swagger_ui
from server.app import create_app
from server.config import Settings
from tests.factories.live_coordinator import Live

TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def test_the_page_loads_nothing_from_elsewhere_and_nothing_inline(here: Live) -> None:
    page = here.send("GET", "/docs")
    assert page.status_code == 200
    assert page.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert not re.search(r"<style|\sstyle=|\son\w+=|https?:", page.text)
    assert all(re.search(r'\ssrc="/static/', tag) for tag in re.findall(r"<script[^>]*>", page.text))


def test_every_asset_of_the_page_answers_with_its_type(here: Live) -> None:
    addresses = re.findall(r'(?:src|href)="([^"]+)"', here.send("GET", "/docs").text)
    assert {address.rpartition("/")[2] for address in addresses} == {*SWAGGER_UI_FILES, "docs.js", "icon.svg"}
    for address in addresses:
        answer = here.send("GET", address)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(TYPES[Path(address).suffix])
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_swagger_ui_is_the_wheels_and_cached_as_our_own_files_are(here: Live) -> None:
    ours = here.send("GET", "/static/docs.js").headers
    for name in SWAGGER_UI_FILES:
        answer = here.send("GET", f"/static/swagger-ui/{name}")
        assert answer.content == (swagger_ui() / name).read_bytes()
        assert answer.headers["etag"]
        assert answer.headers.get("cache-control") == ours.get("cache-control")
    assert swagger_ui() == distribution("fastapi-offline").locate_file("fastapi_offline/static")


def test_the_style_sheet_fetches_nothing() -> None:
    text = (swagger_ui() / "swagger-ui.css").read_text()
    assert "@import" not in text
    fetched = re.findall(r"url\(([^)]{0,40})", text)
    assert fetched
    assert all(address.strip("\"'").startswith("data:image/") for address in fetched)


def test_without_the_wheel_nothing_starts(here: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastapi_offline", None)
    with pytest.raises(AssetsMissing, match=r"fastapi-offline.*wardround\[server\]"):
        create_app(Settings(), coordinator=here.coordinator)


@pytest.mark.parametrize("absent", SWAGGER_UI_FILES)
def test_a_wheel_without_a_file_of_the_page_is_refused(
    absent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    static = tmp_path / "fastapi_offline" / "static"
    static.mkdir(parents=True)
    (static.parent / "__init__.py").touch()
    for name in SWAGGER_UI_FILES:
        (static / name).touch()
    monkeypatch.delitem(sys.modules, "fastapi_offline", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert swagger_ui() == static
    (static / absent).unlink()
    with pytest.raises(AssetsMissing, match=absent):
        swagger_ui()
    sys.modules.pop("fastapi_offline")
