"""The description of a provider at /.well-known/openid-configuration (OpenID Connect Discovery 1.0)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from server.single_sign_on.addresses import is_loopback, is_provider_address
from server.single_sign_on.errors import ProviderUnavailable, SingleSignOnMisconfigured
from server.single_sign_on.provider_http import ProviderHttp

_PATH = "/.well-known/openid-configuration"
_OK = 200


class ProviderMetadata(BaseModel):
    """The entries that this program uses, with the defaults of the standard."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", hide_input_in_errors=True)

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None = None
    end_session_endpoint: str | None = None
    device_authorization_endpoint: str | None = None
    id_token_signing_alg_values_supported: list[str] = Field(default=["RS256"])
    token_endpoint_auth_methods_supported: list[str] = Field(default=["client_secret_basic"])
    authorization_response_iss_parameter_supported: bool = False

    def addresses(self) -> dict[str, str]:
        """Return the addresses that the provider names, by entry."""
        entries = self.model_dump(exclude_none=True)
        return {name: entries[name] for name in entries if name.endswith(("_endpoint", "_uri"))}


async def fetch_metadata(http: ProviderHttp, issuer: str) -> ProviderMetadata:
    """Return what the provider with this issuer says of itself.

    Raises:
        ProviderUnavailable: it does not answer, or not with an OpenID provider's document.
        SingleSignOnMisconfigured: it names another issuer, or an address that is not encrypted.
    """
    address = issuer.rstrip("/") + _PATH
    answer = await http.get(address)
    if answer.status != _OK:
        raise ProviderUnavailable(f"no OpenID provider answers at {address}: check the issuer in the settings")
    try:
        metadata = ProviderMetadata.model_validate(answer.content)
    except ValidationError as error:
        names = sorted({str(each["loc"][0]) for each in error.errors(include_input=False)})
        raise ProviderUnavailable(f"{address} is no OpenID provider's document: see {', '.join(names)}") from error
    if metadata.issuer != issuer:
        raise SingleSignOnMisconfigured(
            f"the provider names another issuer than the settings: write `issuer` of {address} letter by letter, with "
            "its tenant and with or without a slash at the end as there"
        )
    for name, each in metadata.addresses().items():
        if not is_provider_address(each, loopback=is_loopback(issuer)):
            raise SingleSignOnMisconfigured(f"{name} in {address} is no https address: the provider has to offer one")
    return metadata
