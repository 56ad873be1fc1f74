"""How the papers deal MNIST out to clients: at random, or two pieces of 300 images of one digit.

Pieces are cut within each digit. 194 of MNIST's 200 come out whole; what is left of each digit makes six that mix.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[np.int64]
Rows = NDArray[np.int64]

SPLITS = {
    "iid": "dealt at random",
    "shards": (
        "two pieces of 300 images of one digit. Six of 200 pieces mix digits, because no digit has a multiple of 300 "
        "images"
    ),
}


def deal(labels: Labels, clients: int, each: int, split: str, seed: int) -> Rows:
    """(clients, each) rows. Where there are too few records, the whole set is dealt again and again.

    Raises:
        ValueError: an unknown split, or pieces that do not come out even.
    """
    draw = np.random.default_rng(seed)
    times = -(-clients * each // len(labels))
    if split == "iid":
        order = np.concatenate([draw.permutation(len(labels)) for _ in range(times)])
        return order[: clients * each].reshape(clients, each)
    if split != "shards":
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, not {split!r}")
    if len(labels) % each or each % 2 or clients * each % len(labels):
        raise ValueError(f"{clients} clients of {each} records do not come out even from {len(labels)}")
    return np.concatenate([_shards(labels, each, draw) for _ in range(times)])


def _shards(labels: Labels, each: int, draw: np.random.Generator) -> Rows:
    """Two pieces for every client, once through all records."""
    mixed, piece = draw.permutation(len(labels)), each // 2
    whole: list[Rows] = []
    rest: list[Rows] = []
    for label in np.unique(labels):
        label_rows = mixed[labels[mixed] == label]
        cut = len(label_rows) // piece * piece
        whole.append(label_rows[:cut])
        rest.append(label_rows[cut:])
    pieces = np.concatenate([*whole, *rest]).reshape(-1, piece)
    return pieces[draw.permutation(len(pieces))].reshape(-1, each)
