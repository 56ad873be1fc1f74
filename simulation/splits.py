"""Ways of dealing records out to clients: index arrays, drawn from the generator that is given."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from private_learning.records import DataError

Rows = NDArray[np.int64]
Labels = NDArray[Any]
_TRIES = 100


def iid(records: int, clients: int, draw: np.random.Generator) -> list[Rows]:
    """Give every record to one client, at random. Sizes differ by at most one.

    Raises:
        DataError: fewer records than clients.
    """
    _require_enough(records, clients)
    return _dealt(draw.permutation(records), clients)


def shards(labels: Labels, clients: int, each: int, draw: np.random.Generator) -> list[Rows]:
    """Records in order of their labels, cut into clients · each pieces, of which every client gets `each` at random.

    McMahan et al. 2017, section 3. Pieces are of equal size, so that some may hold two labels.

    labels: (n,).

    Raises:
        DataError: fewer records than pieces.
    """
    _require_enough(len(labels), clients * each)
    # Within a label at random: a piece is a sample of its label.
    mixed = draw.permutation(len(labels))
    pieces = _dealt(mixed[np.argsort(labels[mixed], kind="stable")], clients * each)
    order: list[list[int]] = draw.permutation(len(pieces)).reshape(clients, each).tolist()
    return [np.concatenate([pieces[piece] for piece in client_pieces]) for client_pieces in order]


def dirichlet(labels: Labels, clients: int, alpha: float, draw: np.random.Generator) -> list[Rows]:
    """Of every label, shares to the clients that are drawn from a symmetric Dirichlet law (Hsu, Qi & Brown 2019).

    labels: (n,). alpha: small: few labels a client. Large: all alike. Drawn again until no client is empty.

    Raises:
        DataError: fewer records than clients, or a client stays empty.
    """
    _require_enough(len(labels), clients)
    for _ in range(_TRIES):
        owner = np.empty(len(labels), np.int64)
        for label in np.unique(labels):
            rows = draw.permutation(np.flatnonzero(labels == label))
            # Shares as whole records: a record at place i goes to the client whose share reaches beyond it.
            reached = np.cumsum(draw.dirichlet(np.full(clients, alpha))) * len(rows)
            owner[rows] = np.searchsorted(reached[:-1], np.arange(len(rows)), side="right")
        dealt = [np.flatnonzero(owner == client) for client in range(clients)]
        if all(len(rows) for rows in dealt):
            return dealt
    raise DataError(
        f"with alpha {alpha:g} some of {clients} clients get no record: choose a larger one, or fewer clients"
    )


def by_value(values: Sequence[Any]) -> tuple[list[Rows], list[str]]:
    """One client for every value, such as the name of the hospital: (rows, names), names ascending.

    Raises:
        DataError: a record without a value, or two values that make one name.
    """
    missing = [value is None or value != value for value in values]
    if any(missing):
        raise DataError(f"{sum(missing)} records do not say which client has them: fill the column, or drop these rows")
    rows: dict[str, list[int]] = {}
    value_of_place: dict[str, str] = {}
    for row, value in enumerate(values):
        written = _written(value)
        name = client_name(written)
        if value_of_place.setdefault(name, written) != written:
            raise DataError(
                f"{value_of_place[name]!r} and {written!r} would both be the client {name}: write them apart"
            )
        rows.setdefault(name, []).append(row)
    names = sorted(rows)
    return [np.array(rows[name], dtype=np.int64) for name in names], names


def _written(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def client_name(written: str) -> str:
    """Return the name of a client for a value or a file: lower-case letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", written.lower()).strip("-") or "client"


def _dealt(order: Rows, parts: int) -> list[Rows]:
    return [part.astype(np.int64) for part in np.array_split(order, parts)]


def _require_enough(records: int, parts: int) -> None:
    if records < parts:
        raise DataError(f"{records} records cannot be dealt out to {parts}: ask for fewer clients")
