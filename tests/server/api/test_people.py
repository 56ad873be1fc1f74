"""People over HTTP (`server.api.people`): who asks, sessions and their end, and logins from the command line."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from server.api import events, lanes
from server.services.people import device_logins, sessions
from server.telemetry import JsonLines
from tests.factories.identity_provider import PUBLIC_CLIENT, IdentityProvider
from tests.factories.live_coordinator import Live, code_of, live
from tests.factories.logins import GRANTS, beside, logged_in, logging_in, provider_and_coordinator, with_groups

Both = tuple[IdentityProvider, Live]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with provider_and_coordinator(tmp_path_factory.mktemp("people")) as both:
        yield both


@pytest.fixture
def both(started: Both) -> Iterator[Both]:
    provider, here = started
    clean = vars(IdentityProvider(issuer=provider.issuer))
    yield started
    here.skew = 0.0
    here.coordinator.database.write("x", lambda tx: tx.session.execute(text("DELETE FROM device_logins")))
    for name in ("person", "key", "claims", "answers", "slow_down", "id_token", "metadata"):
        setattr(provider, name, clean[name])


def begin(here: Live) -> dict[str, Any]:
    answer = here.send("POST", "/v1/logins")
    assert answer.status_code == 201, answer.text
    return answer.json()


def poll(here: Live, token: str) -> httpx.Response:
    return here.send("POST", "/v1/logins/poll", json={"token": token})


def agreed(provider: IdentityProvider, here: Live) -> str:
    """The token of a login to which the person has agreed, and whose provider may be asked."""
    begun = begin(here)
    provider.decide(begun["user_code"], agreed=True)
    here.skew += begun["retry_after_seconds"]
    return begun["token"]


def session_of(provider: IdentityProvider, here: Live, *groups: str) -> dict[str, Any]:
    """A session from the command line, with its token."""
    provider.person = with_groups(*groups or ("leads",))
    answer = poll(here, agreed(provider, here))
    assert answer.status_code == 200, answer.text
    return answer.json()["session"]


def rows(here: Live, table: str) -> int:
    counted = text(f"SELECT count(*) FROM {table}")
    return here.coordinator.database.read("x", lambda tx: tx.session.scalar(counted)) or 0


def entries(here: Live) -> list[dict[str, Any]]:
    return [entry["event"] for entry in here.operator("GET", "/v1/audit").json()["entries"]]


def test_who_asks(both: Both) -> None:
    provider, here = both
    assert here.send("GET", "/v1/person", here.viewer_key).json() == {
        "kind": "key",
        "name": "Ada",
        "grants": [{"role": "viewer", "study": None}],
        "csrf_token": None,
    }
    session = session_of(provider, here)
    shown = here.send("GET", "/v1/person", session["token"]).json()
    assert (shown["kind"], shown["name"], shown["csrf_token"]) == ("session", "Ada Example", None)


def test_a_login_from_the_command_line(both: Both) -> None:
    provider, here = both
    begun = begin(here)
    assert begun["verification_uri"] == f"{provider.issuer}/device"
    assert not any(code in json.dumps(begun) for code in provider.devices), "the provider's code stays here"
    waiting = poll(here, begun["token"])
    assert waiting.headers["cache-control"] == "no-store"
    assert waiting.json()["session"] is None
    assert 1 <= waiting.json()["retry_after_seconds"] <= begun["retry_after_seconds"]
    here.skew += begun["retry_after_seconds"]
    assert poll(here, begun["token"]).json()["session"] is None, "the person has not answered"
    provider.decide(begun["user_code"], agreed=True)
    here.skew += begun["retry_after_seconds"]
    session = poll(here, begun["token"]).json()["session"]
    assert session["grants"] == [{"role": "lead", "study": "sepsis"}]
    assert here.send("GET", "/v1/studies", session["token"]).status_code == 200
    # Of both ends.
    last = entries(here)[-1]
    assert (last["action"], last["actor"]["id"], last["actor"]["kind"]) == ("poll_login", "ada-1", "session")
    assert code_of(poll(here, begun["token"])) == (404, "unknown-login"), "a login ends once"


def test_the_provider_is_not_asked_before_its_time(both: Both) -> None:
    provider, here = both
    token = begin(here)["token"]
    before = provider.requests["/token"]
    for _ in range(5):
        assert poll(here, token).json()["session"] is None
    assert provider.requests["/token"] == before


def test_a_provider_that_wants_to_be_asked_less(both: Both) -> None:
    provider, here = both
    begun = begin(here)
    provider.slow_down = True
    here.skew += begun["retry_after_seconds"]
    assert poll(here, begun["token"]).json()["retry_after_seconds"] > begun["retry_after_seconds"]


def test_a_person_who_says_no(both: Both) -> None:
    provider, here = both
    begun = begin(here)
    provider.decide(begun["user_code"], agreed=False)
    here.skew += begun["retry_after_seconds"]
    assert code_of(poll(here, begun["token"])) == (403, "login-refused")
    assert code_of(poll(here, begun["token"])) == (404, "unknown-login")


def test_a_person_who_takes_too_long(both: Both) -> None:
    _, here = both
    token = begin(here)["token"]
    here.skew = 3600.0
    assert code_of(poll(here, token)) == (403, "login-refused")
    assert code_of(poll(here, token)) == (404, "unknown-login")


@pytest.mark.parametrize("claims", [{"aud": ["another"]}, {"iss": "https://evil.example"}, {"exp": 1}])
def test_a_proof_that_is_not_accepted(both: Both, claims: dict[str, Any]) -> None:
    provider, here = both
    token = agreed(provider, here)
    provider.claims = claims
    assert code_of(poll(here, token)) == (403, "login-refused")


def test_a_person_without_a_role(both: Both) -> None:
    provider, here = both
    provider.person = with_groups("others")
    before = rows(here, "sessions")
    assert code_of(poll(here, agreed(provider, here))) == (403, "forbidden")
    assert rows(here, "sessions") == before


@pytest.mark.parametrize("token", ["wrl_0_0", "x", "wrl_\x00_x", "wrk_0000000000000000_0", "\u00e9"])
def test_a_strangers_token(both: Both, token: str) -> None:
    assert code_of(poll(both[1], token)) == (404, "unknown-login")


def test_a_poll_that_is_none(both: Both) -> None:
    for body in ({}, {"token": ""}, {"token": "x" * 201}, {"token": 7}, {"token": "x", "more": 1}):
        assert both[1].send("POST", "/v1/logins/poll", json=body).status_code == 422
    assert both[1].send("POST", "/v1/logins/poll", content=b'{"token": "\\ud800"}').status_code in (400, 422)
    assert code_of(both[1].send("POST", "/v1/logins/poll", json={"token": "x" * 5000})) == (413, "body-too-large")


def test_two_processes_ask_in_one_moment(both: Both, tmp_path: Path) -> None:
    provider, here = both
    with beside(here, tmp_path / "second", provider) as there:
        token = agreed(provider, here)
        there.skew = here.skew
        before = rows(here, "sessions")
        with ThreadPoolExecutor(8) as pool:
            asked = list(pool.map(lambda each: poll(each, token), 4 * [here, there]))
        found = [each for each in asked if each.status_code == 200 and each.json()["session"]]
        others = [each for each in asked if each not in found]
        assert len(found) == 1
        assert {each.status_code for each in others} <= {200, 404}
        assert rows(here, "sessions") == before + 1
        session = found[0].json()["session"]["token"]
        assert {each.send("GET", "/v1/person", session).status_code for each in (here, there)} == {200}


def test_a_process_that_was_killed_while_it_asked(both: Both) -> None:
    """The login goes on when its turn is over: here the database says that this is so."""
    provider, here = both
    token = agreed(provider, here)
    assert device_logins.take_turn(here.coordinator, token) is not None
    assert poll(here, token).json() == {"session": None, "retry_after_seconds": 1.0}
    turn = text("UPDATE device_logins SET asked_until = 0")
    here.coordinator.database.write("x", lambda tx: tx.session.execute(turn))
    assert poll(here, token).json()["session"]["name"] == "Ada Example"


def test_the_provider_is_away_for_a_while(both: Both) -> None:
    provider, here = both
    token = agreed(provider, here)
    provider.answers["/token"] = (503, {}, {})
    away = poll(here, token)
    assert code_of(away) == (503, "unavailable")
    assert "API keys work meanwhile" in away.json()["detail"]
    assert int(away.headers["retry-after"]) >= 1
    provider.answers.clear()
    assert poll(here, token).json()["session"]["name"] == "Ada Example"


def test_a_provider_without_the_device_flow(both: Both, tmp_path: Path) -> None:
    provider, _ = both
    provider.metadata = {"device_authorization_endpoint": None}
    with logging_in(tmp_path / "home", provider) as here:
        answer = here.send("POST", "/v1/logins")
    assert code_of(answer) == (503, "unavailable")
    assert "enable its device flow, or use a key" in answer.json()["detail"]


def test_a_public_client_for_the_command_line(both: Both, tmp_path: Path) -> None:
    provider, _ = both
    with logging_in(tmp_path / "home", provider, sso_device_client_id=PUBLIC_CLIENT) as here:
        assert session_of(provider, here)["name"] == "Ada Example"
    assert "client_secret" not in provider.forms[-1]


def test_two_hundred_logins_at_once(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers fill the places, and who has a key is served all the same."""
    _, here = both
    monkeypatch.setattr(device_logins, "MOST_AT_ONCE", 5)
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: here.send("POST", "/v1/logins"), range(24)))
    codes = {(each.status_code, each.json().get("code")) for each in answers}
    assert codes == {(201, None), (429, "too-many-logins")}
    # Those that count in one moment see the same number.
    assert 5 <= rows(here, "device_logins") <= 5 + lanes.LOGINS_OF_ALL
    assert here.operator("GET", "/v1/studies").status_code == 200


