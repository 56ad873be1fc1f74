"""The papers' splits, of labels as many as MNIST has."""

from __future__ import annotations

import numpy as np
import pytest

from research.tables.dealing import deal

# How many training images of each digit there are.
COUNTS = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)
LABELS = np.random.default_rng(2).permutation(np.repeat(np.arange(10), COUNTS))


@pytest.mark.parametrize("split", ["iid", "shards"])
@pytest.mark.parametrize("clients", [100, 1000])
def test_every_client_has_600_and_every_image_is_dealt_equally_often(split: str, clients: int) -> None:
    rows = deal(LABELS, clients, 600, split, 3)
    assert rows.shape == (clients, 600)
    assert (np.bincount(rows.ravel(), minlength=60_000) == clients // 100).all()
    assert all(len(set(own)) == 600 for own in rows[:20])


def test_of_200_pieces_194_have_one_digit() -> None:
    pieces = LABELS[deal(LABELS, 100, 600, "shards", 3)].reshape(200, 300)
    assert sum(len(set(piece)) == 1 for piece in pieces) == 194


def test_seeds_deal_differently_and_the_same_seed_alike() -> None:
    one, again, other = (deal(LABELS, 100, 600, "shards", seed) for seed in (1, 1, 2))
    assert (one == again).all()
    assert (one != other).any()


@pytest.mark.parametrize(("clients", "each", "split"), [(7, 600, "shards"), (100, 599, "shards"), (100, 600, "size")])
def test_what_does_not_come_out_even_is_refused(clients: int, each: int, split: str) -> None:
    with pytest.raises(ValueError, match=r"come out even|split must be"):
        deal(LABELS, clients, each, split, 0)


def test_records_that_do_not_come_out_even_are_dealt_as_far_as_they_go() -> None:
    rows = deal(LABELS[:950], 4, 300, "iid", 0)
    counts = np.bincount(rows.ravel(), minlength=950)
    assert rows.shape == (4, 300)
    assert set(counts[:950].tolist()) == {1, 2}
