"""The 32 bytes that may be an Ed25519 key: the one encoding of a point whose order is large.

For a point of small order anyone can make signatures that hold (the neutral element signs every message). A second
encoding of one point would be a second key on a roster. OpenSSL accepts both. RFC 8032, 5.1.3 refuses the second.
"""

from __future__ import annotations

from functools import lru_cache

KEY_BYTES = 32
P = 2**255 - 19
# Of the curve −x² + y² = 1 + d x² y² (RFC 8032, 5.1).
D = -121665 * pow(121666, -1, P) % P


@lru_cache(maxsize=4096)
def is_identity_key(raw: bytes) -> bool:
    """Return whether `raw` is canonical, on the curve, and of an order other than 1, 2, 4, 8."""
    if len(raw) != KEY_BYTES:
        return False
    # The highest bit is the sign of x.
    y = int.from_bytes(raw, "little") & (2**255 - 1)
    if y >= P:
        return False
    square = y * y % P
    # x² = u/v, which is a square if u·v is one (Euler). v is never 0, because −1/d is no square.
    quotient = (square - 1) * (D * square + 1) % P
    # 0 is x = 0, the orders 1 and 2.
    if quotient == 0 or pow(quotient, (P - 1) // 2, P) != 1:
        return False
    # Doubled, y = 0 (order 4) has x = 0, and order 8 has y = 0: there x² = −y², so that 2y² = 1 − d y⁴.
    return y != 0 and (2 * square - 1 + D * square * square) % P != 0
