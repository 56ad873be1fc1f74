"""Keys that the provider replaces, and keys that are none."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from server.single_sign_on.errors import LoginRefused, ProviderUnavailable
from tests.factories.identity_provider import (
    ADA,
    IdentityProvider,
    MovableClock,
    log_in,
    single_sign_on,
)
from tests.factories.token_keys import ec_key, public_pem_as_secret, rsa_key


def test_keys_are_fetched_once_for_many_logins(provider: IdentityProvider) -> None:
    sso = single_sign_on(provider)
    for _ in range(3):
        log_in(sso)
    assert provider.requests["/jwks"] == provider.requests["/.well-known/openid-configuration"] == 1


def test_a_rotated_key_is_fetched_at_its_first_token(provider: IdentityProvider) -> None:
    sso = single_sign_on(provider)
    log_in(sso)
    provider.key = rsa_key("second")
    provider.published = [rsa_key("first"), provider.key]
    assert log_in(sso).subject == ADA["sub"]
    assert provider.requests["/jwks"] == 2


def test_a_key_that_the_provider_took_away_is_not_accepted_for_long(provider: IdentityProvider) -> None:
    clock = MovableClock()
    sso = single_sign_on(provider, clock=clock, clock_skew_seconds=600)
    log_in(sso)
    provider.published = [rsa_key("second")]
    clock.ahead = 3601
    provider.claims = {"exp": time.time() + 2 * 3600}
    with pytest.raises(LoginRefused, match="no key of the provider"):
        log_in(sso)


def test_tokens_with_random_key_ids_make_few_requests(provider: IdentityProvider) -> None:
    clock = MovableClock()
    sso = single_sign_on(provider, clock=clock)
    for number in range(10):
        provider.header = {"kid": f"random-{number}"}
        with pytest.raises(LoginRefused, match="no key of the provider"):
            log_in(sso)
    assert provider.requests["/jwks"] == 2
    clock.ahead = 31
    with pytest.raises(LoginRefused):
        log_in(sso)
    assert provider.requests["/jwks"] == 3
    # The real key still works.
    provider.header = {}
    assert log_in(sso).subject == ADA["sub"]


def test_a_token_without_a_key_id_is_tried_with_every_key_of_its_type(provider: IdentityProvider) -> None:
    provider.header = {"kid": None}
    provider.published = [ec_key("curve"), rsa_key("second"), provider.key]
    assert log_in(single_sign_on(provider)).subject == ADA["sub"]


def test_a_new_key_is_fetched_for_a_token_without_a_key_id(provider: IdentityProvider) -> None:
    provider.header = {"kid": None}
    sso = single_sign_on(provider)
    log_in(sso)
    provider.key = rsa_key("second")
    provider.published = [provider.key]
    assert log_in(sso).subject == ADA["sub"]
    # Forged tokens do not make a fetch each.
    provider.key = rsa_key("first")
    for _ in range(2):
        with pytest.raises(LoginRefused, match="no key of the provider"):
            log_in(sso)
    assert provider.requests["/jwks"] == 2


def test_broken_and_unsuitable_keys_are_passed_over(provider: IdentityProvider) -> None:
    public = provider.key.as_dict(private=False)
    broken: list[Any] = [
        None,
        "key",
        {},
        {"kty": "RSA"},
        {"kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": "first"},
        {"kty": "RSA", "n": 7, "e": "AQAB", "kid": "first"},
        {"kty": "RSA", "n": "!", "e": "AQAB", "kid": "first"},
        {"kty": "RSA", "n": public["n"], "e": "AA", "kid": "first"},
        {"kty": "RSA", "n": public["n"], "e": "AQAB", "kid": ["first"]},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "first"},
        {"kty": "EC", "crv": "P-512", "x": "AA", "y": "AA", "kid": "first"},
        {"kty": "OKP", "crv": "Ed25519", "x": "AA", "kid": "first"},
        {"kty": ["RSA"], "kid": "first"},
        {"kty": "ML-DSA", "kid": "first"},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "first"},
        {**public, "use": "enc"},
        {**public, "d": "AQAB", "x5c": 7, "key_ops": "sign"},
    ]
    provider.answers["/jwks"] = (200, {"keys": broken}, {})
    assert log_in(single_sign_on(provider)).subject == ADA["sub"]
    provider.answers["/jwks"] = (200, {"keys": broken[:-1]}, {})
    with pytest.raises(LoginRefused, match="no key of the provider"):
        log_in(single_sign_on(provider))


def test_a_shared_secret_among_the_keys_signs_nothing(provider: IdentityProvider) -> None:
    secret = public_pem_as_secret(rsa_key("first"), "first")
    provider.alg, provider.key = "HS256", secret
    provider.answers["/jwks"] = (200, {"keys": [secret.as_dict(private=True)]}, {})
    with pytest.raises(LoginRefused, match="algorithm"):
        log_in(single_sign_on(provider))


@pytest.mark.parametrize("answer", [(200, {}), (200, {"keys": {}}), (404, {"keys": []}), (200, "<html>"), (302, "")])
def test_a_provider_that_shows_no_keys_is_unavailable(provider: IdentityProvider, answer: tuple[int, Any]) -> None:
    provider.answers["/jwks"] = (*answer, {})
    with pytest.raises(ProviderUnavailable):
        log_in(single_sign_on(provider))


def test_concurrent_logins_wait_for_one_fetch(provider: IdentityProvider) -> None:
    sso = single_sign_on(provider)

    async def begin_many() -> None:
        await asyncio.gather(*(sso.begin("http://127.0.0.1/sso/back") for _ in range(8)))

    asyncio.run(begin_many())
    assert provider.requests["/.well-known/openid-configuration"] == 1
