"""Keys and keystreams of pairwise additive masking (Bonawitz et al. 2017, section 4, with signed keys).

Every mask key is derived by HKDF-SHA-256 for one session, one pair of clients (or one client) and one vector. Its
AES-256 keystream is added to that vector only: a key never masks twice.

The keystream is AES-256 in counter mode. Counter blocks are twelve zero bytes and a big-endian 32-bit counter that
starts at 2. That is the keystream of AES-256-GCM with a zero nonce (NIST SP 800-38D, section 7.1), and is taken from
there, without the tag. OpenSSL computes GCM with wide vector instructions, 2.4 times as fast as plain counter mode
where the processor has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from study_protocol.secure_sum.transcript import H
from study_protocol.secure_sum.vectors import RingVector, aligned

TAG_BYTES = 16
KEY_BYTES = 32
NONCE_BYTES = 12
# The 32-bit counter repeats beyond this many bytes. OpenSSL refuses to go on there.
MAX_BYTES = 16 * (2**32 - 2)
# Target, keystream and zeros of one chunk stay in the second-level cache together.
CHUNK_BYTES = 1 << 17
_ZEROS = bytes(CHUNK_BYTES)
_FIELD = 2**255 - 19  # of X25519: a coordinate below it has one encoding, whose highest bit is 0


class MaskingError(ValueError):
    """Key material or an encrypted share is unusable. The text says which."""


def keystream(key: bytes) -> CipherContext:
    """Return a cipher whose `update` of zeros yields the keystream of a 32-byte key from its beginning.

    Raises:
        ValueError: a key of another length.
    """
    if len(key) != KEY_BYTES:
        raise ValueError("a keystream needs a key of 32 bytes")
    return Cipher(algorithms.AES(key), modes.GCM(bytes(12))).encryptor()


@dataclass(frozen=True)
class KeyAgreement:
    """One client's X25519 private key together with the cohort hash H1 that salts everything it derives."""

    owner: str
    private: bytes = field(repr=False)
    h1: bytes

    @cached_property
    def _key(self) -> X25519PrivateKey:
        # Loading a private key costs as much as using it.
        return X25519PrivateKey.from_private_bytes(self.private)

    @cached_property
    def _agreed(self) -> dict[tuple[str, bytes], bytes]:
        # One agreement serves the keys of all vectors.
        return {}

    def share_key(self, peer: str, public: bytes) -> bytes:
        """Return the AES-256-GCM key for the shares between the owner and `peer`."""
        return self._derive("share", peer, public)

    def mask_key(self, peer: str, public: bytes, vector: str) -> bytes:
        """Return the key of the pair's mask for one vector, the same on both sides."""
        return self._derive("mask", peer, public, vector)

    def _derive(self, use: str, peer: str, public: bytes, *more: str) -> bytes:
        if peer == self.owner:
            raise MaskingError("a client has no pair key with itself")
        try:
            if (peer, public) not in self._agreed:
                self._agreed[peer, public] = agree(self._key, public)
        except ValueError as error:
            raise MaskingError(f"the public key of {peer} is not a usable X25519 key") from error
        return derive_key(self._agreed[peer, public], self.h1, use, *sorted((self.owner, peer)), *more)


def derive_key(secret: bytes, salt: bytes, *info: str) -> bytes:
    """Return 32 bytes of HKDF-SHA-256 (RFC 5869) with info = the words joined by "|", which no word may hold."""
    # Else two lists of words could be joined to one text, and two uses would share a key.
    if any("|" in word or not word for word in info):
        raise MaskingError('names in a key derivation are not empty and hold no "|"')
    return hkdf(secret, salt, "|".join(info).encode())


def hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """Return the first 32 bytes of HKDF-SHA-256 (RFC 5869)."""
    return HKDF(SHA256(), KEY_BYTES, salt, info).derive(secret)


def self_mask_key(seed: bytes, h1: bytes, vector: str) -> bytes:
    """Return the key of the mask that only the owner of the 32-byte seed b adds to one vector."""
    return derive_key(seed, h1, "self", vector)