def test_secrets_of_a_login_are_not_logged(both: Both, caplog: pytest.LogCaptureFixture) -> None:
    provider, here = both
    with caplog.at_level(logging.DEBUG):
        token = agreed(provider, here)
        session = poll(here, token).json()["session"]["token"]
        here.send("DELETE", "/v1/session", session)
        poll(here, token)
    lines = [JsonLines().format(record) for record in caplog.records if record.name.startswith("wardround")]
    assert len(lines) >= 4
    hidden = [token, session, *provider.devices, *(one["user_code"] for one in provider.devices.values())]
    assert [secret for secret in hidden if any(secret.rpartition("_")[2] in line for line in lines)] == []


def test_a_person_logs_out(both: Both) -> None:
    provider, here = both
    browser, other = logged_in(here), logged_in(here)
    token = browser.token
    answer = browser.send("DELETE", "/v1/session", headers=browser.csrf)
    assert answer.json()["logout_address"].startswith(f"{provider.issuer}/logout?")
    assert browser.cookies == {}, "the browser forgets it"
    assert code_of(here.send("GET", "/v1/person", token)) == (401, "bad-token")
    assert other.get("/v1/person").status_code == 200
    last = entries(here)[-1]
    assert (last["action"], last["address"], last["actor"]["id"]) == ("log_out", "/v1/session", "ada-1")


