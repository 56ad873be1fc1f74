"""The formats of Wardround a second time, from their definitions and with the standard library alone.

Nothing here imports the project, numpy or a cryptography library: these functions compute apart from what they are
compared with. They are for checking, and slow. Ed25519 is RFC 8032, section 5.1, in its textbook form.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import struct
from collections.abc import Iterable, Mapping
from typing import Any

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT = pow(2, (P - 1) // 4, P)
Point = tuple[int, int, int, int]


def canonical(value: Any) -> bytes:
    """UTF-8, names sorted, no spaces, shortest floats."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest(value: Any) -> str:
    """SHA-256 (hex) of the canonical JSON."""
    return hashlib.sha256(canonical(value)).hexdigest()


def to_text(raw: bytes) -> str:
    """base64url without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def from_text(text: str) -> bytes:
    """Inverse of `to_text`."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


# -- Questions


def moments(question: Mapping[str, Any], columns: Mapping[str, list[float | None]]) -> list[Any]:
    """Digest, spacing and sum in steps of a question of kind moments about all patients.

    One patient adds (1, y, y² - centre) for each number, rounded to the grid, or zeros where it is missing.
    """
    numbers, centre = question["numbers"], 0.5 if question.get("centred") else 0.0
    delta = math.sqrt(len(numbers)) * (1.5 if centre else math.sqrt(3))
    cells = 3 * len(numbers)
    # 2²⁰ steps to the standard deviation of the noise, and roundings below 2⁻¹⁵ of Δ.
    coarsest = min(question["noise_multiplier"] * delta / 2**20, delta / 2**14 / math.sqrt(cells))
    spacing = 2.0 ** math.floor(math.log2(coarsest))
    total: list[int] = []
    for number in numbers:
        middle, half = (number["low"] + number["high"]) / 2, (number["high"] - number["low"]) / 2
        sums = [0, 0, 0]
        for value in columns[number["column"]]:
            if value is None:
                continue
            y = (min(max(value, number["low"]), number["high"]) - middle) / half
            for place, entry in enumerate((1.0, y, y * y - centre)):
                sums[place] += round(entry / spacing)
        total += sums
    return [digest(question), spacing, total]


# -- Ed25519


def _recover(y: int, sign: int) -> Point:
    if y >= P:
        raise ValueError("not a canonical point")
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT % P
    if (x * x - square) % P or (x == 0 and sign):
        raise ValueError("no point of the curve")
    x = P - x if x & 1 != sign else x
    return x, y, 1, x * y % P


BASE = _recover(4 * pow(5, P - 2, P) % P, 0)


def _add(p: Point, q: Point) -> Point:
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def _times(scalar: int, point: Point) -> Point:
    total: Point = (0, 1, 1, 0)
    while scalar:
        total = _add(total, point) if scalar & 1 else total
        point, scalar = _add(point, point), scalar >> 1
    return total


def _encode(point: Point) -> bytes:
    inverse = pow(point[2], P - 2, P)
    x, y = point[0] * inverse % P, point[1] * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _decode(raw: bytes) -> Point:
    number = int.from_bytes(raw, "little")
    return _recover(number & (1 << 255) - 1, number >> 255)


def _scalar(*parts: bytes) -> int:
    return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little")


def _secret(seed: bytes) -> tuple[int, bytes]:
    raw = hashlib.sha512(seed).digest()
    return int.from_bytes(raw[:32], "little") & (1 << 254) - 8 | 1 << 254, raw[32:]


def public_key(seed: bytes) -> str:
    """The public key of a 32-byte seed, in base64url."""
    return to_text(_encode(_times(_secret(seed)[0], BASE)))


def sign(seed: bytes, message: bytes) -> bytes:
    """64 bytes."""
    scalar, prefix = _secret(seed)
    key = _encode(_times(scalar, BASE))
    nonce = _scalar(prefix, message) % L
    point = _encode(_times(nonce, BASE))
    return point + ((nonce + _scalar(point, key, message) * scalar) % L).to_bytes(32, "little")


