"""Hashes and signatures of the secure sum: every value length-prefixed, every statement under its own label.

`H(label, parts…)` is SHA-256 over each piece preceded by its length in four big-endian bytes, so no two different lists
of pieces share an encoding. A signature is Ed25519 over the 32 bytes of such a hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


def H(label: str, *parts: bytes) -> bytes:  # noqa: N802 (the papers' name for the hash)
    """Return SHA-256 of the length-prefixed label and parts: 32 bytes."""
    pieces = (label.encode(), *parts)
    return hashlib.sha256(b"".join(len(piece).to_bytes(4, "big") + piece for piece in pieces)).digest()


def parameters_hash(parameters: bytes) -> bytes:
    """Return ph: plain SHA-256 of the canonical JSON of the session's parameters."""
    return hashlib.sha256(parameters).digest()


def parameters_statement(ph: bytes) -> bytes:
    """Return the statement that the coordinator signs to open a session."""
    return H("secagg/1/params", ph)


def keys_statement(ph: bytes, client: str, share_key: bytes, mask_key: bytes) -> bytes:
    """Return the statement that a client signs when it advertises its two X25519 public keys."""
    return H("secagg/1/keys", ph, client.encode(), share_key, mask_key)


def cohort_hash(ph: bytes, members: Iterable[tuple[str, bytes, bytes]]) -> bytes:
    """Return H1 over (client, share key, mask key) in the order given, which is that of the client names."""
    return H("secagg/1/cohort", ph, *(part for name, c, s in members for part in (name.encode(), c, s)))


def ring_place(h1: bytes, client: str) -> bytes:
    """Return the sort key of a member of U1 on the ring of a session in which not all are neighbours, ascending."""
    return H("secagg/1/ring", h1, client.encode())


def seed_commitment(h1: bytes, client: str, seed: bytes) -> bytes:
    """Return com_b: lets the coordinator tell whether the seed that it rebuilt is the one that was shared."""
    return H("b", h1, client.encode(), seed)


def shares_statement(h1: bytes, client: str, commitment: bytes, slots: bytes) -> bytes:
    """Return the statement that a client signs over its encrypted shares."""
    return H("secagg/1/shares", h1, client.encode(), commitment, hashlib.sha256(slots).digest())


def sharers_hash(h1: bytes, clients: Iterable[str]) -> bytes:
    """Return the hash that identifies U2, the clients whose shares were delivered."""
    return H("secagg/1/sharers", h1, *(client.encode() for client in clients))


def masked_statement(h1: bytes, sharers: bytes, client: str, digests: Mapping[str, bytes]) -> bytes:
    """Return the statement that a client signs over its masked vectors. It names U2, so another U2 would be noticed."""
    # By name: JSON objects come in any order, and both sides must hash alike.
    pieces = (part for name in sorted(digests) for part in (name.encode(), digests[name]))
    return H("secagg/1/masked", h1, sharers, client.encode(), *pieces)


def survivors_hash(h1: bytes, statements: Iterable[tuple[str, bytes]]) -> bytes:
    """Return H(U3) over (client, masked statement) in the order of the client names."""
    return H("secagg/1/survivors", h1, *(part for name, statement in statements for part in (name.encode(), statement)))


def consistency_statement(h1: bytes, survivors: bytes) -> bytes:
    """Return the statement that a survivor signs over the survivor set that it received."""
    return H("con", h1, survivors)


def unmask_statement(h1: bytes, survivors: bytes, client: str, shares: Iterable[tuple[str, str, bytes]]) -> bytes:
    """Return the statement that a client signs over the shares (peer, kind, share) that it opens."""
    pieces = (part for peer, kind, share in shares for part in (peer.encode(), kind.encode(), share))
    return H("secagg/1/unmask", h1, survivors, client.encode(), *pieces)


def result_statement(h1: bytes, survivors: bytes, digests: Mapping[str, bytes]) -> bytes:
    """Return the statement that the coordinator signs over the sums."""
    pieces = (part for name in sorted(digests) for part in (name.encode(), digests[name]))
    return H("secagg/1/result", h1, survivors, *pieces)


def canary_word(h1: bytes, client: str, vector: str) -> bytes:
    """Return eight bytes that a client adds to its vector. The coordinator knows their sum over the survivors."""
    return H("secagg/1/canary", h1, client.encode(), vector.encode())[:8]


def sign(key: Ed25519PrivateKey, statement: bytes) -> bytes:
    """Return the 64-byte Ed25519 signature (RFC 8032) of a statement."""
    return key.sign(statement)


def is_signed(key: Ed25519PublicKey, signature: bytes, statement: bytes) -> bool:
    """Return whether `signature` is the key owner's over `statement`."""
    try:
        key.verify(signature, statement)
    except InvalidSignature:
        return False
    return True
