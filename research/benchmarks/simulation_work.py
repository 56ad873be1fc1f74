"""The work of `research.benchmarks.simulation`, the same for everybody: the model, and which records a client has.

Imported in the peers' environments as well: it needs torch and NumPy alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import nn


def small_cnn() -> nn.Module:
    """Opacus's MNIST example, 26 thousand parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip


def rows_of(client: int, records: int, distinct: int) -> NDArray[np.int64]:
    """(records,) the images of one client among those that there are; after the last comes the first again."""
    return (client * records + np.arange(records)) % distinct
