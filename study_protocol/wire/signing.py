"""Ed25519 identities, signed requests and signed documents.

Pure: time comes in as a number, keys as objects. A signature always covers a label, so that one kind of
document can never be passed off as another.
"""

from __future__ import annotations

import binascii
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jwt
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from jwt.types import Options

from study_protocol.versions import PROTOCOL, UNKNOWN_VERSION, UNNUMBERED, is_protocol, is_version, program_version
from study_protocol.wire.documents import load_json
from study_protocol.wire.ed25519 import is_identity_key

TOKEN_LIFETIME_SECONDS = 60
# How far the signer's clock may run ahead: as much longer than its lifetime a token is good at most.
CLOCK_AHEAD_SECONDS = 5
# How far the coordinator's clock and a hospital's own may lie apart, as between machines of one Kerberos realm.
MAX_SKEW_SECONDS = 300
ASSIGNMENT = "wardround/1/assignment"
LEDGER_HEAD = "wardround/1/ledger-head"
QUERY_ANSWER = "wardround/1/query-answer"
LEDGER_WITNESS = "wardround/1/ledger-witness"
ENROLMENT = "wardround/1/enrolment"
CERTIFICATE = "wardround/1/certificate"
ROSTER_DIGITS = 60
_GROUP = 5
_TOKEN_ID = re.compile(r"[A-Za-z0-9_-]{16,64}")
# A token's claims that are texts, and what PyJWT would check of the others.
_TEXTS = ("iss", "sub", "aud", "htm", "htu", "bh")
_UNCHECKED: Options = {
    "verify_exp": False,
    "verify_iat": False,
    "verify_nbf": False,
    "verify_aud": False,
    "verify_jti": False,
}


class SigningError(Exception):
    """A signature, token or key is not what it should be. `code` is stable, the text says what to do."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class ClockSkew(SigningError):
    """The token's time window does not hold the server's now."""

    def __init__(self, server_time: float) -> None:
        super().__init__("clock-skew", "the token is not valid now: set the clock to the server's time and try again")
        self.server_time = server_time


def canonical_json(value: Any) -> bytes:
    """Return one byte string for one JSON value, to be hashed and signed: UTF-8, sorted keys, no spaces.

    Floats are written by their shortest round-trip form, so equal values give equal bytes.

    Raises:
        ValueError: NaN or an infinity anywhere in the value.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


_TO_STANDARD, _TO_URLSAFE = bytes.maketrans(b"-_", b"+/"), bytes.maketrans(b"+/", b"-_")


def to_base64url(raw: bytes) -> str:
    """Return unpadded base64url, the form of bytes in JSON."""
    return binascii.b2a_base64(raw, newline=False).rstrip(b"=").translate(_TO_URLSAFE).decode()


def from_base64url(text: str) -> bytes:
    """Return the inverse of `to_base64url`.

    Raises:
        ValueError: no base64url, padded, or with stray bits at the end: every value has one text.
    """
    try:
        standard = text.encode("ascii").translate(_TO_STANDARD) + b"=" * (-len(text) % 4)
        raw = binascii.a2b_base64(standard, strict_mode=True)
    except ValueError as error:
        raise ValueError("not base64url") from error
    # a2b ignores stray bits at the end: one value would have several texts, and several digests.
    if to_base64url(raw) != text:
        raise ValueError("base64url is written without padding and in canonical form")
    return raw


def encode_public_key(key: Ed25519PublicKey) -> str:
    """Return the 32 raw bytes in unpadded base64url."""
    return to_base64url(key.public_bytes_raw())


def decode_public_key(text: str) -> Ed25519PublicKey:
    """Return the inverse of `encode_public_key`.

    Raises:
        SigningError: not 32 bytes of canonical base64url, or no key that one party alone can sign for.
    """
    try:
        raw = from_base64url(text)
    except ValueError as error:
        raise SigningError("bad-key", "a public key is 32 bytes in base64url, without padding") from error
    return public_key_of(raw)


def public_key_of(raw: bytes) -> Ed25519PublicKey:
    """Return the key in 32 raw bytes.

    Raises:
        SigningError: a point of small order, whose signatures anyone can make, a second encoding, or no point.
    """
    if not is_identity_key(raw):
        raise SigningError("bad-key", "an Ed25519 key is a point of large order in its one encoding: make a new key")
    return Ed25519PublicKey.from_public_bytes(raw)


def fingerprint(key: Ed25519PublicKey) -> str:
    """Return the SHA-256 (hex) of the raw public key, which people read to each other on the telephone."""
    # Prefixed: no other digest of the same bytes is a fingerprint.
    return hashlib.sha256(b"wardround/1/key" + key.public_bytes_raw()).hexdigest()


def roster_fingerprint(study: str, members: Iterable[tuple[str, str]]) -> str:
    """Return SHA-256 (hex) over a study's (client, encoded public key) pairs in order of their names."""
    roster = sorted([client, key] for client, key in members)
    return hashlib.sha256(canonical_json({"study": study, "roster": roster})).hexdigest()


def as_digits(fingerprint: str) -> str:
    """Return a roster's fingerprint (SHA-256, hex) to be read aloud: twelve groups of five digits.

    They hold 199 of its 256 bits. Two rosters with one number take 2^99 attempts, another one for a given number 2^199.
    They are digits because every language reads them.
    """
    digits = f"{int(fingerprint, 16) % 10**ROSTER_DIGITS:0{ROSTER_DIGITS}d}"
    return " ".join(digits[i : i + _GROUP] for i in range(0, ROSTER_DIGITS, _GROUP))


@dataclass(frozen=True)
class RequestClaims:
    """The content of a verified request token. `token_id` is set on requests that must not be replayed.

    program   the version of the program that signed
    protocol  the number of the protocol that it speaks. A program that names none speaks the one before numbers
    """

    client: str
    study: str
    body_sha256: str
    token_id: str | None
    program: str = UNKNOWN_VERSION
    protocol: int = UNNUMBERED


