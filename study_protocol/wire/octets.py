"""Bytes on the wire: unpadded base64url in JSON, with lengths that a JSON Schema can say."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema

from study_protocol.wire.signing import SigningError, decode_public_key, from_base64url, to_base64url


def _octets_of(value: Any) -> Any:
    return from_base64url(value) if isinstance(value, str) else value


def _is_a_key(text: str) -> str:
    try:
        decode_public_key(text)
    except SigningError as error:
        raise ValueError(error.detail) from error
    return text


def as_text(smallest: int, largest: int) -> WithJsonSchema:
    """Return the JSON Schema of so many bytes, whose text is longer: four characters for three bytes, rounded up."""
    lengths = {"minLength": (4 * smallest + 2) // 3, "maxLength": (4 * largest + 2) // 3}
    return WithJsonSchema({"type": "string", "pattern": "^[A-Za-z0-9_-]*$", **lengths})


# bytes in Python, unpadded base64url in JSON.
Octets = Annotated[bytes, BeforeValidator(_octets_of), PlainSerializer(to_base64url, when_used="json")]
SignatureOctets = Annotated[Octets, Field(min_length=64, max_length=64), as_text(64, 64)]
# 32 and 64 bytes in unpadded base64url.
EncodedKey = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9_-]{43}$", description="raw Ed25519 public key, base64url"),
    AfterValidator(_is_a_key),
]
Signature = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{86}$", description="Ed25519 signature, base64url")]
