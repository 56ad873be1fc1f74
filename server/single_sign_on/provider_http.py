"""Requests to the identity provider: bounded in time and size, without redirects, through the proxy of the environment.

A request that fails gives `ProviderUnavailable` and never hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Literal, cast

import httpx

from server.single_sign_on.errors import ProviderUnavailable, SingleSignOnMisconfigured
from study_protocol.wire.documents import load_json

# A key set with certificates is some 20 kB, a token with 200 groups some 15 kB.
MAX_BYTES = 1 << 20
REQUEST_SECONDS = 10.0
_TOO_MANY_REQUESTS = 429


@dataclass(frozen=True)
class ProviderAnswer:
    """A JSON object that the provider answered with. Its text comes from outside."""

    status: int
    content: dict[str, Any]


class ProviderHttp:
    """Sends requests to the provider. Proxy and certificate authorities come from the environment, as httpx reads it.

    Args:
        seconds: The longest time of one request, from its start to the last byte.
        max_bytes: The most bytes of one answer.

    Raises:
        SingleSignOnMisconfigured: a proxy or a file of certificates in the environment cannot be used.
    """

    def __init__(self, *, seconds: float = REQUEST_SECONDS, max_bytes: int = MAX_BYTES) -> None:
        self._seconds, self._max_bytes = seconds, max_bytes
        try:
            self._client = httpx.AsyncClient(
                follow_redirects=False,
                timeout=seconds,
                # Logins are rare, and a connection that is kept belongs to one event loop.
                limits=httpx.Limits(max_keepalive_connections=0),
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
                # An answer that unpacks without a limit would pass the limit on its size.
                headers={"Accept": "application/json", "Accept-Encoding": "identity"},
            )
        except (OSError, ValueError, ImportError, httpx.InvalidURL) as error:
            raise SingleSignOnMisconfigured(
                "a proxy or a file of certificates in the environment cannot be used: check HTTPS_PROXY, HTTP_PROXY, "
                "ALL_PROXY and SSL_CERT_FILE"
            ) from error

    async def get(self, address: str, *, bearer: str | None = None) -> ProviderAnswer:
        """Return the JSON object at an address. Raises ProviderUnavailable."""
        return await self._request(
            "GET", address, None, {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
        )

    async def post(self, address: str, body: str, headers: Mapping[str, str]) -> ProviderAnswer:
        """Post a form and return the JSON object of the answer. Raises ProviderUnavailable."""
        return await self._request(
            "POST", address, body, {"Content-Type": "application/x-www-form-urlencoded", **headers}
        )

    async def _request(
        self, method: Literal["GET", "POST"], address: str, body: str | None, headers: Mapping[str, str]
    ) -> ProviderAnswer:
        try:
            async with (
                asyncio.timeout(self._seconds),
                self._client.stream(method, address, content=body, headers=headers) as response,
            ):
                _require_readable(response)
                raw = await _read(response, self._max_bytes)
        except TimeoutError as error:
            raise ProviderUnavailable(
                f"the identity provider did not answer within {self._seconds:g} seconds: try again later"
            ) from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise ProviderUnavailable(
                "the identity provider cannot be reached: check the network, the proxy and its certificate, or try "
                "again later"
            ) from error
        return ProviderAnswer(response.status_code, _read_object(raw))


def _require_readable(response: httpx.Response) -> None:
    if response.is_redirect:
        raise ProviderUnavailable(
            "the identity provider answered with a redirect, which is not followed: write the issuer's final address"
        )
    if response.is_server_error or response.status_code == _TOO_MANY_REQUESTS:
        raise ProviderUnavailable("the identity provider is overloaded or has a fault: try again later")
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise ProviderUnavailable("the identity provider answered in a packed form that was not asked for")


async def _read(response: httpx.Response, max_bytes: int) -> bytes:
    raw = bytearray()
    async for chunk in response.aiter_raw():
        raw += chunk
        if len(raw) > max_bytes:
            raise ProviderUnavailable(f"the identity provider answered with more than {max_bytes} bytes")
    return bytes(raw)


def _read_object(raw: bytes) -> dict[str, Any]:
    try:
        content = load_json(raw)
    except ValueError:
        # Without its cause, which may quote a token.
        content = None
    if not isinstance(content, dict):
        raise ProviderUnavailable("the identity provider answered with something other than a JSON object")
    return cast(dict[str, Any], content)
