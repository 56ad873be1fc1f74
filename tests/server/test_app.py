"""The application: every router in it, headers on every answer, and a worker inside only where it is wanted."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from fastapi import APIRouter, FastAPI

import server.api
from server.app import ROUTERS, create_app
from server.config import Settings, SettingsError
from server.coordinator import prepare
from tests.factories.live_coordinator import live


def test_a_stopping_coordinator_sends_the_waiting_home(tmp_path: Path) -> None:
    """The caller's patience is shorter than the wait it asks for."""
    with ThreadPoolExecutor(1) as pool:
        with live(tmp_path / "home") as stopping:
            stopping.open_study("ward")
            who = stopping.enrol("ward", "north")
            path = "/v1/studies/ward/assignment?wait=25"
            headers = {"Authorization": f"Bearer {stopping.token(who, 'GET', path)}"}
            waiting = pool.submit(httpx.get, stopping.url + path, headers=headers, timeout=15, trust_env=False)
            time.sleep(0.5)
            assert not waiting.done()
        assert waiting.result().status_code == 204


@pytest.fixture
def home(tmp_path: Path) -> Path:
    prepare(Settings(home=tmp_path))
    return tmp_path


def _answers(app: FastAPI, *paths: str) -> list[httpx.Response]:
    """Of a running application: started, asked in this process, shut down."""

    async def scenario() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://here") as http,
        ):
            return [await http.get(path) for path in paths]

    return asyncio.run(scenario())


def test_every_router_of_the_api_is_mounted() -> None:
    names = [f"server.api.{found.name}" for found in pkgutil.iter_modules(server.api.__path__)]
    found = [getattr(importlib.import_module(name), "router", None) for name in names]
    routers = {id(router) for router in found if isinstance(router, APIRouter)}
    assert len(routers) > 5
    assert routers <= {id(router) for router in ROUTERS}


def test_an_application_over_its_settings_answers_and_closes_what_it_opened(home: Path) -> None:
    app = create_app(Settings(home=home, worker=False))
    ready, nowhere = _answers(app, "/readyz", "/nowhere/")
    assert (ready.status_code, nowhere.status_code) == (200, 404)
    assert nowhere.headers["content-type"] == "application/problem+json"
    assert nowhere.headers["x-request-id"] == nowhere.json()["request_id"]
    assert asyncio.run(app.state.context.watcher.wait("sepsis", 0, 10)) is False, "nobody waits in a closed application"


@pytest.mark.parametrize("worker", [True, False])
def test_a_worker_runs_inside_where_it_is_wanted(home: Path, worker: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    monkeypatch.setattr("server.worker.Worker.run", lambda self: ran.append("worker"))
    (alive,) = _answers(create_app(Settings(home=home, worker=worker)), "/livez")
    assert alive.status_code == 200
    assert ran == ["worker"] * worker


def _with_logins(home: Path) -> Settings:
    grants = home / "grants.toml"
    grants.write_text('[[grant]]\ngroup = "leads"\nrole = "lead"\n')
    origin, issuer = "https://study.example.org", "https://id.example.org"
    return Settings(home=home, origin=origin, sso_issuer=issuer, sso_client_id="wardround", sso_grants=grants)


def test_logins_need_their_extra(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "server.single_sign_on.provider", None)
    with pytest.raises(SettingsError, match=r"WARDROUND_SSO_ISSUER needs more packages: install 'wardround\[sso\]'"):
        create_app(_with_logins(home))
    create_app(Settings(home=home))


def test_a_wrong_proxy_is_named_at_the_start(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "ftp://proxy.example.org")
    with pytest.raises(SettingsError, match="check HTTPS_PROXY"):
        create_app(_with_logins(home))


@pytest.mark.slow
def test_the_server_needs_no_library_of_logins() -> None:
    """The extra is loaded where an identity provider is set, and nowhere else."""
    script = "import sys, server.app; print({'authlib', 'joserfc'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "set()\n"
