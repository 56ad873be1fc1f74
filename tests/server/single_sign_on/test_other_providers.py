"""Logins at providers of other makers, as real servers on this machine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from server.single_sign_on.errors import LoginRefused
from server.single_sign_on.provider import Provider
from server.single_sign_on.settings import SingleSignOnSettings
from tests.factories.identity_provider import ADA, BACK, CLIENT, SECRET, IdentityProvider, log_in, single_sign_on
from tests.factories.idpyoidc_provider import idpyoidc_provider
from wardround.demo.processes import Processes, environment, free_port, until

READY_SECONDS = 150.0


@pytest.fixture
def mock(tmp_path: Path) -> Iterator[str]:
    """oidc-provider-mock, started as its documentation says."""
    issuer = f"http://localhost:{(port := free_port())}"
    command = [str(Path(sys.executable).with_name("oidc-provider-mock")), "--port", str(port)]

    def answers() -> bool:
        try:
            return httpx.get(f"{issuer}/.well-known/openid-configuration", trust_env=False).is_success
        except httpx.HTTPError:
            return False

    with Processes() as processes:
        process = processes.start("identity provider", command, env=environment(), log=tmp_path / "provider.log")
        assert until(answers, seconds=READY_SECONDS, check=process.check)
        yield issuer


def test_a_login_at_the_provider_that_the_page_names(mock: str) -> None:
    claims = {"name": "Ada Example", "groups": ["leads"]}
    httpx.put(f"{mock}/users/ada", json=claims, trust_env=False).raise_for_status()
    sso = Provider(SingleSignOnSettings(issuer=mock, client_id=CLIENT, client_secret=SECRET))  # pyright: ignore[reportArgumentType]

    async def log_in_with_the_form() -> None:
        address, pending = await sso.begin(BACK)
        answer = httpx.post(address, data={"sub": "ada"}, trust_env=False)
        parameters = parse_qsl(urlsplit(answer.headers["Location"]).query)
        identity = await sso.finish(pending, parameters)
        assert (identity.issuer, identity.subject, identity.name) == (mock, "ada", "Ada Example")
        assert identity.groups == ("leads",)
        with pytest.raises(LoginRefused) as again:
            await sso.finish(pending, parameters)
        assert again.value.code == "expired"

        address, pending = await sso.begin(BACK)
        answer = httpx.post(address, data={"action": "deny"}, trust_env=False)
        # This provider forgets the state of a login that was refused.
        parameters = [*parse_qsl(urlsplit(answer.headers["Location"]).query), ("state", pending.state)]
        with pytest.raises(LoginRefused) as denied:
            await sso.finish(pending, parameters)
        assert denied.value.code == "denied"

    asyncio.run(log_in_with_the_form())


def test_a_login_at_a_provider_made_with_another_library(tmp_path: Path) -> None:
    with idpyoidc_provider(tmp_path) as issuer:
        other = IdentityProvider(issuer=issuer)
        identity = log_in(single_sign_on(other, scopes="groups"))
        assert (identity.issuer, identity.name, identity.groups) == (issuer, ADA["name"], ("leads",))
        # A verifier of another login is refused there, too.
        sso = single_sign_on(other)

        async def mix() -> None:
            (address, _), (_, pending) = await sso.begin(BACK), await sso.begin(BACK)
            answer = httpx.get(address, trust_env=False)
            stolen = dict(parse_qsl(urlsplit(answer.headers["Location"]).query)) | {"state": pending.state}
            await sso.finish(pending, stolen.items())

        with pytest.raises(LoginRefused):
            asyncio.run(mix())
