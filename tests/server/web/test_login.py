"""A login in a browser: through the identity provider and back, once, by this browser, with a session in a cookie."""

from __future__ import annotations

import logging
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import httpx
import pytest

from server.api.session_cookie import SESSION_COOKIE
from server.telemetry import JsonLines
from server.web.login import LOGIN_COOKIE
from study_protocol.wire.documents import load_json
from tests.factories.identity_provider import ADA, IdentityProvider, identity_provider
from tests.factories.live_coordinator import ORIGIN, Live, live
from tests.factories.logins import (
    Browser,
    beside,
    cookies_set_by,
    logged_in,
    logging_in,
    provider_and_coordinator,
    with_groups,
)
from tests.factories.token_keys import rsa_key

Both = tuple[IdentityProvider, Live]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with provider_and_coordinator(tmp_path_factory.mktemp("login")) as both:
        yield both


@pytest.fixture
def both(started: Both) -> Iterator[Both]:
    """Both as they began, whatever the test before has changed."""
    provider, here = started
    clean = vars(IdentityProvider(issuer=provider.issuer))
    yield started
    here.skew = 0.0
    for name in ("person", "key", "alg", "claims", "answers", "userinfo", "id_token", "metadata"):
        setattr(provider, name, clean[name])
    provider.published = [provider.key]


