"""A person logs in from the command line, at a provider and a coordinator that really answer."""

from __future__ import annotations

import re
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.factories.commands import Run
from tests.factories.identity_provider import CLIENT, SECRET, IdentityProvider, identity_provider
from tests.factories.live_coordinator import Live, live
from wardround.cli.shared.session_file import kept_session, session_file

GRANTS = '[[grant]]\ngroup = "leads"\nrole = "lead"\nstudy = "sepsis"\n'


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with identity_provider() as running:
        yield running


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory, provider: IdentityProvider) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("coordinator")
    (folder / "grants.toml").write_text(GRANTS)
    sso = {"sso_issuer": provider.issuer, "sso_client_id": CLIENT, "sso_client_secret": SECRET}
    with live(folder / "home", sso_grants=folder / "grants.toml", **sso) as running:
        running.open_study("sepsis")
        running.open_study("stroke")
        yield running


@pytest.fixture(autouse=True)
def _own_folder(there: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("WARDROUND_SERVER", there.url)
    monkeypatch.setenv("WARDROUND_CLIENT_HOME", str(tmp_path / "nobody"))


def _answer(provider: IdentityProvider, *, agreed: bool) -> threading.Thread:
    """The person at the provider's page, once the code is known."""
    known = set(provider.devices)

    def decide() -> None:
        while not (new := set(provider.devices) - known):
            time.sleep(0.01)
        provider.decide(str(provider.devices[new.pop()]["user_code"]), agreed=agreed)

    person = threading.Thread(target=decide)
    person.start()
    return person


@pytest.mark.slow
def test_a_person_logs_in_works_and_logs_out(there: Live, provider: IdentityProvider, run: Run) -> None:
    person = _answer(provider, agreed=True)
    said = run("login").output
    person.join()
    assert re.search(r"Ada Example is logged in until .*: lead of sepsis", said)
    file = session_file(there.url)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    token = kept_session(there.url)
    assert token is not None
    assert token not in said
    # No key is named anywhere, and no hospital is here.
    assert "sepsis" in run("study", "show", "sepsis").output
    run("invite", "sepsis", "north")
    assert "forbidden" in run("study", "show", "stroke", code=1).output
    log = there.operator("GET", "/v1/studies/sepsis/audit").json()["entries"][-1]["event"]
    assert (log["action"], log["actor"]["kind"], log["actor"]["id"]) == ("invite", "session", "ada-1")
    assert "logged out" in run("logout").output
    assert not file.exists()
    assert there.send("GET", "/v1/person", token).status_code == 401
    assert "nobody is logged in" in run("logout", code=1).output
    assert "wardround login" in run("invite", "sepsis", "south", code=1).output


@pytest.mark.slow
def test_a_person_who_says_no_has_no_login(there: Live, provider: IdentityProvider, run: Run) -> None:
    person = _answer(provider, agreed=False)
    said = run("login", code=1).output
    person.join()
    assert "cancelled" in said
    assert kept_session(there.url) is None


def test_a_login_that_has_ended_says_so(there: Live, run: Run) -> None:
    file = session_file(there.url)
    file.parent.mkdir(parents=True)
    file.write_text("wrs_00_11\n")
    assert "log in again" in run("study", "show", "sepsis", code=1).output
    assert "logged out" in run("logout").output


def test_a_coordinator_with_keys_only_says_so(tmp_path: Path, run: Run) -> None:
    with live(tmp_path / "with-keys") as other:
        assert "use an API key" in run("login", "--server", other.url, code=1).output
