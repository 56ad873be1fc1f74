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
    "shards": "two pieces of 300 images of one digit; of 200 pieces six mix digits, for no digit has a multiple of 300",
}


def deal(labels: Labels, clients: int, each: int, split: str, seed: int) -> Rows:
    """(clients, each) rows. Where there are too few records, the whole set is dealt again and again.

    Raises:
        ValueError: an unknown split, or numbers that do not come out even.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, not {split!r}")
    if len(labels) % each or each % 2 or clients * each % len(labels):
        raise ValueError(f"{clients} clients of {each} records do not come out even from {len(labels)}")
    draw = np.random.default_rng(seed)
    times = clients * each // len(labels)
    return np.concatenate([_once(labels, each, split, draw) for _ in range(times)])


def _once(labels: Labels, each: int, split: str, draw: np.random.Generator) -> Rows:
    mixed = draw.permutation(len(labels))
    if split == "iid":
        return mixed.reshape(-1, each)
    piece = each // 2
    whole: list[Rows] = []
    rest: list[Rows] = []
    for label in np.unique(labels):
        own = mixed[labels[mixed] == label]
        cut = len(own) // piece * piece
        whole.append(own[:cut])
        rest.append(own[cut:])
    pieces = np.concatenate([*whole, *rest]).reshape(-1, piece)
    return pieces[draw.permutation(len(pieces))].reshape(-1, each)