def told(answer: httpx.Response, status: int) -> str:
    """The text of a page that says why nobody is logged in."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert SESSION_COOKIE not in cookies_set_by(answer)
    return answer.text


def test_a_login_leads_to_the_page_that_asked(both: Both) -> None:
    provider, here = both
    browser = Browser(here)
    asked = browser.get("/login?to=/dashboard/sepsis")
    sent_to = urlsplit(asked.headers["Location"])
    assert (asked.status_code, f"{sent_to.scheme}://{sent_to.netloc}") == (303, provider.issuer)
    assert parse_qs(sent_to.query)["redirect_uri"] == [f"{ORIGIN}/sso/back"]
    answer = browser.log_in("/login?to=/dashboard/sepsis")
    assert (answer.status_code, answer.headers["Location"]) == (303, "/dashboard/sepsis")
    assert set(browser.cookies) == {SESSION_COOKIE}, "what the login needed is gone"
    person = browser.get("/v1/person").json()
    assert person["csrf_token"]
    assert (person["kind"], person["name"], person["grants"]) == (
        "session",
        "Ada Example",
        [{"role": "lead", "study": "sepsis"}],
    )


def test_flags_of_the_cookies(both: Both) -> None:
    browser = Browser(both[1])
    begun = browser.get("/login")
    ended = browser.log_in()
    for answer, name, site, seconds in (
        (begun, LOGIN_COOKIE, "lax", 600),
        (ended, SESSION_COOKIE, "strict", 3600),
        (ended, LOGIN_COOKIE, "lax", 0),
    ):
        cookie = cookies_set_by(answer)[name]
        assert name.startswith("__Host-")
        assert (cookie["secure"], cookie["httponly"], cookie["path"], cookie["domain"]) == (True, True, "/", "")
        assert (cookie["samesite"], int(cookie["max-age"])) == (site, seconds)
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    "to",
    [
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "/dashboard/../../evil",
        "/dashboard/sepsis%0d%0aSet-Cookie:a=b",
        "/dashboard/sepsis?x=//evil.example",
        "javascript:alert(1)",
        "/dashboard/" + "a" * 5000,
        "",
    ],
)
def test_a_login_leads_to_no_other_place(both: Both, to: str) -> None:
    browser = Browser(both[1])
    browser.get("/login", params={"to": to})
    kept = load_json(urlsafe_b64decode(browser.cookies[LOGIN_COOKIE]))
    assert kept["to"] == "/dashboard"


def test_a_place_in_a_changed_cookie_is_not_followed(both: Both) -> None:
    browser = Browser(both[1])
    query = browser.begin()
    kept = urlsafe_b64decode(browser.cookies[LOGIN_COOKIE])
    changed = kept.replace(b'"/dashboard"', b'"//evil.example"')
    assert changed != kept
    browser.cookies[LOGIN_COOKIE] = urlsafe_b64encode(changed).decode()
    assert "start the login again" in told(browser.finish(query), 403)


def forged(document: str) -> str:
    return urlsafe_b64encode(document.encode()).decode()


@pytest.mark.parametrize(
    "cookie",
    [
        None,
        "",
        "x",
        "\u00ff\u00fe",
        forged("[" * 5000),
        forged("{}"),
        forged('{"state":"\\ud800","nonce":"n","verifier":"v","expires_at":9e9,"to":"/dashboard"}'),
        forged('{"state":"s","nonce":"n","verifier":"v","expires_at":NaN,"to":"/dashboard"}'),
        urlsafe_b64encode(b"\xff\xfe").decode(),
    ],
)
def test_an_answer_without_a_login_of_this_browser(both: Both, cookie: str | None) -> None:
    browser = Browser(both[1])
    query = browser.begin()
    cookies = [] if cookie is None else [(b"Cookie", f"{LOGIN_COOKIE}={cookie}".encode("latin-1"))]
    text = told(both[1].http.get("/sso/back", params=dict(query), headers=cookies), 403)
    assert "This answer belongs to no login that this browser began here" in text


def test_the_answer_to_another_browser_is_refused(both: Both) -> None:
    """A forged login: the victim's browser is sent back with the attacker's code."""
    attacker, victim = Browser(both[1]), Browser(both[1])
    query = attacker.begin()
    victim.begin()
    told(victim.finish(query), 403)
    assert SESSION_COOKIE not in victim.cookies


def test_a_code_works_once(both: Both) -> None:
    browser = Browser(both[1])
    query = browser.begin()
    cookies = dict(browser.cookies)
    assert browser.finish(query).status_code == 303
    told(browser.finish(query), 403)
    # Also for whoever kept the cookie of the login.
    thief = Browser(both[1], cookies)
    assert "its code was used before" in told(thief.finish(query), 403)
    assert SESSION_COOKIE not in thief.cookies


def test_a_login_that_took_too_long(both: Both) -> None:
    provider, here = both
    browser = Browser(here)
    query = browser.begin()
    here.skew = 601.0
    assert "took too long" in told(browser.finish(query), 403)
    here.skew = 0.0
    browser = Browser(here)
    query = browser.begin()
    provider.codes.clear()
    assert "took too long" in told(browser.finish(query), 403), "the provider's code has expired"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"claims": {"aud": ["another-client"]}}, "it is meant for another client"),
        ({"claims": {"iss": "https://evil.example"}}, "it names another issuer"),
        ({"claims": {"nonce": "another"}}, "it belongs to another login"),
        ({"claims": {"exp": 1}}, "it has expired"),
        ({"key": rsa_key("stranger")}, "no key of the provider has signed it"),
        ({"claims": {"groups": {"a": 1}}}, "is not a list of names"),
    ],
)
def test_a_proof_that_is_not_accepted(both: Both, changes: dict[str, Any], words: str) -> None:
    provider, here = both
    for name, value in changes.items():
        setattr(provider, name, value)
    browser = Browser(here)
    assert words in told(browser.log_in(), 403)
    assert browser.cookies == {}


def test_an_answer_of_another_provider(both: Both) -> None:
    browser = Browser(both[1])
    query = [(name, "https://evil.example" if name == "iss" else value) for name, value in browser.begin()]
    assert "another identity provider" in told(browser.finish(query), 403)


def test_keys_of_the_provider_that_were_rotated(both: Both) -> None:
    provider, here = both
    logged_in(here)
    # Keys that are not known are fetched at most every 30 seconds.
    here.skew = 31.0
    provider.key = rsa_key("rotated")
    provider.published = [provider.key]
    assert logged_in(here).get("/v1/person").status_code == 200


def test_a_person_who_says_no(both: Both) -> None:
    provider, here = both
    provider.person = None
    text = told(Browser(here).log_in(), 403)
    assert "The login was cancelled" in text
    assert "<b>no</b>" not in text


def test_a_person_without_a_role(both: Both) -> None:
    provider, here = both
    for groups in ([], ["others"], ["Leads"]):
        provider.person = with_groups(*groups)
        browser = Browser(here)
        assert "your groups give you no role here" in told(browser.log_in(), 403)
        assert browser.cookies == {}


def test_names_are_shown_on_one_line(both: Both) -> None:
    provider, here = both
    provider.person = with_groups("leads", name="Ada\x00\x1b[31m\u202e\nLovelace\u2028\U0001f600" + "x" * 500)
    name = logged_in(here).get("/v1/person").json()["name"]
    assert name.startswith("Ada[31m Lovelace")
    assert len(name) <= 100
    assert name.isprintable()


def test_text_of_the_page_is_escaped(both: Both) -> None:
    provider, here = both
    browser = Browser(here)
    query = browser.begin()
    evil = "<script>alert(1)</script>"
    provider.answers["/token"] = (400, {"error": evil, "error_description": evil}, {})
    text = told(browser.finish(query), 403)
    assert evil not in text
    assert "<script" not in text


def test_errors_of_this_program_are_escaped(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    from server.web import login

    monkeypatch.setattr(login, "_NOT_OURS", '<img src=x onerror="alert(1)">&')
    text = told(Browser(both[1]).get("/sso/back"), 403)
    assert "<img" not in text
    assert "&lt;img src=x onerror=&quot;alert(1)&quot;&gt;&amp;." in text


def test_secrets_of_a_login_are_not_logged(both: Both, caplog: pytest.LogCaptureFixture) -> None:
    provider, here = both
    with caplog.at_level(logging.DEBUG):
        browser = Browser(here)
        query = browser.begin()
        kept = load_json(urlsafe_b64decode(browser.cookies[LOGIN_COOKIE]))
        browser.finish(query)
        refused = Browser(here)
        told(refused.finish(refused.begin()[:1]), 403)
        headers = browser.csrf
        browser.send("DELETE", "/v1/session", headers=headers)
    secrets = [kept[name] for name in ("state", "nonce", "verifier")]
    secrets += [value for name, value in query if name == "code"]
    secrets += [*headers.values(), provider.secret or "", "wrs_"]
    # Others are of the tests' own client and provider, and uvicorn's own log is switched off in service.
    ours = [record for record in caplog.records if record.name.startswith("wardround")]
    lines = [JsonLines().format(record) for record in ours]
    assert len(lines) > 5
    assert [secret for secret in secrets if any(secret in line for line in lines)] == []


def test_the_provider_is_away(tmp_path: Path) -> None:
    with identity_provider() as provider:
        issuer = provider.issuer
    # Nobody answers there any more.
    with logging_in(tmp_path / "home", IdentityProvider(issuer=issuer)) as here:
        text = told(Browser(here).get("/login"), 503)
        assert "The identity provider cannot be reached" in text
        assert "API keys work meanwhile" in text
        assert here.operator("GET", "/v1/studies").status_code == 200


def test_a_session_goes_on_while_the_provider_is_away(tmp_path: Path) -> None:
    with provider_and_coordinator(tmp_path / "home") as (provider, here):
        browser = logged_in(here)
        provider.answers |= {path: (503, {}, {}) for path in ("/token", "/.well-known/openid-configuration", "/jwks")}
        assert "overloaded or has a fault" in told(Browser(here).log_in(), 503)
        assert browser.get("/v1/studies").status_code == 200
        assert browser.send("DELETE", "/v1/session", headers=browser.csrf).status_code == 200


def test_a_coordinator_without_a_provider(tmp_path: Path) -> None:
    with live(tmp_path) as here:
        for path in ("/login", "/sso/back?code=x&state=y"):
            told(Browser(here).get(path), 403 if "back" in path else 404)
        assert "use an API key" in Browser(here).get("/login").text


def test_a_provider_that_does_not_know_the_coordinator(both: Both, caplog: pytest.LogCaptureFixture) -> None:
    provider, here = both
    provider.answers["/token"] = (401, {"error": "invalid_client"}, {})
    assert "does not accept the coordinator" in told(Browser(here).log_in(), 503)
    assert "single-sign-on-misconfigured" in {getattr(record, "event", "") for record in caplog.records}


def test_a_changed_group_counts_at_the_next_login(both: Both) -> None:
    provider, here = both
    first = logged_in(here)
    provider.person = with_groups("admins")
    second = logged_in(here)
    assert [grant["role"] for grant in first.get("/v1/person").json()["grants"]] == ["lead"]
    assert [grant["role"] for grant in second.get("/v1/person").json()["grants"]] == ["administrator"]
    assert ADA["groups"] == ["leads"]


def test_a_browser_finishes_at_another_process(both: Both, tmp_path: Path) -> None:
    provider, here = both
    with beside(here, tmp_path / "second", provider) as there:
        browser = Browser(here)
        query = browser.begin()
        browser.here = there
        assert browser.finish(query).status_code == 303
        browser.here = here
        assert browser.get("/v1/person").json()["name"] == "Ada Example"
        token = browser.token
        assert browser.send("DELETE", "/v1/session", headers=browser.csrf).status_code == 200
        assert there.send("GET", "/v1/person", token).status_code == 401
        log = there.operator("GET", "/v1/audit").json()
        assert (log["fault"], [entry["event"]["action"] for entry in log["entries"]][-2:]) == (
            None,
            ["finish_login", "log_out"],
        )


def test_a_redirect_holds_the_query_alone(both: Both) -> None:
    asked = Browser(both[1]).get("/login")
    query = dict(parse_qsl(urlsplit(asked.headers["Location"]).query))
    assert query["code_challenge_method"] == "S256"
    assert "client_secret" not in query