def test_a_key_does_not_log_out(both: Both) -> None:
    _, here = both
    before = len(entries(here))
    assert here.send("DELETE", "/v1/session", here.viewer_key).status_code == 200
    assert here.send("GET", "/v1/person", here.viewer_key).status_code == 200
    assert len(entries(here)) == before


def test_an_administrator_ends_a_session(both: Both) -> None:
    provider, here = both
    session, lead = session_of(provider, here, "admins"), session_of(provider, here)
    listed = here.operator("GET", "/v1/sessions").json()["sessions"]
    assert {session["id"], lead["id"]} <= {one["id"] for one in listed}
    assert {one["token"] for one in listed} == {None}
    path = f"/v1/sessions/{session['id']}"
    for method, where in (("GET", "/v1/sessions"), ("DELETE", path)):
        assert code_of(here.send(method, where, lead["token"])) == (403, "forbidden")
    for _ in range(2):
        assert here.operator("DELETE", path).status_code == 204
    assert code_of(here.send("GET", "/v1/person", session["token"])) == (401, "bad-token")
    last = entries(here)[-1]
    assert (last["action"], last["address"], last["actor"]["kind"]) == ("end_session", path, "key")


def test_an_id_that_is_none(both: Both) -> None:
    for id in ("x", "0" * 33, "%00", "A"):
        assert both[1].operator("DELETE", f"/v1/sessions/{id}").status_code in (404, 422)


