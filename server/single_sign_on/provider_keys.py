"""The provider's public keys, fetched again when a token names one that is not among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from cryptography.exceptions import UnsupportedAlgorithm
from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry, Key
from joserfc.util import base64_to_int

from server.single_sign_on.errors import ProviderUnavailable
from server.single_sign_on.metadata import ProviderMetadata
from server.single_sign_on.provider_http import ProviderHttp
from server.single_sign_on.remembered import RememberedDocument

_OK = 200
# Never `oct`: a shared secret in a public document proves nothing.
_KEY_TYPES = ("RSA", "EC", "OKP")
# Members of a public key. Private ones and certificates are left out.
_MEMBERS = ("kty", "kid", "use", "alg", "n", "e", "crv", "x", "y")
_RSA_BITS = range(2048, 16385)


class ProviderKeys:
    """Finds the keys that may have signed a token."""

    def __init__(self, http: ProviderHttp, metadata: RememberedDocument[ProviderMetadata], clock: Callable[[], float]):
        self._http, self._metadata = http, metadata
        self._keys = RememberedDocument(self._fetch, clock)

    async def find(self, key_id: str | None, key_type: str, *, anew: bool = False) -> list[Key]:
        """Return the keys of a type with this id, or every key of the type for a token without an id.

        An unknown id, or `anew`, makes one new fetch, at most every 30 seconds. Raises ProviderUnavailable.
        """
        keys = [] if anew else _matching(await self._keys.get(), key_id, key_type)
        return keys or _matching(await self._keys.renew(), key_id, key_type)

    async def _fetch(self) -> list[Key]:
        answer = await self._http.get((await self._metadata.get()).jwks_uri)
        entries = answer.content.get("keys")
        if answer.status != _OK or not isinstance(entries, list):
            raise ProviderUnavailable("the identity provider does not show its keys: try again later")
        imported = (_import_key(entry) for entry in cast(list[Any], entries))
        return [key for key in imported if key is not None]


def _matching(keys: list[Key], key_id: str | None, key_type: str) -> list[Key]:
    return [key for key in keys if key.key_type == key_type and key_id in (None, key.kid)]


def _import_key(entry: Any) -> Key | None:
    """Return a usable key, or None for what RFC 7517 says to ignore: unknown types, sizes and broken entries."""
    if not isinstance(entry, dict):
        return None
    members = {name: value for name, value in cast(dict[str, Any], entry).items() if name in _MEMBERS}
    try:
        if members.get("kty") not in _KEY_TYPES or members.get("use", "sig") != "sig":
            return None
        if members["kty"] == "RSA" and base64_to_int(members["n"]).bit_length() not in _RSA_BITS:
            return None
        return JWKRegistry.import_key(members)
    except (JoseError, UnsupportedAlgorithm, ValueError, TypeError, KeyError, AttributeError):
        return None
