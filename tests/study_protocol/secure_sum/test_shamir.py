"""Sharing against polynomials in Python integers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sympy import isprime

from study_protocol.secure_sum import shamir
from study_protocol.secure_sum.shamir import PRIME, SHARE_BYTES, SharingError

SECRET = st.binary(min_size=32, max_size=32)


def lagrange_at(points: list[int], values: list[int], at: int) -> int:
    total = 0
    for i, x in enumerate(points):
        numerator = denominator = 1
        for j, y in enumerate(points):
            if i != j:
                numerator, denominator = numerator * (at - y), denominator * (x - y)
        total += values[i] * numerator * pow(denominator, -1, PRIME)
    return total % PRIME


def limbs_of(secret: bytes) -> list[int]:
    number = int.from_bytes(secret, "little")
    return [number >> 31 * i & (2**31 - 1) for i in range(9)]


def ring_vectors_of(share: bytes) -> list[int]:
    return [int.from_bytes(share[i : i + 4], "little") for i in range(0, len(share), 4)]


def rows(shares: Iterable[bytes]) -> np.ndarray:
    return np.vstack([shamir.parse_share(share) for share in shares])


def test_the_field_is_a_field() -> None:
    assert isprime(PRIME)


@settings(deadline=None)
@given(st.lists(SECRET, min_size=1, max_size=3), st.integers(1, 40), st.data(), SECRET)
def test_any_threshold_of_shares_recovers_the_secrets(secrets, holders, data, seed) -> None:
    threshold = data.draw(st.integers(1, holders))
    shares = shamir.split(secrets, holders, threshold, seed)
    points = data.draw(st.permutations(range(1, holders + 1)))[:threshold]
    assert shamir.combine(shamir.weights_at(points), rows(shares[p - 1] for p in points)) == secrets


@settings(deadline=None)
@given(SECRET, st.integers(2, 12), st.data())
def test_shares_lie_on_polynomials_through_the_secret(secret, holders, data) -> None:
    threshold = data.draw(st.integers(1, holders))
    shares = [ring_vectors_of(share) for share in shamir.split([secret], holders, threshold, b"s" * 32)]
    points = list(range(1, threshold + 1))
    for limb, expected in enumerate(limbs_of(secret)):
        values = [shares[p - 1][limb] for p in points]
        assert lagrange_at(points, values, 0) == expected
        for other in range(threshold, holders):
            assert lagrange_at(points, values, other + 1) == shares[other][limb]


@settings(deadline=None)
@given(st.sets(st.integers(1, 300), min_size=1, max_size=12), st.integers(0, 300))
def test_weights_are_lagrange_basis_values(points, at) -> None:
    ordered = sorted(points)
    weights = shamir.weights_at(ordered, at)
    for i in range(len(ordered)):
        unit = [int(i == j) for j in range(len(ordered))]
        assert int(weights[i]) == lagrange_at(ordered, unit, at)


def test_too_few_shares_fit_every_secret() -> None:
    # With t - 1 shares fixed, each candidate secret has exactly one polynomial: shown by extending with f(0).
    shares = [ring_vectors_of(share) for share in shamir.split([b"\x05" * 32], 5, 3, b"q" * 32)]
    for candidate in (0, 1, PRIME - 1):
        points, values = [0, 1, 2], [candidate, shares[0][0], shares[1][0]]
        assert lagrange_at(points, values, 0) == candidate
        assert lagrange_at(points, values, 1) == shares[0][0]


def test_one_share_is_uniform_whatever_the_secret() -> None:
    # 64 equal cells of [0, p); false alarm 1e-6 for each of two secrets.
    rng = np.random.default_rng(3)
    for secret in (bytes(32), b"\xff" * 32):
        words = [
            w for _ in range(400) for s in shamir.split([secret], 3, 2, rng.bytes(32))[:1] for w in ring_vectors_of(s)
        ]
        cells = np.bincount(np.array(words, dtype=np.int64) * 64 // PRIME, minlength=64)
        assert stats.chisquare(cells).pvalue > 1e-6


def test_sharing_is_deterministic_in_its_seed_and_differs_between_seeds() -> None:
    once, again = (shamir.split([b"x" * 32], 4, 3, b"1" * 32) for _ in range(2))
    assert once == again
    assert once != shamir.split([b"x" * 32], 4, 3, b"2" * 32)
    assert all(len(share) == SHARE_BYTES for share in once)


def test_a_wrong_share_gives_another_secret_or_none() -> None:
    secret = b"z" * 32
    shares = shamir.split([secret], 5, 3, b"s" * 32)
    weights = shamir.weights_at([1, 2, 3])
    for position in range(SHARE_BYTES):
        bad = bytearray(shares[1])
        bad[position] ^= 1
        try:
            assert shamir.combine(weights, rows([shares[0], bytes(bad), shares[2]])) != [secret]
        except SharingError:
            continue


@pytest.mark.parametrize(("holders", "threshold"), [(3, 0), (3, 4), (0, 0), (2**16, 3)])
def test_impossible_thresholds_are_refused(holders, threshold) -> None:
    with pytest.raises(SharingError, match="threshold"):
        shamir.split([bytes(32)], holders, threshold, bytes(32))


def test_bad_shares_and_points_are_refused() -> None:
    weights = shamir.weights_at([1, 2])
    good = shamir.split([bytes(32)], 2, 2, bytes(32))
    too_large = PRIME.to_bytes(4, "little") + bytes(32)
    for share, word in ((b"", "bytes"), (good[0][:-1], "bytes"), (too_large, "field")):
        with pytest.raises(SharingError, match=word):
            shamir.parse_share(share)
    for shares in (rows(good[:1]), rows([*good, good[0]]), rows(good)[0]):
        with pytest.raises(SharingError, match="needed"):
            shamir.combine(weights, shares)
    # Beside it the other secrets are still found.
    assert shamir.combine(weights, np.hstack([rows([good[0], good[0]]), rows(good)])) == [None, bytes(32)]
    for points in ([], [1, 1], [0], [-1], [2**16]):
        with pytest.raises(SharingError, match="points"):
            shamir.weights_at(points)
    for secret, seed in ((bytes(31), bytes(32)), (bytes(32), bytes(33))):
        with pytest.raises(SharingError, match="32 bytes"):
            shamir.split([secret], 2, 2, seed)


def test_every_subset_of_threshold_size_agrees() -> None:
    secret = bytes(range(32))
    shares = shamir.split([secret], 7, 5, b"k" * 32)
    for points in itertools.combinations(range(1, 8), 5):
        assert shamir.combine(shamir.weights_at(points), rows(shares[p - 1] for p in points)) == [secret]
