"""Every way of dealing records out gives each record to exactly one client, and what its name says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from private_learning.records import DataError
from simulation.splits import Rows, by_value, dirichlet, iid, shards

seeds = st.integers(0, 2**32 - 1)


def draw(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def require_each_once(rows: list[Rows], records: int) -> None:
    assert sorted(np.concatenate(rows).tolist()) == list(range(records))


@given(st.integers(1, 40), st.integers(0, 200), seeds)
def test_iid_deals_all_records_out_evenly(clients: int, more: int, seed: int) -> None:
    rows = iid(clients + more, clients, draw(seed))
    require_each_once(rows, clients + more)
    sizes = [len(own) for own in rows]
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 12), st.integers(1, 3), st.integers(0, 100), seeds)
def test_shards_are_runs_of_the_sorted_labels(clients: int, each: int, more: int, seed: int) -> None:
    labels = draw(seed).integers(0, 5, clients * each + more)
    rows = shards(labels, clients, each, draw(seed))
    require_each_once(rows, len(labels))
    # A piece of a sorted list holds neighbouring labels only: at most as many borders as there are.
    kinds = sum(len(np.unique(labels[own])) for own in rows)
    assert kinds <= clients * each + len(np.unique(labels)) - 1


def test_the_papers_shards_of_mnist_hold_one_label_but_for_the_borders() -> None:
    """60,000 labels as uneven as MNIST's in 200 shards: the borders of nine labels fall inside shards."""
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    labels = np.repeat(np.arange(10), counts)
    rows = shards(labels, 100, 2, draw(1))
    require_each_once(rows, 60_000)
    assert {len(own) for own in rows} == {600}
    pieces = np.sort(labels, kind="stable").reshape(200, 300)
    mixed = sum(len(np.unique(shard)) > 1 for shard in pieces)
    assert mixed == 9
    assert max(len(np.unique(labels[own])) for own in rows) <= 4


@given(st.integers(1, 8), st.floats(0.3, 50), seeds)
def test_dirichlet_deals_all_records_out(clients: int, alpha: float, seed: int) -> None:
    labels = draw(seed).integers(0, 4, 400)
    rows = dirichlet(labels, clients, alpha, draw(seed))
    require_each_once(rows, len(labels))
    assert all(len(own) for own in rows)


def test_a_small_alpha_gives_clients_few_labels_and_a_large_one_all() -> None:
    labels = np.repeat(np.arange(10), 500)

    def largest_share(alpha: float) -> float:
        rows = dirichlet(labels, 10, alpha, draw(3))
        return float(np.mean([np.bincount(labels[own]).max() / len(own) for own in rows]))

    assert largest_share(0.1) > 0.45
    assert largest_share(100.0) < 0.2


def test_one_client_for_every_value() -> None:
    rows, names = by_value(["St. Mary", "Mercy", "St. Mary", 7.0])
    assert names == ["7", "mercy", "st-mary"]
    assert [own.tolist() for own in rows] == [[3], [1], [0, 2]]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["a", None], "1 records do not say"),
        (["a", float("nan")], "1 records do not say"),
        (["A b", "a-b"], "would both"),
    ],
    ids=["none", "nan", "two-alike"],
)
def test_values_that_name_nobody_or_two_are_refused(values: list[object], said: str) -> None:
    with pytest.raises(DataError, match=said):
        by_value(values)


def test_too_many_clients_are_refused_in_words() -> None:
    with pytest.raises(DataError, match="fewer clients"):
        iid(3, 4, draw(0))
    with pytest.raises(DataError, match="fewer clients"):
        shards(np.zeros(5), 3, 2, draw(0))
    with pytest.raises(DataError, match="larger one, or fewer clients"):
        dirichlet(np.zeros(6), 6, 1e-3, draw(0))