def is_signed(key: str, message: bytes, signature: bytes) -> bool:
    """Whether `key` (base64url) made this signature."""
    raw = from_text(key)
    if len(raw) != 32 or len(signature) != 64:
        return False
    scalar = int.from_bytes(signature[32:], "little")
    try:
        point, signer = _decode(signature[:32]), _decode(raw)
    except ValueError:
        return False
    right = _add(point, _times(_scalar(signature[:32], raw, message) % L, signer))
    return scalar < L and _encode(_times(scalar, BASE)) == _encode(right)


# -- signed documents, requests, heads


def document_message(label: str, document: Mapping[str, Any]) -> bytes:
    """What a signature of a document covers: the label's length, the label, the digest of the canonical JSON."""
    return struct.pack(">I", len(label)) + label.encode() + hashlib.sha256(canonical(document)).digest()


def sign_document(seed: bytes, label: str, document: Mapping[str, Any]) -> str:
    """The signature in base64url."""
    return to_text(sign(seed, document_message(label, document)))


def is_document_signed(key: str, label: str, document: Mapping[str, Any], signature: str) -> bool:
    """Whether `key` signed this document under this label."""
    return is_signed(key, document_message(label, document), from_text(signature))


def request_token(seed: bytes, claims: Mapping[str, Any]) -> str:
    """A JWT (RFC 7519, EdDSA of RFC 8037); header and claims in the order given, without spaces."""
    header = {"alg": "EdDSA", "typ": "JWT"}
    parts = [to_text(json.dumps(part, separators=(",", ":")).encode()) for part in (header, claims)]
    signed = ".".join(parts).encode()
    return f"{signed.decode()}.{to_text(sign(seed, signed))}"


def witness_header(seed: bytes, client: str, head: Mapping[str, Any]) -> str:
    """The value of `Wardround-Witness`."""
    signature = sign_document(seed, "wardround/1/ledger-witness", {"client": client, **head})
    return f"{head['entries']}.{head['sha256']}.{signature}"


def key_fingerprint(key: str) -> str:
    """SHA-256 (hex) of the prefixed raw key."""
    return hashlib.sha256(b"wardround/1/key" + from_text(key)).hexdigest()


def roster_fingerprint(study: str, members: Iterable[tuple[str, str]]) -> str:
    """SHA-256 (hex) of the pairs (client, key) in order of their names."""
    return digest({"study": study, "roster": sorted([client, key] for client, key in members)})


def roster_number(fingerprint: str) -> str:
    """Twelve groups of five digits."""
    digits = f"{int(fingerprint, 16) % 10**60:060d}"
    return " ".join(digits[i : i + 5] for i in range(0, 60, 5))


def entry_hash(entry: Mapping[str, Any]) -> str:
    """What a ledger's entry has for `sha256`: the digest of the rest of it."""
    return digest({name: value for name, value in entry.items() if name != "sha256"})


# -- tensors


def tensors_body(
    tensors: Mapping[str, tuple[str, list[int], list[float]]], metadata: Mapping[str, str] | None
) -> bytes:
    """A safetensors file: type ("F32", "F64"), shape and numbers by name. `read_tensors` reads any other order, too."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    data = b""
    for name, (dtype, shape, numbers) in tensors.items():
        packed = struct.pack(f"<{len(numbers)}{'f' if dtype == 'F32' else 'd'}", *numbers)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def read_tensors(body: bytes) -> tuple[dict[str, tuple[str, list[int], list[float]]], dict[str, str]]:
    """Tensors by name and the texts of the header."""
    length = struct.unpack("<Q", body[:8])[0]
    header, data = json.loads(body[8 : 8 + length]), body[8 + length :]
    metadata = header.pop("__metadata__", {})
    tensors: dict[str, tuple[str, list[int], list[float]]] = {}
    for name, part in header.items():
        begin, end = part["data_offsets"]
        code, size = ("f", 4) if part["dtype"] == "F32" else ("d", 8)
        numbers = list(struct.unpack(f"<{(end - begin) // size}{code}", data[begin:end]))
        tensors[name] = part["dtype"], part["shape"], numbers
    return tensors, metadata