def test_a_session_expires(both: Both) -> None:
    provider, here = both
    token = session_of(provider, here)["token"]
    statement = text("UPDATE sessions SET created_at = 0, expires_at = 1")
    here.coordinator.database.write("x", lambda tx: tx.session.execute(statement))
    answer = here.send("GET", "/v1/studies", token)
    assert code_of(answer) == (401, "bad-token")
    assert "expired: log in again" in answer.json()["detail"]


def test_a_session_lasts_as_long_as_the_settings_say(both: Both, tmp_path: Path) -> None:
    provider, _ = both
    with logging_in(tmp_path / "home", provider, sso_session_minutes=5) as here:
        session = session_of(provider, here)
        (listed,) = here.operator("GET", "/v1/sessions").json()["sessions"]
        assert {name: listed[name] for name in ("created_at", "expires_at")} == {
            name: session[name] for name in ("created_at", "expires_at")
        }
        row = text("SELECT expires_at - created_at FROM sessions")
        assert here.coordinator.database.read("x", lambda tx: tx.session.scalar(row)) == pytest.approx(300.0)


@pytest.mark.slow
def test_the_file_of_grants_is_read_at_the_start(both: Both, tmp_path: Path) -> None:
    provider, _ = both
    home = tmp_path / "home"
    with logging_in(home, provider) as here:
        token = session_of(provider, here)["token"]
        assert here.send("GET", "/v1/person", token).json()["grants"] == [{"role": "lead", "study": "sepsis"}]
    with logging_in(home, provider, GRANTS.replace('"lead"', '"viewer"')) as here:
        assert here.send("GET", "/v1/person", token).json()["grants"] == [{"role": "viewer", "study": "sepsis"}]
        assert code_of(here.send("POST", "/v1/studies/sepsis/start", token)) == (403, "forbidden")
    with logging_in(home, provider, GRANTS.replace('"leads"', '"others"')) as here:
        answer = here.send("GET", "/v1/person", token)
        assert code_of(answer) == (401, "bad-token")
        assert "no role here any more" in answer.json()["detail"]
    with live(home) as here:
        assert code_of(here.send("GET", "/v1/person", token)) == (401, "bad-token"), "without a provider"


def test_an_event_stream_ends_with_its_session(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    provider, here = both
    monkeypatch.setattr(events, "KEEP_ALIVE_SECONDS", 0.05)
    here.open_study("sepsis")
    token = session_of(provider, here)["token"]
    path = "/v1/studies/sepsis/events?wait=60"
    started = time.monotonic()
    with here.http.stream("GET", path, headers={"Authorization": f"Bearer {token}"}) as stream:
        assert stream.status_code == 200
        lines = stream.iter_lines()
        assert next(lines).startswith("id: ")
        sessions.end_session(here.coordinator, token.split("_")[1])
        for _ in lines:
            pass
    assert time.monotonic() - started < 30.0, "not by its own time"


def test_a_session_of_one_study_reads_no_other(both: Both) -> None:
    provider, here = both
    token = session_of(provider, here)["token"]
    assert code_of(here.send("GET", "/v1/studies/stroke", token)) == (403, "forbidden")
    assert code_of(here.send("GET", "/v1/audit", token)) == (403, "forbidden")
    body = {"role": "viewer", "study": "stroke", "name": "Grace"}
    assert code_of(here.send("POST", "/v1/api-keys", token, json=body)) == (403, "forbidden")


def test_a_coordinator_without_a_provider(tmp_path: Path) -> None:
    with live(tmp_path) as here:
        assert code_of(here.send("POST", "/v1/logins")) == (404, "no-single-sign-on")
        assert code_of(poll(here, "wrl_0_0")) == (404, "no-single-sign-on")
        assert here.send("DELETE", "/v1/session", here.viewer_key).json() == {"logout_address": None}
