"""The identity provider: logins in a browser and from the command line, and the address that logs out.

Every method is for an event loop, and each request is bounded in time. A provider that is away gives
`ProviderUnavailable`, and keys of people still work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from server.single_sign_on.addresses import is_loopback
from server.single_sign_on.authlib_calls import add_params_to_uri, create_s256_code_challenge, prove_client
from server.single_sign_on.errors import LoginRefused, ProviderUnavailable, SingleSignOnMisconfigured
from server.single_sign_on.id_token import ExpectedToken, read_id_token
from server.single_sign_on.identity import PersonIdentity, groups_of, has_name, name_of
from server.single_sign_on.logins import (
    LOGIN_SECONDS,
    MAX_POLL_SECONDS,
    SLOW_DOWN_SECONDS,
    PendingDevice,
    PendingLogin,
    error_of,
    read_device_answer,
    read_redirect,
    require_unexpired,
)
from server.single_sign_on.metadata import ProviderMetadata, fetch_metadata
from server.single_sign_on.provider_http import ProviderAnswer, ProviderHttp
from server.single_sign_on.provider_keys import ProviderKeys
from server.single_sign_on.remembered import RememberedDocument
from server.single_sign_on.settings import SingleSignOnSettings

_OK = 200
DEVICE_CODE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"


class Provider:
    """One identity provider, for one process.

    Args:
        http: Sends the requests.
        clock: Returns the time in seconds since 1970.
    """

    def __init__(
        self,
        settings: SingleSignOnSettings,
        *,
        http: ProviderHttp | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings, self._clock = settings, clock
        self._http = http or ProviderHttp()
        self._metadata = RememberedDocument(lambda: fetch_metadata(self._http, settings.issuer), clock)
        self._keys = ProviderKeys(self._http, self._metadata, clock)

    async def begin(self, redirect_uri: str) -> tuple[str, PendingLogin]:
        """Return the address to send the browser to, and what `finish` needs.

        Args:
            redirect_uri: Where the provider sends the browser back, as registered there.

        Raises:
            ProviderUnavailable, SingleSignOnMisconfigured: the provider cannot be used now.
        """
        metadata = await self._metadata.get()
        pending = PendingLogin(redirect_uri=redirect_uri, expires_at=self._clock() + LOGIN_SECONDS)
        parameters = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": redirect_uri,
            "scope": self._settings.scope,
            "state": pending.state,
            "nonce": pending.nonce,
            "code_challenge": create_s256_code_challenge(pending.verifier),
            "code_challenge_method": "S256",
        }
        return add_params_to_uri(metadata.authorization_endpoint, parameters.items()), pending

    async def finish(self, pending: PendingLogin, parameters: Iterable[tuple[str, str]]) -> PersonIdentity:
        """Return who logged in.

        Args:
            pending: Of the browser that sends the parameters. Delete it before this call, so that it works once.
            parameters: The query of the address that the browser came back with, in pairs.

        Raises:
            LoginRefused: not this person, not this login, or too late.
            ProviderUnavailable, SingleSignOnMisconfigured: the provider cannot be used now.
        """
        metadata = await self._metadata.get()
        issuer_is_sent = metadata.authorization_response_iss_parameter_supported
        code = read_redirect(pending, parameters, issuer=metadata.issuer, issuer_is_sent=issuer_is_sent)
        require_unexpired(pending.expires_at, self._clock())
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": pending.redirect_uri,
            "code_verifier": pending.verifier,
        }
        answer = await self._post(metadata, metadata.token_endpoint, form)
        if answer.status != _OK:
            raise error_of(answer.content.get("error"))
        return await self._identify(metadata, answer.content, self._settings.client_id, pending.nonce)

    async def begin_device(self) -> PendingDevice:
        """Begin a login from the command line and return what the person has to do.

        Raises:
            ProviderUnavailable, SingleSignOnMisconfigured: the provider cannot be used now, or has no device flow.
        """
        metadata = await self._metadata.get()
        if metadata.device_authorization_endpoint is None:
            raise SingleSignOnMisconfigured(
                "the identity provider offers no logins from the command line: enable its device flow, or use a key"
            )
        form = {"scope": self._settings.scope}
        answer = await self._post(metadata, metadata.device_authorization_endpoint, form, device=True)
        if answer.status != _OK:
            raise error_of(answer.content.get("error"))
        loopback = is_loopback(self._settings.issuer)
        return read_device_answer(answer.content, now=self._clock(), loopback=loopback)

    async def poll_device(self, pending: PendingDevice) -> PersonIdentity | PendingDevice:
        """Ask whether the person has logged in. Returns who it is, or what to keep instead of `pending`.

        Before `next_poll_at` the provider is not asked.

        Raises:
            LoginRefused: `denied`, `expired`, `invalid-token` or `unclear-groups`. The login has ended.
            ProviderUnavailable: ask again later with the same `pending`.
            SingleSignOnMisconfigured: the provider does not accept the coordinator.
        """
        now = self._clock()
        require_unexpired(pending.expires_at, now)
        if now < pending.next_poll_at:
            return pending
        metadata = await self._metadata.get()
        form = {"grant_type": DEVICE_CODE_GRANT, "device_code": pending.device_code}
        answer = await self._post(metadata, metadata.token_endpoint, form, device=True)
        if answer.status == _OK:
            return await self._identify(metadata, answer.content, self._device_client, nonce=None)
        error = answer.content.get("error")
        if error not in ("authorization_pending", "slow_down"):
            raise error_of(error)
        interval = pending.interval + (SLOW_DOWN_SECONDS if error == "slow_down" else 0.0)
        interval = min(interval, MAX_POLL_SECONDS)
        return replace(pending, interval=interval, next_poll_at=now + interval)

    async def logout_address(self, post_logout_redirect_uri: str) -> str | None:
        """Return where to send the browser so that the person is logged out at the provider, too.

        None where the provider has no such address or does not answer. The coordinator's session ends in any case. The
        provider asks the person first: no ID token is kept to prove who it is.
        """
        try:
            endpoint = (await self._metadata.get()).end_session_endpoint
        except (ProviderUnavailable, SingleSignOnMisconfigured):
            return None
        if endpoint is None:
            return None
        parameters = {"client_id": self._settings.client_id, "post_logout_redirect_uri": post_logout_redirect_uri}
        return add_params_to_uri(endpoint, parameters.items())

    @property
    def _device_client(self) -> str:
        return self._settings.device_client_id or self._settings.client_id

    async def _post(
        self, metadata: ProviderMetadata, address: str, form: dict[str, str], *, device: bool = False
    ) -> ProviderAnswer:
        """Post a form with the client's name and proof. device: as the client of the device flow."""
        client = self._device_client if device else self._settings.client_id
        secret = None if device and self._settings.device_client_id else self._settings.client_secret
        method = "none" if secret is None else _proof(metadata.token_endpoint_auth_methods_supported)
        headers, body = prove_client(client, secret.get_secret_value() if secret else None, method, urlencode(form))
        return await self._http.post(address, body, headers)

    async def _identify(
        self, metadata: ProviderMetadata, tokens: dict[str, Any], client_id: str, nonce: str | None
    ) -> PersonIdentity:
        token, access_token = tokens.get("id_token"), tokens.get("access_token")
        if not isinstance(token, str):
            raise LoginRefused("invalid-token", "the identity provider sent no ID token: it has to know scope openid")
        access_token = access_token if isinstance(access_token, str) and access_token.isascii() else None
        expected = ExpectedToken(metadata.issuer, client_id, nonce, access_token)
        now, skew = self._clock(), self._settings.clock_skew_seconds
        supported = metadata.id_token_signing_alg_values_supported
        claims = await read_id_token(token, self._keys, supported, expected, now=now, skew=skew)
        groups, more = groups_of(claims, self._settings.groups_claim), dict[str, Any]()
        # In the code flow a provider may keep both for its userinfo endpoint (OpenID Connect Core 1.0, section 5.4).
        if groups is None or not has_name(claims):
            more = await self._userinfo(metadata, access_token, claims["sub"])
        return PersonIdentity(
            issuer=metadata.issuer,
            subject=claims["sub"],
            name=name_of(more | claims),
            groups=(groups_of(more, self._settings.groups_claim) or ()) if groups is None else groups,
        )

    async def _userinfo(self, metadata: ProviderMetadata, access_token: str | None, subject: str) -> dict[str, Any]:
        if metadata.userinfo_endpoint is None or access_token is None or not access_token.isprintable():
            return {}
        answer = await self._http.get(metadata.userinfo_endpoint, bearer=access_token)
        if answer.status != _OK:
            raise ProviderUnavailable("the identity provider does not describe the person: try again later")
        if answer.content.get("sub") != subject:
            raise LoginRefused("invalid-token", "the identity provider described another person than the one here")
        return answer.content


def _proof(supported: list[str]) -> str:
    # The form first: in the header, providers decode signs in a secret in different ways.
    for method in ("client_secret_post", "client_secret_basic"):
        if method in supported:
            return method
    raise SingleSignOnMisconfigured("the identity provider accepts no client secret: set the client there to use one")
