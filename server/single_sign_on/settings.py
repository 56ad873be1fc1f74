"""The settings of single sign-on."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from server.single_sign_on.addresses import is_provider_address

_SCOPES = ("openid", "profile", "email")
# RFC 6749, appendix A: a token of a scope, and a client's id and secret.
_SCOPE = re.compile(r"[!#-\[\]-~]+")
_PRINTABLE = re.compile(r"[ -~]+")


class SingleSignOnSettings(BaseModel):
    """The settings of the coordinator for its identity provider.

    issuer               the provider's address, exactly as it names itself: https://…
    client_id            the name under which the coordinator is registered there
    client_secret        its secret. None for a public client
    device_client_id     a public client for logins from the command line, asked without a secret, where the provider
                         gives the device flow to public clients only. `client_id` with its secret when empty
    scopes               more scopes than openid, profile and email, separated by spaces
    groups_claim         the claim with the person's groups or roles. A dot leads into an object: realm_access.roles
    clock_skew_seconds   how far the provider's clock may be from the coordinator's
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    issuer: str
    client_id: str = Field(max_length=200)
    client_secret: SecretStr | None = None
    device_client_id: str = Field(default="", max_length=200)
    scopes: str = ""
    groups_claim: str = Field(default="groups", min_length=1, max_length=200)
    clock_skew_seconds: int = Field(default=60, ge=0, le=600)

    @field_validator("issuer")
    @classmethod
    def _is_an_issuer(cls, value: str) -> str:
        if not is_provider_address(value, loopback=True) or urlsplit(value).query:
            raise ValueError("write the provider's https address, without a query. http is for this machine only")
        return value

    @field_validator("client_id")
    @classmethod
    def _is_given(cls, value: str) -> str:
        if not value:
            raise ValueError("write the name under which the coordinator is registered at the provider")
        return value

    @field_validator("client_id", "device_client_id")
    @classmethod
    def _is_printable(cls, value: str) -> str:
        if value and not _PRINTABLE.fullmatch(value):
            raise ValueError("a client id has letters, digits and signs of ASCII only")
        return value

    @field_validator("client_secret")
    @classmethod
    def _is_a_secret(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _PRINTABLE.fullmatch(value.get_secret_value()):
            raise ValueError("a client secret is one line of letters, digits and signs of ASCII. Leave it out if empty")
        return value

    @field_validator("scopes")
    @classmethod
    def _are_scopes(cls, value: str) -> str:
        if not all(_SCOPE.fullmatch(scope) for scope in value.split()):
            raise ValueError("write names of scopes, separated by spaces")
        return value

    @property
    def scope(self) -> str:
        """Every scope that is asked for, separated by spaces."""
        return " ".join(dict.fromkeys((*_SCOPES, *self.scopes.split())))
