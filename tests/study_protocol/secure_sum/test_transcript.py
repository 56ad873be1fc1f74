"""Hashes recomputed by hand, and statements that never coincide."""

from __future__ import annotations

import hashlib
import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

import study_protocol.secure_sum.transcript as ts

PIECES = st.lists(st.binary(max_size=6), max_size=5)


def prefixed(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(len(p).to_bytes(4, "big") + p for p in parts)).digest()


def test_hashes_are_length_prefixed_sha256() -> None:
    assert ts.H("label", b"ab", b"") == prefixed(b"label", b"ab", b"")
    assert ts.parameters_hash(b"{}") == hashlib.sha256(b"{}").digest()
    assert ts.seed_commitment(b"h" * 32, "a", b"s" * 32) == prefixed(b"b", b"h" * 32, b"a", b"s" * 32)
    members = [("a", b"1" * 32, b"2" * 32), ("b", b"3" * 32, b"4" * 32)]
    expected = prefixed(b"secagg/1/cohort", b"p" * 32, b"a", b"1" * 32, b"2" * 32, b"b", b"3" * 32, b"4" * 32)
    assert ts.cohort_hash(b"p" * 32, members) == expected
    assert ts.consistency_statement(b"h" * 32, b"u" * 32) == prefixed(b"con", b"h" * 32, b"u" * 32)
    slots = hashlib.sha256(b"slots").digest()
    assert ts.shares_statement(b"h", "a", b"c", b"slots") == prefixed(b"secagg/1/shares", b"h", b"a", b"c", slots)


@settings(deadline=None)
@given(PIECES, PIECES)
def test_different_pieces_have_different_hashes(left, right) -> None:
    assert (ts.H("x", *left) == ts.H("x", *right)) == (left == right)


def test_statements_of_different_kinds_never_coincide() -> None:
    h, d = b"h" * 32, b"d" * 32
    statements = [
        ts.parameters_statement(h),
        ts.keys_statement(h, "a", d, d),
        ts.cohort_hash(h, [("a", d, d)]),
        ts.seed_commitment(h, "a", d),
        ts.shares_statement(h, "a", d, d),
        ts.sharers_hash(h, ["a"]),
        ts.masked_statement(h, d, "a", {"v": d}),
        ts.survivors_hash(h, [("a", d)]),
        ts.consistency_statement(h, d),
        ts.unmask_statement(h, d, "a", [("b", "seed", d)]),
        ts.result_statement(h, d, {"v": d}),
    ]
    assert all(a != b for a, b in itertools.combinations(statements, 2))


def test_digests_are_signed_in_the_order_of_their_names() -> None:
    one = ts.masked_statement(b"h", b"u", "a", {"x": b"1", "y": b"2"})
    assert one == ts.masked_statement(b"h", b"u", "a", {"y": b"2", "x": b"1"})
    assert one != ts.masked_statement(b"h", b"u", "a", {"x": b"2", "y": b"1"})


def test_canaries_differ_between_clients_and_vectors() -> None:
    words = {ts.canary_word(b"h", client, vector) for client in "abc" for vector in ("update", "terms")}
    assert len(words) == 6
    assert all(len(word) == 8 for word in words)
