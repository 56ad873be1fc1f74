"""A second, slow implementation of the secure sum's arithmetic, from its written rules alone.

It imports nothing of the project: hashlib, hmac and Python integers, with X25519, Ed25519 and the AES block from
`cryptography`. `python -m tests.contract.secure_sum_reference` writes the vectors that both must reproduce.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

FILE = Path(__file__).with_name("secure_sum_vectors.json")
P = 2**31 + 11
NAMES = ("alder", "birch", "cedar", "dogwood")
MORE = ("elder", "fir", "gorse")
WORDS = {
    "terms": {
        "bits": 64,
        "values": {"alder": [1, 2], "birch": [2**40, 3], "cedar": [5, 2**50], "dogwood": [7, 9]}
        | {name: [2**i, 100 + i] for i, name in enumerate(MORE)},
    },
    "update": {
        "bits": 32,
        "values": {"alder": [1, 2**32 - 2, 3], "birch": [4, 5, 6], "cedar": [2**32 - 9, 8, 0], "dogwood": [1, 1, 1]}
        | {name: [2**32 - 1 - i, 10, i] for i, name in enumerate(MORE)},
    },
}


@dataclass(frozen=True)
class Example:
    """A session in which the member `lost` falls silent after sharing."""

    key: str
    names: tuple[str, ...]
    colluders: int
    neighbours: int
    threshold: int
    min_survivors: int
    lost: str
    query: str | None
    model: str | None


# A round of training; a question about a released model; a question about none.
COMPLETE = Example("complete", NAMES, 0, 3, 3, 3, "dogwood", None, "0b" * 32)
RING = Example("ring", (*NAMES, *MORE), 1, 4, 4, 5, "dogwood", "0e" * 32, "0b" * 32)
ASKED = Example("asked", NAMES, 0, 3, 3, 3, "alder", "0f" * 32, None)
EXAMPLES = (COMPLETE, RING, ASKED)


def key(name: str, use: str) -> bytes:
    """Private keys and seeds of the example."""
    return hashlib.sha256(f"example {name} {use}".encode()).digest()


def H(label: str, *parts: bytes) -> bytes:  # noqa: N802
    return hashlib.sha256(b"".join(len(p).to_bytes(4, "big") + p for p in (label.encode(), *parts))).digest()


def hkdf(secret: bytes, salt: bytes, info: str) -> bytes:
    return hmac.digest(hmac.digest(salt, secret, "sha256"), info.encode() + b"\x01", "sha256")


def public(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agree(private: bytes, peer: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(peer))


def keystream(secret: bytes, size: int) -> bytes:
    block = Cipher(algorithms.AES(secret), modes.ECB()).encryptor()
    blocks = (block.update(counter.to_bytes(16, "big")) for counter in range(2, size // 16 + 3))
    return b"".join(blocks)[:size]


def words(raw: bytes, bits: int) -> list[int]:
    step = bits // 8
    return [int.from_bytes(raw[i : i + step], "little") for i in range(0, len(raw), step)]


def octets(values: list[int], bits: int) -> bytes:
    return b"".join((value % 2**bits).to_bytes(bits // 8, "little") for value in values)


def around(example: Example, h1: bytes) -> dict[str, list[str]]:
    """Of every member the neighbours and itself, in the order of the names."""
    names, k = example.names, example.neighbours
    if k >= len(names) - 1:
        return {name: list(names) for name in names}
    ring = sorted(names, key=lambda name: H("secagg/1/ring", h1, name.encode()))
    near = range(-k // 2, k // 2 + 1)
    return {name: sorted(ring[(i + step) % len(ring)] for step in near) for i, name in enumerate(ring)}


def shares_of(secrets: list[bytes], holders: int, threshold: int, seed: bytes) -> list[bytes]:
    limbs = [int.from_bytes(s, "little") >> 31 * i & (2**31 - 1) for s in secrets for i in range(9)]
    stream = words(keystream(seed, 8 * (threshold - 1) * len(limbs) + 4096), 64)
    accepted = [word % P for word in stream if word < 2**64 - 2**64 % P]
    rows = [accepted[k * len(limbs) : (k + 1) * len(limbs)] for k in range(threshold - 1)]
    return [
        octets(
            [(limb + sum(row[i] * x ** (k + 1) for k, row in enumerate(rows))) % P for i, limb in enumerate(limbs)], 32
        )
        for x in range(1, holders + 1)
    ]


def sign(name: str, statement: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(key(name, "identity")).sign(statement)


def compute(example: Example) -> dict[str, Any]:
    """Every intermediate value of one session."""
    parameters, names = parameters_of(example), example.names
    ph = hashlib.sha256(parameters.encode()).digest()
    share_keys, mask_keys = ({n: public(key(n, use)) for n in names} for use in ("share", "mask"))
    keys = {n: H("secagg/1/keys", ph, n.encode(), share_keys[n], mask_keys[n]) for n in names}
    h1 = H("secagg/1/cohort", ph, *(p for n in names for p in (n.encode(), share_keys[n], mask_keys[n])))
    holders = around(example, h1)
    commitments = {n: H("b", h1, n.encode(), key(n, "seed")) for n in names}
    shares = {
        n: shares_of([key(n, "seed"), key(n, "mask")], len(holders[n]), example.threshold, key(n, "coefficients"))
        for n in names
    }
    dealt = {n: dict(zip(holders[n], shares[n], strict=True)) for n in names}
    slots = {n: b"".join(seal(n, m, h1, share) for m, share in dealt[n].items() if m != n) for n in names}
    said = {n: H("secagg/1/shares", h1, n.encode(), commitments[n], hashlib.sha256(slots[n]).digest()) for n in names}
    u2 = H("secagg/1/sharers", h1, *(n.encode() for n in names))
    survivors = [n for n in names if n != example.lost]
    masked = {n: {v: mask(n, v, h1, holders[n]) for v in WORDS} for n in survivors}
    digests = {n: {v: hashlib.sha256(masked[n][v]).digest() for v in WORDS} for n in survivors}
    manifests = {
        n: H("secagg/1/masked", h1, u2, n.encode(), *(p for v in sorted(WORDS) for p in (v.encode(), digests[n][v])))
        for n in survivors
    }
    u3 = H("secagg/1/survivors", h1, *(p for n in survivors for p in (n.encode(), manifests[n])))
    # Of whom a member holds a share are those who hold one of its own.
    held = {n: {m: dealt[m][n] for m in holders[n]} for n in survivors}
    opened = {
        n: [(m, "mask-key", s[36:]) if m == example.lost else (m, "seed", s[:36]) for m, s in held[n].items()]
        for n in survivors
    }
    unmasks = {
        n: H("secagg/1/unmask", h1, u3, n.encode(), *(p for m, k, s in opened[n] for p in (m.encode(), k.encode(), s)))
        for n in survivors
    }
    sums = {v: total(v, h1, survivors) for v in WORDS}
    result = H(
        "secagg/1/result",
        h1,
        u3,
        *(p for v in sorted(WORDS) for p in (v.encode(), hashlib.sha256(sums[v]).digest())),
    )
    consistency = H("con", h1, u3)
    return {
        "parameters": parameters,
        "ph": ph.hex(),
        "parameters_statement": H("secagg/1/params", ph).hex(),
        "h1": h1.hex(),
        "neighbours": {n: [m for m in holders[n] if m != n] for n in names},
        "sharers_hash": u2.hex(),
        "survivors_hash": u3.hex(),
        "consistency_statement": consistency.hex(),
        "result_statement": result.hex(),
        "sums": {v: sums[v].hex() for v in WORDS},
        "clients": {
            n: {
                "private": {use: key(n, use).hex() for use in ("identity", "share", "mask", "seed", "coefficients")},
                "share_key": share_keys[n].hex(),
                "mask_key": mask_keys[n].hex(),
                "keys_statement": keys[n].hex(),
                "keys_signature": sign(n, keys[n]).hex(),
                "shares": [share.hex() for share in shares[n]],
                "commitment": commitments[n].hex(),
                "slots": slots[n].hex(),
                "shares_statement": said[n].hex(),
                "pair_share_keys": {m: pair(n, m, "share", h1).hex() for m in holders[n] if m != n},
                "pair_mask_keys": {
                    m: {v: pair(n, m, "mask", h1, v).hex() for v in WORDS} for m in holders[n] if m != n
                },
                "self_mask_keys": {v: hkdf(key(n, "seed"), h1, f"self|{v}").hex() for v in WORDS},
                "canaries": {v: canary(n, v, h1).hex() for v in WORDS},
                "words": {v: WORDS[v]["values"][n] for v in WORDS},
            }
            for n in names
        },
        "survivors": {
            n: {
                "masked": {v: masked[n][v].hex() for v in WORDS},
                "masked_statement": manifests[n].hex(),
                "masked_signature": sign(n, manifests[n]).hex(),
                "consistency_signature": sign(n, consistency).hex(),
                "opened": [[m, k, s.hex()] for m, k, s in opened[n]],
                "unmask_statement": unmasks[n].hex(),
                "unmask_signature": sign(n, unmasks[n]).hex(),
            }
            for n in survivors
        },
    }


def pair(one: str, other: str, use: str, h1: bytes, *more: str) -> bytes:
    info = "|".join((use, *sorted((one, other)), *more))
    return hkdf(agree(key(one, use), public(key(other, use))), h1, info)


def seal(sender: str, recipient: str, h1: bytes, share: bytes) -> bytes:
    nonce = bytes(11) + (b"\x00" if sender < recipient else b"\x01")
    context = H("secagg/1/share", h1, sender.encode(), recipient.encode())
    return AESGCM(pair(sender, recipient, "share", h1)).encrypt(nonce, share, context)


def canary(name: str, vector: str, h1: bytes) -> bytes:
    return H("secagg/1/canary", h1, name.encode(), vector.encode())[:8]


def plain(name: str, vector: str, h1: bytes) -> list[int]:
    bits = WORDS[vector]["bits"]
    return [*WORDS[vector]["values"][name], 1, *words(canary(name, vector, h1), bits)]


def mask(name: str, vector: str, h1: bytes, near: list[str]) -> bytes:
    bits, values = WORDS[vector]["bits"], plain(name, vector, h1)
    masks = [(1, hkdf(key(name, "seed"), h1, f"self|{vector}"))]
    masks += [(1 if name < m else -1, pair(name, m, "mask", h1, vector)) for m in near if m != name]
    for sign_, secret in masks:
        stream = words(keystream(secret, len(values) * bits // 8), bits)
        values = [value + sign_ * word for value, word in zip(values, stream, strict=True)]
    return octets(values, bits)


def total(vector: str, h1: bytes, survivors: list[str]) -> bytes:
    columns = zip(*(plain(n, vector, h1) for n in survivors), strict=True)
    return octets([sum(column) for column in columns], WORDS[vector]["bits"])


def parameters_of(example: Example) -> str:
    """Canonical JSON."""
    times = {"deadlines": {"keys": 100, "shares": 200, "masked": 300}, "expires": 1000}
    given = {
        "version": 2,
        "suite": "ed25519-x25519-hkdfsha256-aes256gcm-aes256ctr2-shamir31",
        "study": "example",
        "round": 1,
        "session": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
        "settings": "0c" * 32,
        "ledger_entries": 7,
        "ledger_sha256": "0d" * 32,
        "roster": "0a" * 32,
        "query": example.query,
        "model": example.model,
        "clients": len(example.names),
        "colluders": example.colluders,
        "threshold": example.threshold,
        "neighbours": example.neighbours,
        "min_survivors": example.min_survivors,
        "vectors": [
            {
                "name": name,
                "encoding": encoding,
                "length": length,
                "ring_bits": bits,
                "scale_bits": scale,
                "cap": cap,
                "grid": None,
            }
            for name, encoding, length, bits, scale, cap in (
                ("update", "signed", 3, 32, 20, 2**28),
                ("terms", "counts", 2, 64, 0, 2**60),
            )
        ],
    }
    return json.dumps(given | times, sort_keys=True, separators=(",", ":"))


if __name__ == "__main__":
    FILE.write_text(json.dumps({example.key: compute(example) for example in EXAMPLES}, indent=1) + "\n")
