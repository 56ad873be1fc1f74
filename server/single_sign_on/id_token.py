"""An ID token proves who logged in: its signature, and the claims of OpenID Connect Core 1.0, section 3.1.3.7."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from joserfc import jws
from joserfc.errors import ClaimError, JoseError, UnsupportedAlgorithmError
from joserfc.jws import CompactSignature, JWSRegistry

from server.single_sign_on.authlib_calls import validate_claims
from server.single_sign_on.errors import LoginRefused, SingleSignOnMisconfigured
from server.single_sign_on.provider_keys import ProviderKeys
from study_protocol.wire.documents import load_json

# Algorithm -> type of its key. Never `none`, and never HS256, whose key would be the provider's public one.
KEY_TYPES = {"RS256": "RSA", "PS256": "RSA", "ES256": "EC", "EdDSA": "OKP"}
_MAX_SUBJECT = 255
_REASONS = {
    "iss": "it names another issuer",
    "aud": "it is meant for another client",
    "azp": "it was given to another client",
    "exp": "it has expired. Check the clocks of the coordinator and the provider",
    "nbf": "it is not valid yet. Check the clocks of the coordinator and the provider",
    "iat": "it was issued in the future. Check the clocks of the coordinator and the provider",
    "nonce": "it belongs to another login",
    "at_hash": "it belongs to another access token",
    "sub": "it does not say who logged in",
}


class _AllowedAlgorithms(JWSRegistry):
    """Knows the allowed algorithms only, and does not warn of the name EdDSA, which providers still use."""

    def __init__(self, algorithms: Sequence[str]) -> None:
        super().__init__(algorithms=algorithms, strict_check_header=False)
        self._models = {name: self.algorithms[name] for name in algorithms}

    def get_alg(self, name: str) -> Any:
        if name not in self._models:
            raise UnsupportedAlgorithmError()
        return self._models[name]


@dataclass(frozen=True)
class ExpectedToken:
    """The claims that an ID token has to have. nonce: None where the login had none, as in the device flow."""

    issuer: str
    client_id: str
    nonce: str | None
    access_token: str | None


async def read_id_token(
    token: str, keys: ProviderKeys, supported: Sequence[str], expected: ExpectedToken, *, now: float, skew: int
) -> dict[str, Any]:
    """Return the claims of a token that is signed by the provider and says what is expected.

    Args:
        supported: The algorithms that the provider says it signs with.
        now: The time in seconds since 1970.
        skew: How many seconds the clocks may differ.

    Raises:
        LoginRefused: `invalid-token`.
        ProviderUnavailable: the provider's keys could not be fetched.
        SingleSignOnMisconfigured: no algorithm is allowed here and supported there.
    """
    algorithms = [name for name in KEY_TYPES if name in supported]
    if not algorithms:
        raise SingleSignOnMisconfigured(f"set the provider to sign ID tokens with one of {', '.join(KEY_TYPES)}")
    registry = _AllowedAlgorithms(algorithms)
    signed = _extract(token, registry)
    algorithm = signed.headers().get("alg")
    if algorithm not in algorithms or "crit" in signed.headers():
        raise _refuse(f"its algorithm is not one of {', '.join(algorithms)}")
    if not await _is_signed(signed, keys, KEY_TYPES[algorithm], registry):
        raise _refuse("no key of the provider has signed it")
    claims = _read_claims(signed.payload)
    _check_claims(claims, signed.headers(), expected, now=now, skew=skew)
    return claims


async def _is_signed(signed: CompactSignature, keys: ProviderKeys, key_type: str, registry: JWSRegistry) -> bool:
    key_id = signed.headers().get("kid")
    if any(_verifies(signed, key, registry) for key in await keys.find(key_id, key_type)):
        return True
    # Without an id, a token does not tell that the provider has a new key.
    renewed = [] if key_id is not None else await keys.find(None, key_type, anew=True)
    return any(_verifies(signed, key, registry) for key in renewed)


def _refuse(reason: str) -> LoginRefused:
    return LoginRefused("invalid-token", f"the provider's ID token is not accepted: {reason}")


def _extract(token: str, registry: JWSRegistry) -> CompactSignature:
    try:
        signed = jws.extract_compact(token.encode(), registry=registry)
        registry.check_header(signed.headers())
    except (JoseError, ValueError, TypeError, AttributeError):
        # Without its cause, which may quote the token.
        raise _refuse("it is not a signed token") from None
    return signed


def _verifies(signed: CompactSignature, key: Any, registry: JWSRegistry) -> bool:
    try:
        return jws.validate_compact(signed, key, registry=registry)
    except (JoseError, ValueError):
        # A key for another algorithm or on another curve.
        return False


def _read_claims(payload: bytes) -> dict[str, Any]:
    try:
        claims = load_json(payload)
    except ValueError:
        claims = None
    if not isinstance(claims, dict):
        raise _refuse("it holds no claims")
    return cast(dict[str, Any], claims)


def _check_claims(
    claims: dict[str, Any], header: dict[str, Any], expected: ExpectedToken, *, now: float, skew: int
) -> None:
    options = {
        "iss": {"essential": True, "value": expected.issuer},
        "aud": {"essential": True, "value": expected.client_id},
    }
    params = {"client_id": expected.client_id, "nonce": expected.nonce, "access_token": expected.access_token}
    try:
        # Other claims, such as `amr`, decide nothing here, and some providers write them in ways of their own.
        checked = {name: claims[name] for name in _REASONS if name in claims}
        validate_claims(checked, header, options=options, params=params, now=int(now), skew=skew)
    except ClaimError as error:
        raise _refuse(_REASONS.get(error.claim, "a claim is missing or has a wrong form")) from error
    except (JoseError, ValueError, TypeError):
        raise _refuse("a claim is missing or has a wrong form") from None
    if not (0 < len(claims["sub"]) <= _MAX_SUBJECT and claims["sub"].isprintable()):
        raise _refuse(_REASONS["sub"])
