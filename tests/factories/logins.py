"""Logins at a coordinator with an identity provider, as a browser and a command line do them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx

from server.api.session_cookie import CSRF_HEADER, SESSION_COOKIE
from tests.factories.identity_provider import CLIENT, IdentityProvider, identity_provider, log_in_at
from tests.factories.live_coordinator import Live, live

GRANTS = """
[[grant]]
group = "leads"
role = "lead"
study = "sepsis"

[[grant]]
group = "admins"
role = "administrator"
"""


def with_groups(*groups: str, **claims: Any) -> dict[str, Any]:
    """Claims of a person."""
    return {"sub": "ada-1", "name": "Ada Example", "groups": list(groups)} | claims


@contextmanager
def logging_in(home: Path, provider: IdentityProvider, grants: str = GRANTS, **settings: Any) -> Generator[Live]:
    """A coordinator whose people log in at the provider."""
    home.mkdir(exist_ok=True)
    file = home / "grants.toml"
    file.write_text(grants)
    given = {"sso_issuer": provider.issuer, "sso_client_id": CLIENT, "sso_client_secret": provider.secret}
    with live(home, sso_grants=file, **given | settings) as here:
        yield here


@contextmanager
def provider_and_coordinator(home: Path, **settings: Any) -> Iterator[tuple[IdentityProvider, Live]]:
    with identity_provider() as provider, logging_in(home, provider, **settings) as here:
        yield provider, here


@contextmanager
def beside(here: Live, home: Path, provider: IdentityProvider) -> Generator[Live]:
    """Another process of the same coordinator: one database, and one signing key."""
    database = here.coordinator.database.engine.url.render_as_string()
    with logging_in(home, provider, database_url=database, signing_key_path=here.home / "coordinator.key") as there:
        yield there


@dataclass
class Browser:
    """Keeps cookies by hand: the coordinator's origin is https, and its socket is not."""

    here: Live
    cookies: dict[str, str] = field(default_factory=dict[str, str])

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.send("GET", path, **options)

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = dict(options.pop("headers", {}))
        if self.cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        answer = self.here.http.request(method, path, headers=headers, **options)
        # Otherwise the client would send them again by itself.
        self.here.http.cookies.clear()
        for name, cookie in cookies_set_by(answer).items():
            if cookie.value:
                self.cookies[name] = cookie.value
            else:
                self.cookies.pop(name, None)
        return answer

    def begin(self, path: str = "/login") -> list[tuple[str, str]]:
        """Go to the provider, and return the query with which it sends the browser back."""
        answer = self.get(path)
        assert answer.status_code == 303, answer.text
        return log_in_at(answer.headers["Location"])

    def finish(self, query: list[tuple[str, str]]) -> httpx.Response:
        return self.get(f"/sso/back?{urlencode(query)}")

    def log_in(self, path: str = "/login") -> httpx.Response:
        return self.finish(self.begin(path))

    @property
    def token(self) -> str:
        return self.cookies[SESSION_COOKIE]

    @property
    def csrf(self) -> dict[str, str]:
        return {CSRF_HEADER: str(self.get("/v1/person").json()["csrf_token"])}


def cookies_set_by(answer: httpx.Response) -> dict[str, Any]:
    """By name: cookies of an answer with their flags."""
    found: dict[str, Any] = {}
    for line in answer.headers.get_list("set-cookie"):
        found |= SimpleCookie(line)
    return found


def logged_in(here: Live) -> Browser:
    """A browser of the provider's person, with a session."""
    browser = Browser(here)
    answer = browser.log_in()
    assert answer.status_code == 303, answer.text
    return browser
