"""Ed25519 keys that nobody may have: all points of small order, and second encodings.

Computed here by the group law itself, which the code under test does not use.
"""

from __future__ import annotations

P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
Point = tuple[int, int]
_ROOT = pow(2, (P - 1) // 4, P)


def add(a: Point, b: Point) -> Point:
    """RFC 8032, 5.1: on the curve −x² + y² = 1 + d x² y²."""
    product = D * a[0] * b[0] * a[1] * b[1] % P
    x = (a[0] * b[1] + a[1] * b[0]) * pow(1 + product, -1, P) % P
    return x, (a[1] * b[1] + a[0] * b[0]) * pow(1 - product, -1, P) % P


def times(factor: int, point: Point) -> Point:
    found: Point = (0, 1)
    while factor:
        if factor & 1:
            found = add(found, point)
        point, factor = add(point, point), factor >> 1
    return found


def _x_of(y: int) -> int | None:
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    x = x if x * x % P == square else x * _ROOT % P
    return x if x * x % P == square else None


def encoded(point: Point) -> bytes:
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


def _torsion() -> list[Point]:
    """The eight points whose order divides 8: what the group's prime leaves of a point of full order."""
    prime = 2**252 + 27742317777372353535851937790883648493
    for y in range(2, 100):
        x = _x_of(y)
        if x is not None and (found := times(prime, (x, y))) and len({times(n, found) for n in range(8)}) == 8:
            return [times(n, found) for n in range(8)]
    raise AssertionError("unreachable: half of all points have such an order")


SMALL_ORDER = [encoded(point) for point in _torsion()]
# The same numbers with p added where that fits into 255 bits, and the sign bit where x is 0.
SECOND_ENCODINGS = [
    *(((y + P) | sign << 255).to_bytes(32, "little") for y in (0, 1, 3, 18) for sign in (0, 1)),
    (1 | 1 << 255).to_bytes(32, "little"),
    ((P - 1) | 1 << 255).to_bytes(32, "little"),
]
