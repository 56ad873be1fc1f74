"""Private noise and private coins: AES-256 in counter mode.

The key comes from the operating system. At a hospital it comes also from a stored secret and from the purpose of the
draw.

Randomness is addressed: `randomness.of(purpose, party=…, round_number=…, step=…)` is a stream of its own. Seeded, the
stream of an address depends on the seed and the address alone. It does not depend on earlier draws, their order or the
process.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import operator
import os
import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

_LOG = logging.getLogger(__name__)
# Encrypted zeros are the keystream itself.
_ZEROS = memoryview(bytes(1 << 16))
_REKEY_BYTES = 1 << 36  # far below the 2^64 blocks after which counter mode becomes distinguishable


Subject = bytes | memoryview


class InsecureSource(ValueError):
    """A reproducible source was asked for where only a cryptographic one protects anybody."""


class Purpose(StrEnum):
    """The purpose for which a stream is drawn. Streams for two purposes are independent."""

    SAMPLE = "sample"
    """The Poisson batch of a local step."""
    SLOTS = "slots"
    """Where the records of a local step's batch lie in its passes."""
    VIEWS = "views"
    """How the records of a local step are changed before their gradients are taken."""
    NOISE = "noise"
    """On the clipped sum of a local step."""
    ACCOUNTING_SAMPLE = "accounting-sample"
    """Whose norms are measured: drawn once, before the first round (round 0)."""
    HISTOGRAM = "histogram"
    """Noise on a hospital's histogram of its records."""
    CLIENT_HISTOGRAM = "client-histogram"
    """A client's share of the noise on the summed histogram of clients; step: the vector's place in the session."""
    THRESHOLDS = "thresholds"
    """Words that blind the thresholds of a secure maximum; step: the vector's place in the session."""
    COINS = "coins"
    """Whether a client takes part in a round; party: that client."""
    SESSION = "session"
    """The identifier of a round's secure sum."""
    QUERY = "query"
    """A hospital's noise on its part of a query's sum."""
    CENTRAL_NOISE = "central-noise"
    """On the sum of the updates, by the coordinator."""


COORDINATOR = "coordinator"
"""The party that draws the central noise."""


