"""A session in a browser: the cookie counts for reading, and for a change with the token of our own pages alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.routing import APIRoute

from server.api.session_cookie import CSRF_HEADER, SESSION_COOKIE
from server.app import ROUTERS
from server.services.people.sessions import csrf_token_of
from study_protocol.study.roles import OPERATIONS
from tests.factories.identity_provider import IdentityProvider
from tests.factories.live_coordinator import Live, code_of
from tests.factories.logins import Browser, logged_in, provider_and_coordinator, with_groups

ROUTES = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
CHANGING = [
    (method, route)
    for route in ROUTES
    for method in route.methods or ()
    if method != "GET" and "anyone" not in OPERATIONS[route.name]
]
# Of log-outs last: they end the session.
CHANGING.sort(key=lambda pair: pair[1].name in ("log_out", "end_session"))
Both = tuple[IdentityProvider, Live]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with provider_and_coordinator(tmp_path_factory.mktemp("cookie")) as both:
        both[0].person = with_groups("admins")
        yield both


@pytest.fixture(scope="module")
def browser(both: Both) -> Browser:
    return logged_in(both[1])


def _path(route: APIRoute) -> str:
    names = {"study": "nowhere", "client": "north", "round": "1", "query": "1", "version": "latest", "key": "0"}
    return route.path.format_map(names | {"session": "0", "name": "auditor"})


@pytest.mark.parametrize(("method", "route"), CHANGING, ids=lambda each: getattr(each, "name", each))
def test_no_change_without_the_token(both: Both, browser: Browser, method: str, route: APIRoute) -> None:
    before = both[1].operator("GET", "/v1/audit").json()["signed"]
    stranger = csrf_token_of("wrs_0_0")
    for headers in ({}, {CSRF_HEADER: ""}, {CSRF_HEADER: stranger}, {CSRF_HEADER: browser.token}):
        answer = browser.send(method, _path(route), headers=headers)
        assert code_of(answer) == (403, "forbidden"), answer.text
        assert CSRF_HEADER in answer.json()["detail"]
    signed = both[1].operator("GET", "/v1/audit").json()["signed"]
    assert signed == before, "nothing was changed"


def test_a_change_with_the_token(both: Both, browser: Browser) -> None:
    body = {"role": "viewer", "name": "Grace"}
    made = browser.send("POST", "/v1/api-keys", json=body, headers=browser.csrf)
    assert made.status_code == 201, made.text
    entry = both[1].operator("GET", "/v1/audit").json()["entries"][-1]["event"]
    actor = {"kind": "session", "id": "ada-1", "name": "Ada Example", "role": "administrator"}
    assert (entry["action"], entry["actor"]) == ("create_key", actor)


def test_the_token_is_of_this_session_alone(both: Both, browser: Browser) -> None:
    other = logged_in(both[1])
    refused = browser.send("POST", "/v1/api-keys", json={"role": "viewer", "name": "Grace"}, headers=other.csrf)
    assert code_of(refused) == (403, "forbidden")


def test_an_authorization_goes_before_the_cookie(both: Both, browser: Browser) -> None:
    here = both[1]

    def asked(method: str, path: str, token: str) -> int:
        return browser.send(method, path, headers={"Authorization": f"Bearer {token}"}).status_code

    assert asked("GET", "/v1/studies", "wrk_0_0") == 401, "a wrong key is not helped by a session"
    assert browser.get("/v1/studies", headers={"Authorization": ""}).status_code == 401
    shown = browser.get("/v1/person", headers={"Authorization": f"Bearer {here.viewer_key}"}).json()
    assert (shown["kind"], shown["csrf_token"]) == ("key", None)
    # A program that names its key is no forged request.
    assert asked("DELETE", "/v1/sessions/0", here.operator_key) == 204
    assert asked("DELETE", "/v1/sessions/0", here.viewer_key) == 403
    assert asked("DELETE", "/v1/sessions/0", browser.token) == 204, "also a session that a program names"


@pytest.mark.parametrize(
    "value",
    ["", "x", "wrs_", "wrs_x_y", "wrs_0000000000000000_00", '"wrs_\\000_x"', '"wrs_\\377_x"', "wrs_" + "0" * 3000],
)
def test_a_cookie_that_is_no_session(both: Both, value: str) -> None:
    answer = both[1].http.get("/v1/studies", headers={"Cookie": f"{SESSION_COOKIE}={value}"})
    assert code_of(answer) == (401, "bad-token")


def test_a_key_is_not_taken_from_a_cookie(both: Both) -> None:
    """A browser sends a cookie by itself. Keys are shown and kept by people."""
    here = both[1]
    answer = here.http.get("/v1/studies", headers={"Cookie": f"{SESSION_COOKIE}={here.operator_key}"})
    assert code_of(answer) == (401, "bad-token")


def test_another_cookie_is_not_the_session(both: Both, browser: Browser) -> None:
    name = SESSION_COOKIE.removeprefix("__Host-")
    answer = both[1].http.get("/v1/studies", headers={"Cookie": f"{name}={browser.token}"})
    assert code_of(answer) == (401, "bad-token")


@pytest.mark.parametrize("blank", [b"\xa0", b"\x85"])
def test_a_name_that_looks_like_the_cookie_is_another_one(both: Both, browser: Browser, blank: bytes) -> None:
    """A browser protects the name `__Host-…` alone: other hosts of the domain may set names with a blank before it."""
    cookie = blank + f"{SESSION_COOKIE}={browser.token}".encode()
    answer = both[1].http.get("/v1/studies", headers={b"Cookie": cookie})
    assert code_of(answer) == (401, "bad-token")
    # Nor does it take the place of the true one.
    both_cookies = f"{SESSION_COOKIE}={browser.token}; ".encode() + blank + f"{SESSION_COOKIE}=wrs_0_0".encode()
    assert both[1].http.get("/v1/studies", headers={b"Cookie": both_cookies}).status_code == 200
