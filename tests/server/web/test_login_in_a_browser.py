"""The dashboard's whole way through an identity provider, in Chromium: in, on, and out again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from server.services.people.sessions import list_sessions
from tests.factories.identity_provider import CLIENT, SECRET, IdentityProvider, identity_provider
from tests.factories.live_coordinator import Live, live
from tests.server.web.conftest import Tabs
from wardround.demo.processes import free_port

GRANTS = '[[grant]]\ngroup = "leads"\nrole = "viewer"\nstudy = "ward"\n'


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with identity_provider() as running:
        yield running


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, provider: IdentityProvider) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("coordinator")
    (folder / "grants.toml").write_text(GRANTS)
    port = free_port()
    sso: dict[str, Any] = {"sso_issuer": provider.issuer, "sso_client_id": CLIENT, "sso_client_secret": SECRET}
    address: dict[str, Any] = {"origin": f"http://127.0.0.1:{port}", "port": port}
    with live(folder / "home", sso_grants=folder / "grants.toml", **sso, **address) as running:
        running.open_study("ward")
        running.open_study("elsewhere")
        yield running


def test_in_on_and_out_again(tabs: Tabs, here: Live, provider: IdentityProvider) -> None:
    tabs.allowed = (provider.issuer,)
    page = tabs.blank()
    page.goto("/dashboard/ward")
    page.get_by_label("Viewer's key").wait_for()
    page.get_by_role("link", name="Log in at your organisation").click()
    # The provider knows the person, and sends the browser back to the page that it came from.
    page.locator("#bar .who", has_text="Ada Example").wait_for()
    assert page.url == f"{here.url}/dashboard/ward"
    assert page.locator("#bar .who").get_attribute("title") == "viewer of ward"
    # No script can read the cookie, and nothing is left of the login's own.
    assert page.evaluate("[document.cookie, sessionStorage.length, localStorage.length]") == ["", 0, 0]
    (cookie,) = page.context.cookies()
    assert cookie["name"] == "__Host-wardround-session"
    assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"], cookie["path"]) == (True, True, "Strict", "/")
    # Another tab of this browser is logged in, too, and sees this person's studies only.
    other = page.context.new_page()
    other.goto("/dashboard")
    other.locator("#list table").wait_for()
    assert "elsewhere" not in other.inner_text("body")
    other.goto("/dashboard/elsewhere")
    other.locator(".wrong", has_text="this needs the role").wait_for()
    other.close()
    assert len(list_sessions(here.coordinator).sessions) == 1
    page.get_by_role("button", name="Log out").click()
    page.get_by_label("Viewer's key").wait_for()
    assert page.url == f"{here.url}/dashboard"
    assert provider.requests["/logout"] == 1
    assert page.context.cookies() == []
    assert list_sessions(here.coordinator).sessions == []


@pytest.mark.slow
def test_a_key_goes_before_a_login_and_works_while_the_provider_is_away(
    tabs: Tabs, here: Live, provider: IdentityProvider
) -> None:
    tabs.allowed = (provider.issuer,)
    page = tabs.blank()
    page.goto("/login")
    page.locator("#bar .who", has_text="Ada Example").wait_for()
    page.evaluate("key => sessionStorage.setItem('wardround-key', key)", here.viewer_key)
    page.goto("/dashboard")
    page.locator("#list", has_text="elsewhere").wait_for()
    assert page.get_by_role("button", name="Forget the key").is_visible()
    page.get_by_role("button", name="Forget the key").click()
    page.locator("#bar .who", has_text="Ada Example").wait_for()


@pytest.mark.slow
def test_a_login_that_is_refused_says_why(tabs: Tabs, here: Live, provider: IdentityProvider) -> None:
    tabs.allowed = (provider.issuer,)
    page = tabs.blank()
    person, provider.person = provider.person, None
    try:
        page.goto("/login?to=/dashboard/ward")
        page.locator(".wrong", has_text="The login was cancelled").wait_for()
    finally:
        provider.person = person
    page.get_by_role("link", name="Log in again").click()
    page.locator("#bar .who", has_text="Ada Example").wait_for()
    # The session ends elsewhere: the page says so and offers a login.
    for session in list_sessions(here.coordinator).sessions:
        assert here.operator("DELETE", f"/v1/sessions/{session.id}").status_code == 204
    page.locator(".wrong", has_text="log in again").wait_for()
    page.get_by_role("link", name="Log in at your organisation").wait_for()