def request_token(
    key: Ed25519PrivateKey,
    *,
    client: str,
    study: str,
    audience: str,
    method: str,
    url: str,
    body_sha256: str,
    now: float,
    token_id: str | None = None,
    protocol: int | None = PROTOCOL,
) -> str:
    """Return a bearer JWT (EdDSA) for exactly one request.

    Args:
        audience: the coordinator's public origin, for example `https://study.example.org`.
        url: the whole target, origin + path + query.
        body_sha256: hex SHA-256 of the body, of no bytes for a request without one.
        now: seconds since the epoch.
        token_id: used once by the server, for POST.
        protocol: the number that is spoken, beside which this program's version is said. None: neither.
    """
    claims: dict[str, Any] = {
        "iss": client,
        "sub": study,
        "aud": audience,
        "htm": method.upper(),
        "htu": url,
        "bh": body_sha256,
        "iat": math.floor(now),
        "exp": math.floor(now) + TOKEN_LIFETIME_SECONDS,
    }
    if token_id is not None:
        claims["jti"] = token_id
    if protocol is not None:
        claims |= {"pro": protocol, "ver": program_version()}
    return jwt.encode(claims, key, algorithm="EdDSA")


def claimed_identity(token: str) -> tuple[str, str]:
    """Return (client, study) as the token claims them, unverified: only good for looking the public key up.

    Raises:
        SigningError: not a JWT with these claims.
    """
    try:
        head, body, _ = token.split(".")
        # Both: PyJWT, which checks the signature, would read the last of two claims of one name.
        _, claims = (load_json(from_base64url(part)) for part in (head, body))
        client, study = claims["iss"], claims["sub"]
    except (LookupError, TypeError, ValueError) as error:
        raise SigningError("bad-token", "the bearer token is not a JWT with iss and sub") from error
    if not isinstance(client, str) or not isinstance(study, str):
        raise SigningError("bad-token", "the token lacks iss or sub")
    return client, study


def verify_request_token(
    token: str, key: Ed25519PublicKey, *, audience: str, method: str, url: str, now: float
) -> RequestClaims:
    """Check signature, audience, method, target and time window.

    The caller still compares `body_sha256` with the bytes it receives and remembers `token_id`.

    Raises:
        SigningError: `bad-signature`, `bad-token`, `wrong-target`.
        ClockSkew: `now` lies outside the window or the window is longer than allowed.
    """
    claims = _signed_claims(token, key)
    if (claims["aud"], claims["htm"], claims["htu"]) != (audience, method.upper(), url):
        raise SigningError("wrong-target", "the token was made for another server, method or address")
    # Clocks differ by more than that, too: the answer tells the time, and the client signs again.
    issued, expires = claims["iat"], claims["exp"]
    if expires - issued > TOKEN_LIFETIME_SECONDS or not issued - CLOCK_AHEAD_SECONDS <= now <= expires:
        raise ClockSkew(now)
    token_id = claims.get("jti")
    if token_id is not None and (not isinstance(token_id, str) or not _TOKEN_ID.fullmatch(token_id)):
        raise SigningError("bad-token", "jti is 16 to 64 letters, digits, hyphens and underscores")
    program, protocol = claims.get("ver", UNKNOWN_VERSION), claims.get("pro", UNNUMBERED)
    if not (is_version(program) and is_protocol(protocol)):
        raise SigningError("bad-token", "ver is a program's version, and pro the number of a protocol, from 1")
    return RequestClaims(claims["iss"], claims["sub"], claims["bh"], token_id, program, protocol)


def _signed_claims(token: str, key: Ed25519PublicKey) -> dict[str, Any]:
    """Return the claims after checking the signature, and that each claim is there with its type."""
    try:
        claims = jwt.decode(
            token,
            key,
            # One only: a token must not choose how it is checked.
            algorithms=["EdDSA"],
            # Time is checked by the caller, against its clock.
            options={"require": [*_TEXTS, "iat", "exp"], **_UNCHECKED},
        )
    except jwt.InvalidSignatureError as error:
        detail = "no client of this name in this study signs with this key: check both names, enrol first"
        raise SigningError("bad-signature", detail) from error
    except jwt.InvalidTokenError as error:
        raise SigningError("bad-token", "the token lacks a claim or is malformed") from error
    # isinstance would take true for 1.
    if type(claims["iat"]) is not int or type(claims["exp"]) is not int:
        raise SigningError("bad-token", "iat and exp are whole seconds")
    if not all(isinstance(claims[name], str) for name in _TEXTS):
        raise SigningError("bad-token", "a claim has the wrong type")
    return claims


def _message(label: str, document: Mapping[str, Any]) -> bytes:
    body = canonical_json(document)
    # The length keeps label and document apart: no two pairs give the same bytes.
    return len(label).to_bytes(4, "big") + label.encode() + hashlib.sha256(body).digest()


def sign_document(key: Ed25519PrivateKey, label: str, document: Mapping[str, Any]) -> str:
    """Return the unpadded base64url Ed25519 signature over the label and the canonical JSON of `document`."""
    return to_base64url(key.sign(_message(label, document)))


def verify_document(key: Ed25519PublicKey, label: str, document: Mapping[str, Any], signature: str) -> None:
    """Check a signature made by `sign_document`.

    Raises:
        SigningError: `bad-signature`.
    """
    try:
        key.verify(from_base64url(signature), _message(label, document))
    except (ValueError, InvalidSignature) as error:
        kind = label.rsplit("/", 1)[-1]
        raise SigningError("bad-signature", f"the signature on this {kind} is not the signer's") from error
