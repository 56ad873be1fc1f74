"""Calls of Authlib, which has no types of its own."""

# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from authlib.common import urls
from authlib.oauth2 import rfc7636
from authlib.oauth2.auth import ClientAuth
from authlib.oidc.core import CodeIDToken


def add_params_to_uri(address: str, parameters: Iterable[tuple[str, str]]) -> str:
    """Return an address with parameters added to its query."""
    return urls.add_params_to_uri(address, list(parameters))


def create_s256_code_challenge(verifier: str) -> str:
    """Return the challenge of a PKCE verifier (RFC 7636)."""
    return cast(str, rfc7636.create_s256_code_challenge(verifier))


def prove_client(client_id: str, secret: str | None, method: str, body: str) -> tuple[dict[str, str], str]:
    """Return headers and body of a form with the client's name and secret in it.

    Args:
        method: client_secret_post, client_secret_basic or none.
    """
    proof = cast(Any, ClientAuth)(client_id, secret, method)
    _, headers, proved = proof.prepare("POST", "", {}, body)
    return headers, proved


def validate_claims(
    claims: Mapping[str, Any],
    header: Mapping[str, Any],
    *,
    options: Mapping[str, Any],
    params: Mapping[str, Any],
    now: int,
    skew: int,
) -> None:
    """Check the claims of an ID token of the code flow. Raises joserfc's JoseError."""
    cast(Any, CodeIDToken)(claims, header, options, params).validate(now=now, leeway=skew)
