"""Logins that have begun: what the coordinator keeps until the provider answers, and what the provider answers."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from server.single_sign_on.addresses import is_provider_address
from server.single_sign_on.errors import (
    LoginRefused,
    ProviderUnavailable,
    SingleSignOnError,
    SingleSignOnMisconfigured,
)

LOGIN_SECONDS = 600.0
# RFC 8628, section 3.5.
SLOW_DOWN_SECONDS, MAX_POLL_SECONDS = 5.0, 60.0
_MAX_DEVICE_SECONDS = 1800.0
_MAX_CODE = 4096
_READ_ONCE = ("state", "iss", "error", "code")
_EXPIRED = "the login took too long, or its code was used before: start the login again"


@dataclass(frozen=True)
class PendingLogin:
    """A login in a browser. Keep it bound to that browser, hidden from others, and delete it at its first use.

    expires_at: in seconds since 1970.
    """

    redirect_uri: str
    expires_at: float
    state: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48), repr=False)


@dataclass(frozen=True)
class PendingDevice:
    """A login from the command line. The person opens `verification_uri` and writes `user_code` there.

    interval       seconds between two questions to the provider
    next_poll_at   the provider is not asked before, in seconds since 1970
    expires_at     in seconds since 1970
    device_code    to be kept secret, and never to be sent to the command line
    """

    user_code: str
    verification_uri: str
    verification_uri_complete: str | None
    interval: float
    next_poll_at: float
    expires_at: float
    device_code: str = field(repr=False)


def require_unexpired(expires_at: float, now: float) -> None:
    """Raises LoginRefused `expired`."""
    if now >= expires_at:
        raise LoginRefused("expired", _EXPIRED)


def read_redirect(
    pending: PendingLogin, parameters: Iterable[tuple[str, str]], *, issuer: str, issuer_is_sent: bool
) -> str:
    """Return the code in the parameters with which the provider sent the browser back.

    Args:
        issuer_is_sent: The provider says that it always adds `iss` (RFC 9207).

    Raises:
        LoginRefused: `not-ours` or `denied`.
        ProviderUnavailable, SingleSignOnMisconfigured: as the provider's error says.
    """
    pairs = [(name, value) for name, value in parameters if name in _READ_ONCE]
    answer = dict(pairs)
    if len(answer) != len(pairs) or not _equal(answer.get("state", ""), pending.state):
        raise LoginRefused("not-ours", "this answer belongs to no login that began here: start the login again")
    if answer.get("iss", None if issuer_is_sent else issuer) != issuer:
        raise LoginRefused("not-ours", "this answer is from another identity provider: start the login again")
    if "error" in answer:
        raise error_of(answer["error"])
    code = answer.get("code", "")
    if not 0 < len(code) <= _MAX_CODE:
        raise LoginRefused("not-ours", "the identity provider's answer holds no code: start the login again")
    return code


def _equal(left: str, right: str) -> bool:
    return hmac.compare_digest(left.encode(errors="replace"), right.encode())


_DENIED = "the login was cancelled, or the identity provider does not let you in here"
_FAULT = "the identity provider is overloaded or has a fault: try again later"
_CLIENT = (
    "the identity provider does not accept the coordinator: check client id, secret and the flows that the client may "
    "use there"
)
# Error codes of RFC 6749 and RFC 8628, and Entra ID's own for a person who says no.
_ERRORS: Mapping[str, Callable[[], SingleSignOnError]] = {
    **dict.fromkeys(("access_denied", "authorization_declined"), lambda: LoginRefused("denied", _DENIED)),
    **dict.fromkeys(("expired_token", "invalid_grant"), lambda: LoginRefused("expired", _EXPIRED)),
    **dict.fromkeys(("temporarily_unavailable", "server_error"), lambda: ProviderUnavailable(_FAULT)),
    **dict.fromkeys(
        ("invalid_client", "unauthorized_client", "unsupported_grant_type"), lambda: SingleSignOnMisconfigured(_CLIENT)
    ),
    "invalid_scope": lambda: SingleSignOnMisconfigured("the identity provider does not know one of the scopes"),
}


def error_of(code: Any) -> SingleSignOnError:
    """Return the exception for an error code of the provider. An unknown code is not repeated."""
    if isinstance(code, str) and code in _ERRORS:
        return _ERRORS[code]()
    return LoginRefused("denied", "the identity provider ended the login with an error: its log has the reason")


class _DeviceAnswer(BaseModel):
    """RFC 8628, section 3.2. Codes are printable, because they are shown and sent."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", hide_input_in_errors=True)

    user_code: str = Field(pattern=r"^[!-~]([ -~]{0,62}[!-~])?$")
    device_code: str = Field(pattern=r"^[!-~]{1,4096}$")
    verification_uri: str
    verification_uri_complete: str | None = None
    expires_in: float = Field(ge=0, allow_inf_nan=False)
    interval: float = Field(default=5.0, ge=0, allow_inf_nan=False)


def read_device_answer(content: Mapping[str, Any], *, now: float, loopback: bool) -> PendingDevice:
    """Return the pending login that a provider's device endpoint answered with.

    Args:
        now: The time in seconds since 1970.
        loopback: The person may be sent to http on this machine, as in a test.

    Raises:
        ProviderUnavailable: an entry is missing or cannot be used.
    """
    unusable = ProviderUnavailable("the identity provider's answer to a login from the command line cannot be used")
    try:
        answer = _DeviceAnswer.model_validate(content)
    except ValidationError:
        raise unusable from None
    addresses = (answer.verification_uri, answer.verification_uri_complete)
    if not all(address is None or is_provider_address(address, loopback=loopback) for address in addresses):
        raise unusable
    interval = min(max(answer.interval, 1.0), MAX_POLL_SECONDS)
    return PendingDevice(
        user_code=answer.user_code,
        verification_uri=answer.verification_uri,
        verification_uri_complete=answer.verification_uri_complete,
        interval=interval,
        next_poll_at=now + interval,
        expires_at=now + min(answer.expires_in, _MAX_DEVICE_SECONDS),
        device_code=answer.device_code,
    )
