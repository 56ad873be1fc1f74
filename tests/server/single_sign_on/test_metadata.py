"""A provider's description of itself, true and false."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from server.single_sign_on.errors import ProviderUnavailable, SingleSignOnMisconfigured
from server.single_sign_on.metadata import ProviderMetadata, fetch_metadata
from server.single_sign_on.provider_http import ProviderAnswer, ProviderHttp
from tests.factories.case_ids import plain_id
from tests.factories.identity_provider import IdentityProvider, single_sign_on

ISSUER = "https://id.example/realms/study"
TRUE = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/auth",
    "token_endpoint": f"{ISSUER}/token",
    "jwks_uri": f"{ISSUER}/keys",
}


class Answering(ProviderHttp):
    """Answers without a network, and keeps the address."""

    def __init__(self, content: dict[str, Any], status: int = 200) -> None:
        self.answer, self.asked = ProviderAnswer(status, content), ""

    async def get(self, address: str, *, bearer: str | None = None) -> ProviderAnswer:
        self.asked = address
        return self.answer


def fetch(content: dict[str, Any], issuer: str = ISSUER, status: int = 200) -> ProviderMetadata:
    return asyncio.run(fetch_metadata(Answering(content, status), issuer))


def test_the_entries_of_the_standard_have_its_defaults() -> None:
    metadata = fetch(TRUE | {"unknown": [1]})
    assert metadata.id_token_signing_alg_values_supported == ["RS256"]
    assert metadata.token_endpoint_auth_methods_supported == ["client_secret_basic"]
    assert metadata.end_session_endpoint is None


@pytest.mark.parametrize("issuer", [ISSUER, f"{ISSUER}/"])
def test_the_description_is_below_the_issuer(issuer: str) -> None:
    http = Answering(TRUE | {"issuer": issuer})
    asyncio.run(fetch_metadata(http, issuer))
    assert http.asked == "https://id.example/realms/study/.well-known/openid-configuration"


@pytest.mark.parametrize("issuer", [f"{ISSUER}/", "https://ID.example/realms/study", "https://evil.example", "<b>"])
def test_another_issuer_is_refused_and_not_repeated(issuer: str) -> None:
    with pytest.raises(SingleSignOnMisconfigured, match="another issuer") as error:
        fetch(TRUE | {"issuer": issuer})
    assert "<b>" not in str(error.value)


@pytest.mark.parametrize("name", [name for name in TRUE if name != "issuer"])
@pytest.mark.parametrize(
    "address",
    ["http://id.example/x", "http://127.0.0.1/x", "javascript:alert(1)", "https://", "https://u:p@id.example/", "//x"],
)
def test_an_address_that_is_not_encrypted_is_refused(name: str, address: str) -> None:
    with pytest.raises(SingleSignOnMisconfigured, match=f"{name}.*https"):
        fetch(TRUE | {name: address})


@pytest.mark.parametrize(
    "changed",
    [
        {"token_endpoint": None},
        {"jwks_uri": 7},
        {"id_token_signing_alg_values_supported": "RS256"},
        {"issuer": [ISSUER]},
    ],
    ids=plain_id,
)
def test_a_document_of_another_form_is_none(changed: dict[str, Any]) -> None:
    with pytest.raises(ProviderUnavailable, match=next(iter(changed))):
        fetch(TRUE | changed)


def test_an_address_without_a_provider_says_where_it_looked() -> None:
    with pytest.raises(ProviderUnavailable, match=r"https://id.example/realms/study/.well-known"):
        fetch({"error": "not found"}, status=404)


def test_a_provider_on_this_machine_may_be_reached_over_http(provider: IdentityProvider) -> None:
    address, _ = asyncio.run(single_sign_on(provider).begin("http://127.0.0.1:8000/sso/back"))
    assert address.startswith(provider.issuer)