def public_key(private: bytes) -> bytes:
    """Return the 32-byte X25519 public key of a 32-byte private key."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agree(private: X25519PrivateKey, public: bytes) -> bytes:
    """Return the shared secret of 32 bytes.

    Raises:
        ValueError: `public` has small order, so that the secret would be a constant (RFC 7748, section 6.1). Or it is a
            second encoding of a key. RFC 7748 reads that one, but here keys are compared, hashed and signed as bytes.
    """
    if len(public) != KEY_BYTES or int.from_bytes(public, "little") >= _FIELD:
        raise ValueError("no canonical X25519 key")
    return private.exchange(X25519PublicKey.from_public_bytes(public))


def is_usable(public: bytes) -> bool:
    """Return whether secrets can be agreed with a public key."""
    try:
        # Any private key will do: the exchange fails for exactly the points that agree with no key.
        agree(X25519PrivateKey.generate(), public)
    except ValueError:
        return False
    return True


def seal_share(key: bytes, h1: bytes, sender: str, recipient: str, share: bytes) -> bytes:
    """Return AES-256-GCM of `share` for `recipient`: ciphertext and 16-byte tag.

    The key serves one message in each direction of one session, so the nonce is the direction.
    """
    return seal(key, _direction(sender, recipient), share, _context(h1, sender, recipient))


def open_share(key: bytes, h1: bytes, sender: str, recipient: str, sealed: bytes) -> bytes:
    """Return the inverse of `seal_share`.

    Raises:
        MaskingError: altered, meant for another pair, session or cohort, or not from `sender`.
    """
    try:
        return unseal(key, _direction(sender, recipient), sealed, _context(h1, sender, recipient))
    except InvalidTag as error:
        raise MaskingError(f"the share from {sender} does not open") from error


def seal(key: bytes, nonce: bytes, text: bytes, context: bytes) -> bytes:
    """Return AES-256-GCM with a nonce of 12 bytes and a tag of 16, which follows the ciphertext (NIST SP 800-38D).

    Raises:
        ValueError: a key or nonce of another length: the mode has others, this protocol has not.
    """
    return _cipher(key, nonce).encrypt(nonce, text, context)


def unseal(key: bytes, nonce: bytes, sealed: bytes, context: bytes) -> bytes:
    """Return the inverse of `seal`.

    Raises:
        InvalidTag: it was not sealed so.
        ValueError: as `seal`.
    """
    return _cipher(key, nonce).decrypt(nonce, sealed, context)


def _cipher(key: bytes, nonce: bytes) -> AESGCM:
    if len(key) != KEY_BYTES or len(nonce) != NONCE_BYTES:
        raise ValueError("AES-256-GCM takes a key of 32 bytes and a nonce of 12")
    return AESGCM(key)


def _context(h1: bytes, sender: str, recipient: str) -> bytes:
    return H("secagg/1/share", h1, sender.encode(), recipient.encode())


def _direction(sender: str, recipient: str) -> bytes:
    # One key for both directions: two messages under one nonce would give both away.
    return bytes(11) + (b"\x00" if sender < recipient else b"\x01")


class Masks:
    """The keystreams of these keys, to be added and subtracted. Words may come in pieces, one after the other.

    Memory: one chunk, for any number of keys. The chunk loop is outside, so the words are walked once.

    Raises:
        MaskingError: a key is not 32 bytes, or a key occurs twice.
    """

    def __init__(self, *, add: Sequence[bytes] = (), subtract: Sequence[bytes] = ()) -> None:
        if len({*add, *subtract}) != len(add) + len(subtract):
            raise MaskingError("a mask key is used once")
        if any(len(key) != KEY_BYTES for key in (*add, *subtract)):
            raise MaskingError("a mask key is 32 bytes")
        self._adding, self._subtracting = [keystream(key) for key in add], [keystream(key) for key in subtract]
        self._buffer = aligned(CHUNK_BYTES, np.dtype(np.uint8))
        self._bytes_used = 0

    def apply(self, words: RingVector, *, head: RingVector | None = None) -> None:
        """Apply the next words of every keystream in place, modulo 2^32 or 2^64 by the dtype of `words`.

        `head`, if given, is first copied to the front of `words`, chunk by chunk while the chunk is in the cache.

        Raises:
            MaskingError: `words` is not a contiguous, writeable vector of little-endian 32- or 64-bit words, or
                passes 64 GiB with those before it.
        """
        if words.ndim != 1 or words.dtype.str not in ("<u4", "<u8") or not words.flags.carray:
            raise MaskingError("words is a contiguous, writeable vector of 32- or 64-bit words")
        if self._bytes_used + words.nbytes > MAX_BYTES:
            raise MaskingError("words is longer than one keystream")
        head = words[:0] if head is None else head
        if head.ndim != 1 or head.dtype != words.dtype or head.size > words.size:
            raise MaskingError("head is a vector of the same words, no longer than words")
        self._bytes_used += words.nbytes
        mask = self._buffer.view(words.dtype)
        for start in range(0, words.size, mask.size):
            chunk = words[start : start + mask.size]
            part = head[start : start + chunk.size]
            chunk[: part.size] = part
            self._apply(chunk, mask[: chunk.size])

    def _apply(self, chunk: RingVector, stream: RingVector) -> None:
        # Views: no memory is allocated for a mask.
        zeros, room = memoryview(_ZEROS)[: chunk.nbytes], self._buffer.data[: chunk.nbytes]
        for cipher in self._adding:
            cipher.update_into(zeros, room)
            np.add(chunk, stream, out=chunk)
        for cipher in self._subtracting:
            cipher.update_into(zeros, room)
            np.subtract(chunk, stream, out=chunk)


def apply_masks(
    words: RingVector, *, add: Sequence[bytes] = (), subtract: Sequence[bytes] = (), head: RingVector | None = None
) -> None:
    """Apply `Masks` to a whole vector. Raises MaskingError."""
    Masks(add=add, subtract=subtract).apply(words, head=head)
