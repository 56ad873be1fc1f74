"""Every way in which an ID token may lie, over real HTTP."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from joserfc import jws
from joserfc.jwk import RSAKey
from joserfc.util import json_b64encode

from server.single_sign_on.errors import LoginRefused, SingleSignOnMisconfigured
from server.single_sign_on.id_token import KEY_TYPES
from tests.factories.identity_provider import (
    ADA,
    BACK,
    CLIENT,
    IdentityProvider,
    log_in,
    log_in_at,
    single_sign_on,
)
from tests.factories.token_keys import ec_key, ed_key, public_pem_as_secret, rsa_key

# Numbers at exp, iat and nbf are seconds from the moment of the test.
LIES: dict[str, dict[str, Any]] = {
    "another issuer": {"iss": "https://other.example"},
    "another issuer by a slash": {"iss": "http://127.0.0.1/"},
    "no issuer": {"iss": None},
    "another client": {"aud": "other"},
    "other clients": {"aud": ["other", "another"]},
    "no audience": {"aud": None},
    "an empty audience": {"aud": []},
    "an audience that is no name": {"aud": {CLIENT: True}},
    "several clients, given to none": {"aud": [CLIENT, "other"]},
    "several clients, given to another": {"aud": [CLIENT, "other"], "azp": "other"},
    "given to another client": {"azp": "other"},
    "expired": {"exp": -3600},
    "expired beyond the skew": {"exp": -900},
    "no end": {"exp": None},
    "an end that is no time": {"exp": "tomorrow"},
    "an end that is true": {"exp": True},
    "issued in the future": {"iat": 3600},
    "no time of issue": {"iat": None},
    "not valid yet": {"nbf": 3600},
    "another login": {"nonce": "another"},
    "no login": {"nonce": None},
    "a nonce that is no text": {"nonce": ["another"]},
    "another access token": {"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"},
    "an at_hash that is no text": {"at_hash": {"a": 1}},
    "nobody": {"sub": None},
    "nobody's name": {"sub": ""},
    "a number": {"sub": 7},
    "a person with a control character": {"sub": "ada\u202e1"},
    "a very long person": {"sub": "a" * 256},
}


def dated(claims: dict[str, Any]) -> dict[str, Any]:
    now = int(time.time())
    return {
        name: now + claim if name in ("exp", "iat", "nbf") and type(claim) is int and claim < 1e9 else claim
        for name, claim in claims.items()
    }


@pytest.mark.quick("another issuer", "another client", "several clients, given to none", "expired", "another login")
@pytest.mark.parametrize("claims", LIES.values(), ids=LIES.keys())
def test_a_token_that_lies_is_refused(provider: IdentityProvider, claims: dict[str, Any]) -> None:
    provider.claims = dated(claims)
    with pytest.raises(LoginRefused) as refused:
        log_in(single_sign_on(provider, clock_skew_seconds=600))
    assert refused.value.code == "invalid-token"
    assert "eyJ" not in str(refused.value)


@pytest.mark.quick("several audiences", "a slow clock")
@pytest.mark.parametrize(
    "claims",
    [
        {"aud": CLIENT},
        {"aud": [CLIENT, "other"], "azp": CLIENT},
        {"exp": -60},
        {"iat": 60, "nbf": 60},
        {"at_hash": None},
        {"exp": 10**400},
        {"amr": "pwd", "auth_time": "noon", "jti": 7},
    ],
    ids=[
        "one audience",
        "several audiences",
        "a slow clock",
        "a fast clock",
        "no at_hash",
        "a far end",
        "claims that are not needed",
    ],
)
def test_a_token_that_the_standard_allows_is_accepted(provider: IdentityProvider, claims: dict[str, Any]) -> None:
    provider.claims = dated(claims)
    assert log_in(single_sign_on(provider, clock_skew_seconds=600)).subject == ADA["sub"]


@pytest.mark.quick("ES256", "EdDSA")
@pytest.mark.parametrize("alg", KEY_TYPES)
def test_each_allowed_algorithm_is_verified(provider: IdentityProvider, alg: str) -> None:
    right, wrong = {
        "RS256": (rsa_key("one"), rsa_key("first")),
        "PS256": (rsa_key("one"), rsa_key("first")),
        "ES256": (ec_key("one"), ec_key("two")),
        "EdDSA": (ed_key("one"), ed_key("two")),
    }[alg]
    provider.alg, provider.key, provider.published = alg, right, [right]
    assert log_in(single_sign_on(provider)).subject == ADA["sub"]
    # The same id with another key: the signature alone tells.
    provider.published = [type(wrong).import_key({**wrong.as_dict(private=False), "kid": "one"})]
    with pytest.raises(LoginRefused, match="no key of the provider"):
        log_in(single_sign_on(provider))


def test_a_token_without_a_signature_is_refused(provider: IdentityProvider) -> None:
    provider.alg = "none"
    with pytest.raises(LoginRefused, match="algorithm"):
        log_in(single_sign_on(provider))


@pytest.mark.parametrize("supported", [["RS256"], ["RS256", "HS256", "none"]])
def test_a_public_key_is_no_shared_secret(provider: IdentityProvider, supported: list[str]) -> None:
    provider.metadata = {"id_token_signing_alg_values_supported": supported}
    public = provider.key
    assert isinstance(public, RSAKey)
    provider.alg, provider.key = "HS256", public_pem_as_secret(public, "first")
    provider.published = [public]
    with pytest.raises(LoginRefused, match="algorithm"):
        log_in(single_sign_on(provider))


def test_an_algorithm_that_the_provider_does_not_name_is_refused(provider: IdentityProvider) -> None:
    provider.metadata = {"id_token_signing_alg_values_supported": ["RS256"]}
    provider.alg = "PS256"
    with pytest.raises(LoginRefused, match="RS256"):
        log_in(single_sign_on(provider))


def test_a_provider_without_an_allowed_algorithm_is_misconfigured(provider: IdentityProvider) -> None:
    provider.metadata = {"id_token_signing_alg_values_supported": ["HS256", "none"]}
    with pytest.raises(SingleSignOnMisconfigured, match="RS256"):
        log_in(single_sign_on(provider))


def test_a_key_for_another_algorithm_or_curve_verifies_nothing(provider: IdentityProvider) -> None:
    provider.alg, provider.key = "ES256", ec_key("one")
    provider.published = [ec_key("one", "P-384"), rsa_key("first")]
    with pytest.raises(LoginRefused, match="no key of the provider"):
        log_in(single_sign_on(provider))


@pytest.mark.parametrize(
    "header",
    [{"crit": ["exp"], "exp": 1}, {"crit": ["b64"], "b64": False}, {"kid": "x" * 600}],
    ids=["critical", "unencoded", "long"],
)
def test_a_header_that_asks_for_more_is_refused(provider: IdentityProvider, header: dict[str, Any]) -> None:
    signed = jws.serialize_compact({"alg": "RS256"}, b"{}", provider.key).split(".")
    provider.id_token = ".".join([json_b64encode(header | {"alg": "RS256"}).decode(), *signed[1:]])
    with pytest.raises(LoginRefused) as refused:
        log_in(single_sign_on(provider))
    assert refused.value.code == "invalid-token"


@pytest.mark.quick("empty", "a list")
@pytest.mark.parametrize(
    "token",
    ["", "a", "a.b", "a.b.c", "....", "\u00e9.\u00e9.\u00e9", "W10.e30.AA", "IlwiYWxnXCIi.e30.AA", "x" * 300_000],
    ids=["empty", "one", "two", "three", "five", "no ASCII", "a list", "a text", "long"],
)
def test_what_is_no_token_is_refused(provider: IdentityProvider, token: str) -> None:
    provider.id_token = token
    with pytest.raises(LoginRefused) as refused:
        log_in(single_sign_on(provider))
    assert refused.value.code == "invalid-token"


@pytest.mark.parametrize("payload", [b"[]", b"no JSON", b'{"sub":"a","sub":"b"}', b'{"exp":NaN}', b"[" * 50_000])
def test_signed_claims_that_are_none_are_refused(provider: IdentityProvider, payload: bytes) -> None:
    provider.id_token = jws.serialize_compact({"alg": "RS256", "kid": "first"}, payload, provider.key)
    with pytest.raises(LoginRefused, match="holds no claims"):
        log_in(single_sign_on(provider))


def test_a_changed_claim_breaks_the_signature(provider: IdentityProvider) -> None:
    # Signed in the provider's own way, and changed afterwards.
    token = jws.serialize_compact({"alg": "RS256", "kid": "first"}, b'{"sub":"ada"}', provider.key).split(".")
    provider.id_token = ".".join([token[0], token[1][:-8] + "AAAAAAAA", token[2]])
    with pytest.raises(LoginRefused, match="no key of the provider"):
        log_in(single_sign_on(provider))


def test_half_a_character_in_a_person_is_refused(provider: IdentityProvider) -> None:
    """No library writes it, and no database stores it."""
    sso = single_sign_on(provider)
    address, pending = asyncio.run(sso.begin(BACK))
    claims = dated({"exp": 600, "iat": 0}) | {"iss": provider.issuer, "aud": CLIENT, "nonce": pending.nonce}
    payload = json.dumps(claims | {"sub": "half"}).replace("half", "\\ud800").encode()
    provider.id_token = jws.serialize_compact({"alg": "RS256", "kid": "first"}, payload, provider.key)
    with pytest.raises(LoginRefused, match="does not say who"):
        asyncio.run(sso.finish(pending, log_in_at(address)))
