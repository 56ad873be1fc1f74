"""Where private noise and private coins come from: AES-256 in counter mode, keyed by the operating system."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from abc import ABC, abstractmethod

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

_LOG = logging.getLogger(__name__)
_ZEROS = memoryview(bytes(1 << 16))
_REKEY_BYTES = 1 << 36  # far below the 2^64 blocks after which counter mode becomes distinguishable


class InsecureSource(ValueError):
    """A reproducible source was asked for where only a cryptographic one protects anybody."""


class RandomSource(ABC):
    """A stream of uniform bytes. `secure` says whether nobody else can reproduce it."""

    secure: bool

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stream: CipherContext | None = None
        self._owner = 0
        self._given = 0

    @abstractmethod
    def _key(self) -> bytes:
        """32 bytes for a new stream."""

    def words(self, count: int, dtype: type[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
        """`count` independent uniform unsigned integers of the given type."""
        if count < 0:
            raise ValueError(f"count must be at least 0, got {count}")
        size = count * np.dtype(dtype).itemsize
        plain = _ZEROS[:size] if size <= len(_ZEROS) else bytes(size)
        with self._lock:
            return np.frombuffer(self._opened(size).update(plain), dtype=dtype)

    def _opened(self, size: int) -> CipherContext:
        # A forked child would otherwise repeat its parent's noise, and the difference of the two would show the data.
        if self._stream is None or self._owner != os.getpid() or self._given + size > _REKEY_BYTES:
            self._stream = Cipher(algorithms.AES256(self._key()), modes.CTR(bytes(16))).encryptor()
            self._owner, self._given = os.getpid(), 0
        self._given += size
        return self._stream


class SecureSource(RandomSource):
    """AES-256-CTR under a fresh key from os.urandom; rekeyed after a fork."""

    secure = True

    def _key(self) -> bytes:
        return os.urandom(32)


class SeededSource(RandomSource):
    """The same stream under a key derived from a seed: for tests and simulation, protects nobody.

    Raises InsecureSource unless allow_insecure=True is passed, and announces itself in the log.
    """

    secure = False

    def __init__(self, seed: int, *, allow_insecure: bool = False) -> None:
        super().__init__()
        if not allow_insecure:
            raise InsecureSource("a seeded source is reproducible by anybody; pass allow_insecure=True in simulations")
        _LOG.warning("seeded random source in use: noise and samples are reproducible and protect nobody")
        self._seed, self._streams = seed, 0

    def _key(self) -> bytes:
        self._streams += 1
        return hashlib.sha256(f"wardround seeded source {self._seed} {self._streams}".encode()).digest()
