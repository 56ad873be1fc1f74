"""The graph of a session against a second one, written down here from the page on the format; cuts by brute force."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection
from itertools import combinations, product

import numpy as np
import pytest

from study_protocol.secure_sum.graph import Graph
from study_protocol.secure_sum.messages import min_threshold


def names_of(size: int) -> tuple[str, ...]:
    return tuple(f"h{i:04d}" for i in range(size))


def order(h1: bytes, members: Collection[str]) -> list[str]:
    """The ring, by the rule in words."""

    def place(name: str) -> bytes:
        pieces = (b"secagg/1/ring", h1, name.encode())
        return hashlib.sha256(b"".join(len(piece).to_bytes(4, "big") + piece for piece in pieces)).digest()

    return sorted(members, key=place)


def known(ring: list[str], k: int) -> dict[str, set[str]]:
    """Neighbours of each."""
    size = len(ring)
    if k >= size - 1:
        return {name: set(ring) - {name} for name in ring}
    return {
        name: {ring[(i + s * step) % size] for step in range(1, k // 2 + 1) for s in (-1, 1)}
        for i, name in enumerate(ring)
    }


def is_connected(left: Collection[str], neighbours: dict[str, set[str]]) -> bool:
    """Whether the graph among `left` is in one piece, by walking it."""
    unseen = set(left)
    waiting = [unseen.pop()] if unseen else []
    while waiting:
        found = neighbours[waiting.pop()] & unseen
        unseen -= found
        waiting += found
    return not unseen


SIZES = [(n, k) for n in range(4, 12) for k in range(2, n, 2)] + [(6, 5), (7, 100), (101, 20), (300, 60)]


@pytest.mark.parametrize(("size", "k"), SIZES)
def test_neighbourhoods_are_those_of_the_written_rule(size, k) -> None:
    h1, members = hashlib.sha256(b"%d" % size).digest(), names_of(size)
    graph, expected = Graph(h1, members, k), known(order(h1, members), k)
    assert graph.is_complete == (k >= size - 1)
    chosen = set(random.Random(size).sample(members, size // 2))
    counts = graph.holders_among(graph.mask(chosen))
    for place, name in enumerate(members):
        assert graph.neighbours(name) == tuple(sorted(expected[name]))
        assert graph.holders(name) == tuple(sorted(expected[name] | {name}))
        assert [members[i] for i in graph.holders_at(name)] == list(graph.holders(name))
        assert {members[i] for i in np.flatnonzero(graph.adjacency[:, place])} == expected[name] | {name}
        assert counts[place] == len((expected[name] | {name}) & chosen)


def test_another_h1_is_another_ring() -> None:
    members = names_of(40)
    one, other = (Graph(bytes([i]) * 32, members, 6) for i in (1, 2))
    assert [one.neighbours(name) for name in members] != [other.neighbours(name) for name in members]


def test_a_stranger_is_no_member() -> None:
    graph = Graph(bytes(32), names_of(8), 4)
    with pytest.raises(KeyError):
        graph.mask(["h9999"])
    with pytest.raises(KeyError):
        graph.holders("h9999")


SMALL = [(n, k, c) for n in (6, 7, 8, 9) for k in (2, 4, 6) if k < n - 1 for c in range(1, k)]


@pytest.mark.parametrize(("size", "k", "colluders"), SMALL)
def test_no_colluders_cut_what_is_tied(size, k, colluders) -> None:
    """Every set of survivors, and every set of colluders among them."""
    h1, members = hashlib.sha256(b"%d %d" % (size, k)).digest(), names_of(size)
    graph, neighbours = Graph(h1, members, k), known(order(h1, members), k)
    tied = 0
    for survived in product((True, False), repeat=size):
        survivors = [name for name, here in zip(members, survived, strict=True) if here]
        if not graph.is_tied(np.array(survived), colluders):
            continue
        tied += 1
        for coalition in combinations(survivors, min(colluders, len(survivors))):
            assert is_connected(set(survivors) - set(coalition), neighbours), (survivors, coalition)
    assert tied


@pytest.mark.slow_cases("1000-150-50")
@pytest.mark.parametrize(("size", "k", "colluders"), [(60, 12, 7), (200, 40, 20), (1000, 150, 50)])
def test_no_whole_runs_of_colluders_cut_a_large_ring_that_is_tied(size, k, colluders) -> None:
    dice, h1, members = random.Random(size), bytes([7]) * 32, names_of(size)
    graph, ring = Graph(h1, members, k), order(bytes([7]) * 32, members)
    neighbours = known(ring, k)
    tied = 0
    for _ in range(60):
        # Losses in runs, too: the worst that still may be opened lies close to the rule.
        lost = set(dice.sample(members, dice.randrange(size // 5)))
        start = dice.randrange(size)
        lost |= {ring[(start + i) % size] for i in range(dice.randrange(k // 2 - colluders // 2 + 2))}
        survivors = set(members) - lost
        if not graph.is_tied(graph.mask(survivors), colluders):
            continue
        tied += 1
        windows = [[ring[(i + j) % size] for j in range(k // 2)] for i in range(size)]
        thinnest = sorted(windows, key=lambda window: sum(name in survivors for name in window))
        for one, other in ((thinnest[0], dice.choice(windows)), (thinnest[0], thinnest[-1]), dice.sample(windows, 2)):
            there = [name for name in (*one, *other) if name in survivors]
            for coalition in (there[:colluders], there[-colluders:], dice.sample(sorted(survivors), colluders)):
                assert is_connected(survivors - set(coalition), neighbours)
    assert tied > 5


def test_the_rule_is_no_stricter_than_a_cut_needs() -> None:
    """Two runs of which c/2 survive each: these c take the rest apart."""
    size, k, colluders = 30, 8, 4
    members, h1 = names_of(size), bytes(32)
    graph, ring = Graph(h1, members, k), order(h1, members)
    first, second = ring[0:4], ring[15:19]
    survivors = set(members) - {*first[2:], *second[2:]}
    assert not graph.is_tied(graph.mask(survivors), colluders)
    assert not is_connected(survivors - {*first, *second}, known(ring, k))
    # With one survivor more in each run they no longer can.
    more = survivors | {first[2], second[2]}
    assert graph.is_tied(graph.mask(more), colluders)


def test_in_the_complete_graph_nobody_can_be_parted() -> None:
    graph = Graph(bytes(32), names_of(9), 8)
    assert graph.is_tied(graph.mask(names_of(9)[:2]), 7)


def both_kinds(members: tuple[str, ...], neighbours: dict[str, set[str]], colluders: int, threshold: int) -> bool:
    """Whether some coalition collects `threshold` shares of both secrets of some honest client.

    The coordinator may tell every honest holder something else about who survived; each opens one share. A colluder
    hands over both.
    """
    for coalition in combinations(members, colluders):
        for owner in set(members) - set(coalition):
            holders = neighbours[owner] | {owner}
            honest = sorted(holders - set(coalition))
            dishonest = len(holders & set(coalition))
            for told in product(("survived", "lost"), repeat=len(honest)):
                seeds, mask_keys = (dishonest + told.count(word) for word in ("survived", "lost"))
                if min(seeds, mask_keys) >= threshold:
                    return True
    return False


@pytest.mark.parametrize(("size", "k", "colluders"), [(n, k, c) for n, k, c in SMALL if n < 9])
def test_nobody_collects_both_secrets_whatever_is_told_to_whom(size, k, colluders) -> None:
    members = names_of(size)
    neighbours = known(order(bytes(32), members), k)
    threshold = min_threshold(k + 1, colluders)
    assert not both_kinds(members, neighbours, colluders, threshold)
    # One share fewer, and somebody could: the oracle sees the mistake that it looks for.
    if (k + 1 + colluders) % 2 == 0:
        assert both_kinds(members, neighbours, colluders, threshold - 1)


@pytest.mark.parametrize(("size", "colluders"), [(n, c) for n in range(4, 9) for c in range(1, n - 2)])
def test_no_two_survivor_lists_find_a_quorum(size, colluders) -> None:
    """Every coalition signs both lists; every honest client the one that it was shown, or neither."""
    quorum = min_threshold(size, colluders)

    def both_confirmed(needed: int) -> bool:
        told = product((0, 1, 2), repeat=size - colluders)
        return any(min(shown.count(1), shown.count(2)) + colluders >= needed for shown in told)

    assert not both_confirmed(quorum)
    if (size + colluders) % 2 == 0:
        assert both_confirmed(quorum - 1)
