"""A second, slow implementation of the secure sum's arithmetic, from its written rules alone.

It imports nothing of the project: hashlib, hmac and Python integers, with X25519, Ed25519 and the AES block from
`cryptography`. `python -m tests.contract.secure_sum_reference` writes the vectors that both must reproduce.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

FILE = Path(__file__).with_name("secure_sum_vectors.json")
P = 2**31 + 11
NAMES = ("alder", "birch", "cedar", "dogwood")
THRESHOLD = 3
LOST = "dogwood"
WORDS = {
    "terms": {"bits": 64, "values": {"alder": [1, 2], "birch": [2**40, 3], "cedar": [5, 2**50], "dogwood": [7, 9]}},
    "update": {
        "bits": 32,
        "values": {"alder": [1, 2**32 - 2, 3], "birch": [4, 5, 6], "cedar": [2**32 - 9, 8, 0], "dogwood": [1, 1, 1]},
    },
}


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


def shares_of(secrets: list[bytes], holders: int, seed: bytes) -> list[bytes]:
    limbs = [int.from_bytes(s, "little") >> 31 * i & (2**31 - 1) for s in secrets for i in range(9)]
    stream = words(keystream(seed, 8 * (THRESHOLD - 1) * len(limbs) + 4096), 64)
    accepted = [word % P for word in stream if word < 2**64 - 2**64 % P]
    rows = [accepted[k * len(limbs) : (k + 1) * len(limbs)] for k in range(THRESHOLD - 1)]
    return [
        octets(
            [(limb + sum(row[i] * x ** (k + 1) for k, row in enumerate(rows))) % P for i, limb in enumerate(limbs)], 32
        )
        for x in range(1, holders + 1)
    ]


def sign(name: str, statement: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(key(name, "identity")).sign(statement)


def compute(parameters: str) -> dict[str, Any]:
    """Every intermediate value of one session in which the last hospital is lost after sharing."""
    ph = hashlib.sha256(parameters.encode()).digest()
    share_keys, mask_keys = ({n: public(key(n, use)) for n in NAMES} for use in ("share", "mask"))
    keys = {n: H("secagg/1/keys", ph, n.encode(), share_keys[n], mask_keys[n]) for n in NAMES}
    h1 = H("secagg/1/cohort", ph, *(p for n in NAMES for p in (n.encode(), share_keys[n], mask_keys[n])))
    commitments = {n: H("b", h1, n.encode(), key(n, "seed")) for n in NAMES}
    shares = {n: shares_of([key(n, "seed"), key(n, "mask")], len(NAMES), key(n, "coefficients")) for n in NAMES}
    slots = {n: b"".join(seal(n, m, h1, shares[n][i]) for i, m in enumerate(NAMES) if m != n) for n in NAMES}
    said = {n: H("secagg/1/shares", h1, n.encode(), commitments[n], hashlib.sha256(slots[n]).digest()) for n in NAMES}
    u2 = H("secagg/1/sharers", h1, *(n.encode() for n in NAMES))
    survivors = [n for n in NAMES if n != LOST]
    masked = {n: {v: mask(n, v, h1) for v in WORDS} for n in survivors}
    digests = {n: {v: hashlib.sha256(masked[n][v]).digest() for v in WORDS} for n in survivors}
    manifests = {
        n: H("secagg/1/masked", h1, u2, n.encode(), *(p for v in sorted(WORDS) for p in (v.encode(), digests[n][v])))
        for n in survivors
    }
    u3 = H("secagg/1/survivors", h1, *(p for n in survivors for p in (n.encode(), manifests[n])))
    opened = {
        n: [(m, "seed", shares[m][i][:36]) if m != LOST else (m, "mask-key", shares[m][i][36:]) for m in NAMES]
        for i, n in enumerate(NAMES)
        if n != LOST
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
                "pair_share_keys": {m: pair(n, m, "share", h1).hex() for m in NAMES if m != n},
                "pair_mask_keys": {m: {v: pair(n, m, "mask", h1, v).hex() for v in WORDS} for m in NAMES if m != n},
                "self_mask_keys": {v: hkdf(key(n, "seed"), h1, f"self|{v}").hex() for v in WORDS},
                "canaries": {v: canary(n, v, h1).hex() for v in WORDS},
                "words": {v: WORDS[v]["values"][n] for v in WORDS},
            }
            for n in NAMES
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


def mask(name: str, vector: str, h1: bytes) -> bytes:
    bits, values = WORDS[vector]["bits"], plain(name, vector, h1)
    masks = [(1, hkdf(key(name, "seed"), h1, f"self|{vector}"))]
    masks += [(1 if name < m else -1, pair(name, m, "mask", h1, vector)) for m in NAMES if m != name]
    for sign_, secret in masks:
        stream = words(keystream(secret, len(values) * bits // 8), bits)
        values = [value + sign_ * word for value, word in zip(values, stream, strict=True)]
    return octets(values, bits)


def total(vector: str, h1: bytes, survivors: list[str]) -> bytes:
    columns = zip(*(plain(n, vector, h1) for n in survivors), strict=True)
    return octets([sum(column) for column in columns], WORDS[vector]["bits"])


PARAMETERS = json.dumps(
    {
        "version": 1,
        "suite": "ed25519-x25519-hkdfsha256-aes256gcm-aes256ctr2-shamir31",
        "study": "example",
        "round": 1,
        "session": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
        "roster": "0a" * 32,
        "model": "0b" * 32,
        "clients": 4,
        "colluders": 0,
        "threshold": 3,
        "neighbours": 3,
        "min_survivors": 3,
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
        "deadlines": {"keys": 100, "shares": 200, "masked": 300},
        "expires": 1000,
    },
    sort_keys=True,
    separators=(",", ":"),
)

if __name__ == "__main__":
    FILE.write_text(json.dumps(compute(PARAMETERS), indent=1) + "\n")
