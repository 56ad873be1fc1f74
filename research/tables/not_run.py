"""A line whose pictures are not here and have no loader: CIFAR-10."""

from __future__ import annotations

from research.tables.catalogue import CatalogueEntry
from research.tables.result import Papers

_CIFAR10 = Papers(
    "Triastcyn & Faltings 2020, Table 1",
    {"without privacy": 86, "DP": 73, "BDP": 73},
    {"DP": 8.0, "BDP": 0.51},
    1e-5,
)

ENTRIES = (
    CatalogueEntry(
        "ICML", "CIFAR-10, ε 8", _CIFAR10, None, {"data": "cifar-10", "epsilon": "8"}, "needs the images of CIFAR-10"
    ),
)
