"""Reasons for a login that failed. Each text is for the person, and holds no text of the provider."""

from __future__ import annotations

from typing import Literal

RefusalCode = Literal["denied", "expired", "not-ours", "invalid-token", "unclear-groups"]


class SingleSignOnError(Exception):
    """A login that was not possible. Keys of people still work."""


class SingleSignOnMisconfigured(SingleSignOnError):
    """The coordinator's settings and the provider's do not fit. The text says which one to change."""


class ProviderUnavailable(SingleSignOnError):
    """The provider does not answer, or not with what an OpenID provider answers."""


class LoginRefused(SingleSignOnError):
    """This login is refused, and another one may succeed.

    denied           the person or the provider said no
    expired          the login took too long, or its code was used before
    not-ours         the answer belongs to no login that this browser began here, or to another provider
    invalid-token    the ID token does not prove who the person is
    unclear-groups   the provider did not say in a readable way to which groups the person belongs
    """

    def __init__(self, code: RefusalCode, text: str) -> None:
        super().__init__(text)
        self.code: RefusalCode = code