class RandomSource(ABC):
    """A stream of uniform bytes. `secure` says that no other party can reproduce it."""

    secure: bool

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stream: CipherContext | None = None
        self._bytes_used = 0

    @abstractmethod
    def _key(self) -> bytes:
        """Return 32 bytes for a new stream."""

    def words(self, count: int, dtype: type[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
        """Return `count` independent uniform unsigned integers of the given type."""
        if count < 0:
            raise ValueError(f"count must be at least 0, got {count}")
        return np.frombuffer(self.read(count * np.dtype(dtype).itemsize), dtype=dtype)

    def read(self, size: int) -> bytes:
        """Return `size` independent uniform bytes, the next of the stream."""
        plain = _ZEROS[:size] if size <= len(_ZEROS) else bytes(size)
        # Threads share the stream, and no two may be given the same bytes.
        with self._lock:
            return self._opened(size).update(plain)

    def _opened(self, size: int) -> CipherContext:
        if self._stream is None or self._must_rekey() or self._bytes_used + size > _REKEY_BYTES:
            self._stream = Cipher(algorithms.AES256(self._key()), modes.CTR(bytes(16))).encryptor()
            self._bytes_used = 0
        self._bytes_used += size
        return self._stream

    def _must_rekey(self) -> bool:
        return False


class SecureSource(RandomSource):
    """AES-256-CTR under a fresh key, rekeyed after a fork.

    Args:
        derive: makes a key of 32 fresh bytes of the operating system. None: they are the key.
    """

    secure = True

    def __init__(self, derive: Callable[[bytes], bytes] | None = None) -> None:
        super().__init__()
        self._owner, self._derive = 0, derive

    def _key(self) -> bytes:
        self._owner = os.getpid()
        fresh = os.urandom(32)
        return fresh if self._derive is None else self._derive(fresh)

    def _must_rekey(self) -> bool:
        # A forked child would otherwise repeat its parent's noise, and the difference of the two would show the data.
        return self._owner != os.getpid()


class _DerivedSource(RandomSource):
    """AES-256-CTR under the hash of a label. A party that knows the label knows the stream."""

    secure = False

    def __init__(self, label: str) -> None:
        super().__init__()
        self._label, self._streams = label, 0

    def _key(self) -> bytes:
        self._streams += 1
        return hashlib.sha256(f"{self._label} {self._streams}".encode()).digest()


class SeededSource(_DerivedSource):
    """One stream from a seed, for tests and experiments that draw in one order. It does not protect anyone.

    Raises InsecureSource unless allow_insecure=True is passed, and announces itself in the log.
    """

    def __init__(self, seed: int, *, allow_insecure: bool = False) -> None:
        _require_allowed(allow_insecure)
        super().__init__(f"wardround seeded source {operator.index(seed)}")


class Randomness(ABC):
    """Streams by address. `secure` says that no other party can reproduce them."""

    secure: bool

    @abstractmethod
    def of(
        self, purpose: Purpose, *, party: str, round_number: int, step: int = 0, subject: Subject = b""
    ) -> RandomSource:
        """Return the stream of this address.

        Args:
            party: a client's name, or COORDINATOR.
            round_number: from 1. 0 is before the first round.
            step: the step within the round, if the purpose has several.
            subject: the value that the stream hides, if it is known before it is first read. It is no part of the
                address.
        """

    def bind(self, *context: str) -> None:  # noqa: B027
        """State the subject of all later draws, such as a session."""

    def derived(self, fresh: bytes, use: str, context: bytes) -> bytes:
        """Return a secret of 32 bytes out of 32 fresh ones.

        Also beside seeded randomness no other party can reproduce it.
        """
        return fresh

    def in_round(self, party: str, round_number: int) -> RoundRandomness:
        """Return the part of one party in one round."""
        return RoundRandomness(self, party, round_number)


@dataclass(frozen=True)
class RoundRandomness:
    """One party's streams in one round."""

    randomness: Randomness
    party: str
    round: int

    def of(self, purpose: Purpose, *, step: int = 0, subject: Subject = b"") -> RandomSource:
        """Return the stream of this address. subject: as `Randomness.of`."""
        return self.randomness.of(purpose, party=self.party, round_number=self.round, step=step, subject=subject)


class SecureRandomness(Randomness):
    """One cryptographic stream behind every address: no two draws are alike, also at the same address."""

    secure = True

    def __init__(self) -> None:
        self._source = SecureSource()

    def of(
        self, purpose: Purpose, *, party: str, round_number: int, step: int = 0, subject: Subject = b""
    ) -> RandomSource:
        """Return the stream of the operating system's key, wherever it has come to."""
        return self._source


class HospitalRandomness(Randomness):
    """Every stream under a key of its own, made of fresh bytes, a stored secret and the purpose of the draw.

    A machine that is put back to a snapshot of its memory may be given the same fresh bytes again. Streams are then
    alike only if all else is alike, too: the secret, the bound values, the address, and the subject. An attacker with
    the fresh bytes, from a weak generator or a copy of the memory, still lacks the secret, and the reverse.

    The key is HKDF-SHA-256 (RFC 5869) with salt = secret, input = fresh bytes and info = the rest.

    Args:
        secret: 32 bytes that this hospital keeps.
    """

    secure = True

    def __init__(self, secret: bytes) -> None:
        self._secret, self._context = secret, tuple[str, ...]()

    def bind(self, *context: str) -> None:
        """State the session, heads of the ledgers, round, and digests of the inputs of the computation."""
        self._context = context

    def of(
        self, purpose: Purpose, *, party: str, round_number: int, step: int = 0, subject: Subject = b""
    ) -> RandomSource:
        """Return a new stream: an address that is asked for twice gives two, while the fresh bytes differ."""
        use = json.dumps([Purpose(purpose).value, party, operator.index(round_number), operator.index(step)])
        # Bound now: the stream may be read, and its key be drawn, in another thread.
        context, streams = self._context, itertools.count()
        return SecureSource(
            lambda fresh: self._key(context, fresh, f"{use} {next(streams)}", hashlib.sha256(subject).digest())
        )

    def derived(self, fresh: bytes, use: str, context: bytes) -> bytes:
        return self._key(self._context, fresh, use, context)

    def _key(self, bound: tuple[str, ...], fresh: bytes, use: str, context: bytes) -> bytes:
        # JSON: no two lists are written alike.
        info = json.dumps(["wardround/1/draw", *bound, use, context.hex()]).encode()
        return HKDF(SHA256(), 32, self._secret, info).derive(fresh)


class SeededRandomness(Randomness):
    """The streams of one study under a key derived from a seed, for tests and simulation. They do not protect anyone.

    An address asked for twice gives the same bytes twice, in any process. Two studies under one seed draw alike. Raises
    InsecureSource unless allow_insecure=True is passed, and announces itself in the log.
    """

    secure = False

    def __init__(self, seed: int, *, allow_insecure: bool = False) -> None:
        _require_allowed(allow_insecure)
        self._seed = operator.index(seed)

    def of(
        self, purpose: Purpose, *, party: str, round_number: int, step: int = 0, subject: Subject = b""
    ) -> RandomSource:
        """Return the stream of this address, from its beginning."""
        # JSON: no two addresses are written alike.
        address = json.dumps(
            [self._seed, party, operator.index(round_number), Purpose(purpose).value, operator.index(step)]
        )
        return _DerivedSource(f"wardround seeded address {address}")


class AddressedCoins:
    """Every client's coin and every session's identifier at an address of its own. Secrets are never addressed."""

    def __init__(self, randomness: Randomness | None = None) -> None:
        self._randomness = randomness or SecureRandomness()

    def heads(self, rate: float, *, client: str, round_number: int) -> bool:
        """Return True with probability exactly `rate`: a float is a fraction whose denominator is a power of two.

        Raises:
            ValueError: a rate outside (0, 1].
        """
        if not 0 < rate <= 1:
            raise ValueError("rate lies in (0, 1]")
        numerator, denominator = rate.as_integer_ratio()
        # As many uniform bits as the rate's denominator has: the comparison is exact.
        bits = denominator.bit_length() - 1
        octets = -(-bits // 8)
        words = self._randomness.of(Purpose.COINS, party=client, round_number=round_number).read(octets)
        return int.from_bytes(words) >> (8 * octets - bits) < numerator

    def session(self, round_number: int) -> bytes:
        """Return 32 bytes that name the round's secure sum."""
        return self._randomness.of(Purpose.SESSION, party=COORDINATOR, round_number=round_number).read(32)

    def token(self, size: int) -> bytes:
        """Return `size` unpredictable bytes, also beside seeded randomness: keys and invitations are secrets in any
        case.
        """
        return secrets.token_bytes(size)


def _require_allowed(allow_insecure: bool) -> None:
    if not allow_insecure:
        raise InsecureSource("a seeded source is reproducible by anyone: pass allow_insecure=True in simulations")
    _LOG.warning("seeded random source in use: noise and samples are reproducible and do not protect anyone")
