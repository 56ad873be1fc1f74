"""Logins over real HTTP at a provider made of Authlib's server classes."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from server.single_sign_on.errors import (
    LoginRefused,
    ProviderUnavailable,
    SingleSignOnError,
    SingleSignOnMisconfigured,
)
from server.single_sign_on.identity import PersonIdentity
from server.single_sign_on.logins import PendingLogin
from server.single_sign_on.provider import Provider
from tests.factories.case_ids import plain_id
from tests.factories.identity_provider import (
    ADA,
    BACK,
    PUBLIC_CLIENT,
    SECRET,
    IdentityProvider,
    MovableClock,
    log_in,
    log_in_at,
    single_sign_on,
)


def begin(sso: Provider) -> tuple[str, PendingLogin]:
    return asyncio.run(sso.begin(BACK))


def finish(sso: Provider, pending: PendingLogin, parameters: list[tuple[str, str]]) -> PersonIdentity:
    return asyncio.run(sso.finish(pending, parameters))


def refusal(sso: Provider, pending: PendingLogin, parameters: list[tuple[str, str]]) -> LoginRefused:
    with pytest.raises(LoginRefused) as refused:
        finish(sso, pending, parameters)
    return refused.value


def test_a_login_says_who_it_is(provider: IdentityProvider) -> None:
    identity = log_in(single_sign_on(provider))
    assert (identity.issuer, identity.subject, identity.name) == (provider.issuer, "ada-1", "Ada Example")
    assert identity.groups == ("leads",)


def test_the_request_has_a_challenge_and_no_secret(provider: IdentityProvider) -> None:
    address, pending = begin(single_sign_on(provider, scopes="groups email"))
    query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    assert query["scope"] == "openid profile email groups"
    assert query["code_challenge_method"] == "S256"
    assert query["state"] == pending.state
    assert query["nonce"] == pending.nonce
    assert SECRET not in address
    assert pending.verifier not in address


def test_secrets_of_a_login_are_not_printed(provider: IdentityProvider) -> None:
    sso = single_sign_on(provider)
    _, pending = begin(sso)
    device = asyncio.run(sso.begin_device())
    identity = log_in(sso)
    for shown in (repr(pending), repr(device), repr(identity)):
        assert not any(each in shown for each in (pending.state, pending.nonce, pending.verifier, device.device_code))


@pytest.mark.parametrize(
    ("supported", "sent_in_form"),
    [(None, False), (["client_secret_basic"], False), (["client_secret_post", "client_secret_basic"], True)],
)
def test_the_secret_goes_where_the_provider_reads_it(
    provider: IdentityProvider, supported: list[str] | None, sent_in_form: bool
) -> None:
    provider.metadata = {"token_endpoint_auth_methods_supported": supported}
    log_in(single_sign_on(provider))
    (form,) = [form for form in provider.forms if "code" in form]
    assert ("client_secret" in form) == sent_in_form


def test_a_provider_that_takes_no_secret_is_misconfigured(provider: IdentityProvider) -> None:
    provider.metadata = {"token_endpoint_auth_methods_supported": ["private_key_jwt"]}
    with pytest.raises(SingleSignOnMisconfigured, match="secret"):
        log_in(single_sign_on(provider))


def test_a_public_client_needs_no_secret(provider: IdentityProvider) -> None:
    assert log_in(single_sign_on(provider, client_id=PUBLIC_CLIENT, client_secret=None)).subject == ADA["sub"]


@pytest.mark.parametrize("secret", ["wrong", None], ids=["wrong", "none"])
def test_a_wrong_secret_is_a_matter_of_settings(provider: IdentityProvider, secret: str | None) -> None:
    with pytest.raises(SingleSignOnMisconfigured, match="secret") as error:
        log_in(single_sign_on(provider, client_secret=secret))
    assert "wrong" not in str(error.value)


def test_a_code_works_once(provider: IdentityProvider) -> None:
    sso = single_sign_on(provider)
    address, pending = begin(sso)
    answer = log_in_at(address)
    finish(sso, pending, answer)
    assert refusal(sso, pending, answer).code == "expired"


def test_a_code_that_expired_at_the_provider_is_refused(provider: IdentityProvider) -> None:
    provider.code_seconds = 0.0
    sso = single_sign_on(provider)
    address, pending = begin(sso)
    assert refusal(sso, pending, log_in_at(address)).code == "expired"


def test_a_login_that_took_too_long_is_refused_before_the_provider_is_asked(provider: IdentityProvider) -> None:
    clock = MovableClock()
    sso = single_sign_on(provider, clock=clock)
    address, pending = begin(sso)
    answer = log_in_at(address)
    clock.ahead = 601
    assert refusal(sso, pending, answer).code == "expired"
    assert provider.requests["/token"] == 0


def test_a_code_of_another_login_is_refused(provider: IdentityProvider) -> None:
    """An attacker's code in a victim's browser: the verifier belongs to another browser."""
    sso = single_sign_on(provider)
    (address, _), (_, victim) = begin(sso), begin(sso)
    stolen = dict(log_in_at(address)) | {"state": victim.state}
    assert refusal(sso, victim, list(stolen.items())).code == "expired"
    assert provider.requests["/token"] == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"state": "another"},
        {"state": ""},
        {"state": None},
        {"state": "\u00e9\udc80"},
        {"iss": "https://other.example"},
        {"iss": None},
        {"code": None},
        {"code": ""},
        {"code": "c" * 5000},
    ],
    ids=plain_id,
)
def test_an_answer_that_belongs_to_no_login_is_refused(provider: IdentityProvider, changed: dict[str, Any]) -> None:
    sso = single_sign_on(provider)
    address, pending = begin(sso)
    answer = {name: text for name, text in (dict(log_in_at(address)) | changed).items() if text is not None}
    assert refusal(sso, pending, list(answer.items())).code == "not-ours"
    assert provider.requests["/token"] == 0


@pytest.mark.parametrize("name", ["state", "code", "iss"])
def test_a_parameter_that_stands_twice_is_refused(provider: IdentityProvider, name: str) -> None:
    sso = single_sign_on(provider)
    address, pending = begin(sso)
    answer = log_in_at(address)
    assert refusal(sso, pending, [*answer, (name, dict(answer)[name])]).code == "not-ours"


def test_a_provider_that_does_not_send_its_issuer_is_accepted(provider: IdentityProvider) -> None:
    provider.metadata = {"authorization_response_iss_parameter_supported": None}
    sso = single_sign_on(provider)
    address, pending = begin(sso)
    answer = [pair for pair in log_in_at(address) if pair[0] != "iss"]
    assert finish(sso, pending, answer).subject == ADA["sub"]


def test_a_person_who_says_no_gets_one_plain_sentence(provider: IdentityProvider) -> None:
    provider.person = None
    sso = single_sign_on(provider)
    address, pending = begin(sso)
    refused = refusal(sso, pending, log_in_at(address))
    assert refused.code == "denied"
    assert "<b>" not in str(refused)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("<script>", LoginRefused),
        ("login_required", LoginRefused),
        ("temporarily_unavailable", ProviderUnavailable),
        ("invalid_scope", SingleSignOnMisconfigured),
        ("unauthorized_client", SingleSignOnMisconfigured),
    ],
)
def test_an_error_of_the_provider_is_said_in_words_of_ours(
    provider: IdentityProvider, error: str, kind: type[SingleSignOnError]
) -> None:
    sso = single_sign_on(provider)
    _, pending = begin(sso)
    answer = [("state", pending.state), ("iss", provider.issuer), ("error", error), ("error_description", "<i>x</i>")]
    with pytest.raises(kind) as refused:
        finish(sso, pending, answer)
    assert "<" not in str(refused.value)


def test_an_error_without_our_state_is_not_believed(provider: IdentityProvider) -> None:
    sso = single_sign_on(provider)
    _, pending = begin(sso)
    assert refusal(sso, pending, [("error", "access_denied")]).code == "not-ours"


@pytest.mark.parametrize(
    "answer",
    [{"access_token": "a"}, {"id_token": 7}, {"id_token": None}],
    ids=["no ID token", "a number", "null"],
)
def test_an_answer_without_an_id_token_is_refused(provider: IdentityProvider, answer: dict[str, Any]) -> None:
    provider.answers["/token"] = (200, answer, {})
    with pytest.raises(LoginRefused, match="openid"):
        log_in(single_sign_on(provider))


def test_a_pending_login_survives_being_stored(provider: IdentityProvider) -> None:
    sso = single_sign_on(provider)
    address, pending = begin(sso)
    assert finish(sso, PendingLogin(**asdict(pending)), log_in_at(address)).subject == ADA["sub"]


# Groups


def test_groups_of_userinfo_are_read_where_the_token_has_none(provider: IdentityProvider) -> None:
    provider.claims = {"groups": None}
    assert log_in(single_sign_on(provider)).groups == ("leads",)
    assert provider.requests["/userinfo"] == 1


def test_userinfo_is_not_asked_where_the_token_has_groups_and_a_name(provider: IdentityProvider) -> None:
    provider.person = ADA | {"groups": []}
    assert log_in(single_sign_on(provider)).groups == ()
    assert provider.requests["/userinfo"] == 0


def test_userinfo_gives_the_name_and_no_groups_beside_those_of_the_token(provider: IdentityProvider) -> None:
    provider.claims, provider.userinfo = {"name": None}, {"groups": ["administrators"]}
    identity = log_in(single_sign_on(provider))
    assert (identity.name, identity.groups) == ("Ada Example", ("leads",))


@pytest.mark.parametrize("subject", ["bob-2", None, ["ada-1"]])
def test_userinfo_of_another_person_is_refused(provider: IdentityProvider, subject: Any) -> None:
    provider.claims, provider.userinfo = {"groups": None}, {"sub": subject, "groups": ["administrators"]}
    with pytest.raises(LoginRefused, match="another person"):
        log_in(single_sign_on(provider))


def test_a_person_without_groups_has_none(provider: IdentityProvider) -> None:
    provider.person = {"sub": "bob-2"}
    assert log_in(single_sign_on(provider)).groups == ()
    provider.metadata = {"userinfo_endpoint": None}
    assert log_in(single_sign_on(provider)).groups == ()


def test_roles_of_keycloak_are_read_by_a_path(provider: IdentityProvider) -> None:
    provider.person = {"sub": "ada-1", "realm_access": {"roles": ["lead", "offline_access"]}}
    assert log_in(single_sign_on(provider, groups_claim="realm_access.roles")).groups == ("lead", "offline_access")


def test_too_many_groups_of_entra_id_say_what_to_configure(provider: IdentityProvider) -> None:
    provider.person = {
        "sub": "ada-1",
        "_claim_names": {"groups": "src1"},
        "_claim_sources": {"src1": {"endpoint": "https://graph.example"}},
    }
    with pytest.raises(LoginRefused, match="Groups assigned to the application") as refused:
        log_in(single_sign_on(provider))
    assert refused.value.code == "unclear-groups"


# Logout


def test_the_address_of_logout_keeps_what_the_provider_wrote(provider: IdentityProvider) -> None:
    sso = single_sign_on(provider)
    address = asyncio.run(sso.logout_address("https://study.example/"))
    assert address is not None
    assert address.startswith(f"{provider.issuer}/logout?")
    assert parse_qs(urlsplit(address).query) == {
        "realm": ["test"],
        "client_id": ["wardround"],
        "post_logout_redirect_uri": ["https://study.example/"],
    }


@pytest.mark.parametrize("state", ["no such address", "away"])
def test_a_provider_that_cannot_log_out_hinders_no_logout(provider: IdentityProvider, state: str) -> None:
    if state == "away":
        provider.answers["/.well-known/openid-configuration"] = (503, "", {})
    else:
        provider.metadata = {"end_session_endpoint": None}
    assert asyncio.run(single_sign_on(provider).logout_address("https://study.example/")) is None
